#pragma once

/// One connection of libcurl.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <remora/result.h>
#include <remora/volume/open_store.h>

namespace remora::volume {

struct HttpRequest {
  std::string url{};
  std::string body{};   ///< JSON
  std::string token{};  ///< the value of Authorization; empty: none
  std::chrono::milliseconds limit{0};
  /// On a connection of its own: libcurl sends a request again by itself if a kept connection turns
  /// out to be closed.
  bool fresh = false;
};

struct HttpAnswer {
  long status = 0;  ///< 0: no answer  NOLINT(google-runtime-int): libcurl's type
  std::string body{};
  bool sent = false;     ///< the request may have reached the server
  std::string fault{};   ///< libcurl's text, without an answer
  bool expired = false;  ///< the fault is the time limit
  bool refused = false;  ///< the fault is a certificate
};

/// Keeps a connection between requests. One thread at a time.
class HttpHandle {
 public:
  /// Null: no memory.
  static std::unique_ptr<HttpHandle> create(const StoreOptions& options);
  ~HttpHandle();
  HttpHandle(const HttpHandle&) = delete;
  HttpHandle& operator=(const HttpHandle&) = delete;

  HttpAnswer post(const HttpRequest& request);

 private:
  explicit HttpHandle(void* curl) noexcept : curl_{curl} {}

  void* curl_;  ///< CURL
};

}  // namespace remora::volume
