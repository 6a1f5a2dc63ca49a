#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace remora::apps {

/// SHA-256 of bytes that come in pieces, by OpenSSL. One thread.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);
  /// 64 hexadecimal digits. Ends the sum: call it once.
  [[nodiscard]] std::string finish();

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  std::unique_ptr<void, Free> context_;  ///< EVP_MD_CTX
};

}  // namespace remora::apps
