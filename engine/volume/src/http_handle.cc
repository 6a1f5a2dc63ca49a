#include "http_handle.h"

#include <array>
#include <curl/curl.h>
#include <mutex>
#include <sys/socket.h>

namespace remora::volume {
namespace {

constexpr std::size_t kAnswerBytesMax = std::size_t{64} << 20U;

std::size_t append(const char* bytes, std::size_t size, std::size_t count, void* to) {
  auto& body = *static_cast<std::string*>(to);
  if (body.size() + size * count > kAnswerBytesMax) return 0;  // libcurl ends the request
  body.append(bytes, size * count);
  return size * count;
}

/// libcurl's own sockets stay open in programs that a child of this process executes.
curl_socket_t open_socket(void* /*context*/, curlsocktype /*purpose*/, curl_sockaddr* address) {
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

bool is_of_certificate(CURLcode code) noexcept {
  switch (code) {
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS: return true;
    default: return false;
  }
}

/// Owns a list of headers.
struct FreeHeaders {
  void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
};

}  // namespace

std::unique_ptr<HttpHandle> HttpHandle::create(const StoreOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] { ::curl_global_init(CURL_GLOBAL_DEFAULT); });
  CURL* const curl = ::curl_easy_init();
  if (curl == nullptr) return nullptr;
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  ::curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  ::curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  ::curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");  // etcd is part of the cluster's own network
  ::curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  ::curl_easy_setopt(curl, CURLOPT_POST, 1L);
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &append);
  ::curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
  // A name server that does not answer must not hold a call beyond its limit: the thread that waits
  // for it ends by itself.
  ::curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
  if (!options.ca_file.empty()) {
    ::curl_easy_setopt(curl, CURLOPT_CAINFO, options.ca_file.c_str());
    ::curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);  // else the system's signers count, too
  }
  if (!options.certificate_file.empty())
    ::curl_easy_setopt(curl, CURLOPT_SSLCERT, options.certificate_file.c_str());
  if (!options.key_file.empty()) ::curl_easy_setopt(curl, CURLOPT_SSLKEY, options.key_file.c_str());
  return std::unique_ptr<HttpHandle>{new HttpHandle{curl}};
}

HttpHandle::~HttpHandle() { ::curl_easy_cleanup(curl_); }

HttpAnswer HttpHandle::post(const HttpRequest& request) {
  HttpAnswer answer;
  std::array<char, CURL_ERROR_SIZE> fault{};
  std::unique_ptr<curl_slist, FreeHeaders> headers{
      ::curl_slist_append(nullptr, "Content-Type: application/json")};
  // No "Expect: 100-continue": etcd need not be asked before a body is sent.
  ::curl_slist_append(headers.get(), "Expect:");
  if (!request.token.empty())
    ::curl_slist_append(headers.get(), ("Authorization: " + request.token).c_str());
  CURL* const curl = curl_;
  ::curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  ::curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request.body.c_str());
  ::curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
  ::curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(request.limit.count()));
  ::curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, request.fresh ? 1L : 0L);
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, fault.data());
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
  const CURLcode code = ::curl_easy_perform(curl);
  ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
  curl_off_t before_sending_us = 0;  // 0: no connection was made
  ::curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &before_sending_us);
  answer.sent = before_sending_us > 0;
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, nullptr);
  ::curl_easy_setopt(curl, CURLOPT_POSTFIELDS, nullptr);
  if (code == CURLE_OK) return answer;
  answer.status = 0;
  answer.fault = fault[0] != '\0' ? fault.data() : ::curl_easy_strerror(code);
  answer.expired = code == CURLE_OPERATION_TIMEDOUT;
  // A server refuses a client's certificate by an alert, after the handshake is complete here. The
  // texts of other codes may have the name of the host.
  const bool connected = code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR;
  answer.refused =
      is_of_certificate(code) || (connected && answer.fault.find("alert") != std::string::npos);
  return answer;
}

}  // namespace remora::volume
