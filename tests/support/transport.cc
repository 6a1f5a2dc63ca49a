#include "support/transport.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <system_error>

#include <remora/sanitizers.h>

namespace remora::test {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string{} : std::string{value};
}

}  // namespace

std::vector<TransportKind> transports_under_test() {
  const std::string name = environment("REMORA_TEST_TRANSPORT");
  if (name.empty()) return {TransportKind::kShm, TransportKind::kTcp, TransportKind::kRdma};
  if (name == "shm") return {TransportKind::kShm};
  if (name == "tcp") return {TransportKind::kTcp};
  if (name == "rdma") return {TransportKind::kRdma};
  std::fprintf(stderr, "REMORA_TEST_TRANSPORT is '%s': use shm, tcp or rdma\n", name.c_str());
  std::exit(2);
}

config::RdmaProtection rdma_protection() {
  using config::RdmaProtection;
  const std::string word = environment("REMORA_TEST_PROTECTION");
  if (word.empty()) return RdmaProtection::kAuto;
  for (const RdmaProtection each : {RdmaProtection::kAuto, RdmaProtection::kRegistrations,
                                    RdmaProtection::kWindows, RdmaProtection::kWindowsUnchecked})
    if (word == config::to_string(each)) return each;
  std::fprintf(stderr,
               "REMORA_TEST_PROTECTION is '%s': use auto, registrations, windows or "
               "windows-unchecked\n",
               word.c_str());
  std::exit(2);
}

std::string why_unavailable(TransportKind transport) {
  if (transport != TransportKind::kRdma) return {};
  std::error_code ignored;
  if (!std::filesystem::exists("/sys/class/infiniband", ignored) ||
      std::filesystem::is_empty("/sys/class/infiniband", ignored))
    return "no RDMA device on this machine: run it by ci/vm/run.sh";
  if (environment("REMORA_VM_ADDRESS").empty())
    return "REMORA_VM_ADDRESS does not say the address of the RDMA device";
  return {};
}

bool is_left_out(TransportKind transport) {
  const std::string reason = why_unavailable(transport);
  if (reason.empty()) return false;
  // Both return from where they stand.
  [&reason] {
    if (environment("REMORA_REQUIRE_DEVICE") == "1") FAIL() << reason;
    GTEST_SKIP() << reason;
  }();
  return true;
}

std::string listen_address(TransportKind transport) {
  return transport == TransportKind::kRdma ? environment("REMORA_VM_ADDRESS") : "127.0.0.1";
}

std::optional<ServerAddress> external_server() {
  const std::string text = environment("REMORA_TEST_SERVER");
  if (text.empty()) return std::nullopt;
  const std::size_t colon = text.rfind(':');
  const unsigned long port =  // NOLINT(google-runtime-int): what strtoul gives
      colon == std::string::npos ? 0 : std::strtoul(text.c_str() + colon + 1, nullptr, 10);
  if (port == 0 || port > 65535) {
    std::fprintf(stderr, "REMORA_TEST_SERVER is '%s': use address:port\n", text.c_str());
    std::exit(2);
  }
  return ServerAddress{text.substr(0, colon), static_cast<std::uint16_t>(port)};
}

std::size_t scaled(std::size_t steps, TransportKind transport) {
  std::size_t divisor = transport == TransportKind::kRdma ? 10 : 1;
#if REMORA_THREAD_SANITIZER
  divisor = std::max<std::size_t>(divisor, 4);
#endif
  return std::max<std::size_t>(1, steps / divisor);
}

}  // namespace remora::test
