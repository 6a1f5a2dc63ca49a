#include "rxe_fixture.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace remora::test {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void report(const Error& error) noexcept {
  std::fprintf(stderr, "teardown: %s\n", error.message().c_str());
}

}  // namespace

void RxeTest::SetUp() {
  verbs::set_teardown_failure_handler(&report);
  const auto list = verbs::devices();
  const auto without = [](const std::string& why) {
    if (environment("REMORA_REQUIRE_DEVICE") == "1") {
      FAIL() << why;
    }
    GTEST_SKIP() << why;
  };
  if (!list) {
    without("no RDMA device: " + list.error().message());
    return;
  }
  device_name_ = environment("REMORA_VM_DEVICE");
  if (device_name_.empty()) device_name_ = std::string{(*list)[0].name()};
  if (const auto entry = list->find(device_name_); !entry) {
    without(entry.error().message());
    return;
  }
  // librdmacm opens the device once and keeps it, and from the first address that is bound a
  // protection domain of its own: not a leak of the test that happens to be first.
  ASSERT_OK(verbs::connection_manager_devices());
  ASSERT_OK(verbs::ConnectionListener::bind(address(0), 1));
  teardown_failures_ = verbs::teardown_failure_count();
  baseline_ = device_resources(device_name_);
  ASSERT_FALSE(baseline_.empty()) << "the kernel does not tell the device's objects";
}

void RxeTest::TearDown() {
  if (baseline_.empty()) return;
  EXPECT_EQ(verbs::teardown_failure_count(), teardown_failures_);
  // The kernel frees connection identifiers and dead processes' objects a little later.
  const auto give_up = verbs::deadline_in(std::chrono::seconds{10});
  auto now = device_resources(device_name_);
  while (now != baseline_ && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    now = device_resources(device_name_);
  }
  EXPECT_EQ(now, baseline_) << "objects are left on " << device_name_;
}

verbs::Address RxeTest::address(std::uint16_t port) const {
  const auto device = verbs::devices().value().find(device_name_).value().open().value();
  std::string text = device.choose_gid().value().taken().value().gid.to_string();
  if (text.starts_with("::ffff:")) text = text.substr(7);
  return verbs::Address::parse(text, port).value();
}

verbs::Deadline soon() { return verbs::deadline_in(std::chrono::seconds{10}); }

Result<Rig> Rig::create(verbs::Device device, std::size_t length) {
  Rig rig;
  rig.device = std::move(device);
  auto domain = rig.device.allocate_domain();
  if (!domain) return domain.error();
  rig.domain = std::move(*domain);
  auto queue = rig.device.create_completion_queue({.depth = 256, .events = true});
  if (!queue) return queue.error();
  rig.queue = std::move(*queue);
  rig.bytes.resize(length);
  auto memory = rig.domain.register_bytes(rig.bytes, kAllRights);
  if (!memory) return memory.error();
  rig.memory.emplace(std::move(*memory));
  return rig;
}

verbs::QueuePairBuilder<verbs::Rc> Rig::builder() const {
  verbs::QueuePairBuilder<verbs::Rc> builder{domain, queue, queue};
  builder.send_depth(64).receive_depth(16).send_sge(4).receive_sge(4).inline_bytes(64);
  builder.timeout(18).min_rnr_timer(12);
  return builder;
}

void Rig::fill(std::size_t offset, std::size_t length, unsigned seed) {
  for (std::size_t i = 0; i < length; ++i)
    bytes[offset + i] = static_cast<std::byte>((std::size_t{seed} * 131 + i * 7 + (i >> 8)) & 0xff);
}

std::vector<verbs::Completion> Rig::complete(std::size_t count) {
  std::vector<verbs::Completion> all;
  const auto deadline = soon();
  std::array<verbs::Completion, 16> storage;
  while (all.size() < count) {
    const auto some = queue.wait(
        std::span{storage}.first(std::min(storage.size(), count - all.size())), deadline);
    if (!some) {
      ADD_FAILURE() << "after " << all.size() << " of " << count
                    << " completions: " << some.error();
      break;
    }
    all.insert(all.end(), some->begin(), some->end());
  }
  all.resize(count);
  return all;
}

bool Rig::quiet(std::chrono::milliseconds wait) {
  std::array<verbs::Completion, 1> storage;
  const auto some = queue.wait(storage, verbs::deadline_in(wait));
  return !some && some.error().code() == Code::kTimedOut;
}

}  // namespace remora::test
