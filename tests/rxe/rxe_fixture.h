#pragma once

/// What the suites on a real device share: the device, and the baseline it must return to.

#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/verbs/verbs.h>

#include "support/assert_ok.h"

namespace remora::test {

/// Objects of the device by kind, of all processes: what `rdma resource show` prints, asked for
/// over netlink, since starting a program costs a second in an emulated guest. Empty where it
/// fails.
std::map<std::string, std::int64_t> device_resources(std::string_view device);

/// The device under test: REMORA_VM_DEVICE, or the first one. Skips where there is none, or fails
/// when REMORA_REQUIRE_DEVICE=1. Checks after each test that the device is back at its baseline,
/// and that no destructor failed.
class RxeTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  /// The device's own address, as its GID tells it.
  [[nodiscard]] verbs::Address address(std::uint16_t port = 0) const;

  std::string device_name_;

 private:
  std::map<std::string, std::int64_t> baseline_;
  std::uint64_t teardown_failures_ = 0;
};

/// A queue pair with what it needs, on one device.
struct Rig {
  verbs::Device device;
  verbs::ProtectionDomain domain;
  verbs::CompletionQueue queue;  // for sends and receives, with a channel of its own
  std::vector<std::byte> bytes;
  std::optional<verbs::MemoryRegion> memory;

  static constexpr verbs::Access kAllRights =
      verbs::Access::kLocalWrite | verbs::Access::kRemoteWrite | verbs::Access::kRemoteRead |
      verbs::Access::kRemoteAtomic;

  static Result<Rig> create(verbs::Device device, std::size_t bytes = std::size_t{64} * 1024);
  [[nodiscard]] verbs::QueuePairBuilder<verbs::Rc> builder() const;
  [[nodiscard]] std::byte* at(std::size_t offset) { return bytes.data() + offset; }
  std::uint64_t& word(std::size_t offset) {
    return *reinterpret_cast<std::uint64_t*>(bytes.data() + offset);
  }
  void fill(std::size_t offset, std::size_t length, unsigned seed);

  /// Exactly `count` completions, or the test fails; in the order of the queue.
  std::vector<verbs::Completion> complete(std::size_t count);
  /// Nothing more completes within `wait`.
  [[nodiscard]] bool quiet(std::chrono::milliseconds wait = std::chrono::milliseconds{50});
};

/// Ten seconds from now: what the emulation may take for anything.
verbs::Deadline soon();

}  // namespace remora::test
