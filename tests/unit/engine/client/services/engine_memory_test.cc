/// The keys of an engine's memory on devices that go, return and are replaced.

#include "client/services/engine_memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <utility>

#include "support/assert_ok.h"

namespace remora::detail {
namespace {

/// Registers memory again with another key when the test says so.
class ReturningDomain final : public transport::MemoryDomain {
 public:
  Result<std::unique_ptr<transport::Registration>> register_bytes(std::span<std::byte>) override {
    class Keyed final : public transport::Registration {
     public:
      explicit Keyed(const std::uint32_t& key) noexcept : key_{key} {}
      [[nodiscard]] std::uint32_t local_key() const noexcept override { return key_; }
      [[nodiscard]] bool lost() const noexcept override { return key_ == 0; }

     private:
      const std::uint32_t& key_;
    };
    if (key_ == 0) return Error{Code::kConnectionLost, "register"};
    return std::unique_ptr<transport::Registration>{std::make_unique<Keyed>(key_)};
  }
  void go() noexcept { key_ = 0; }
  void come_back() noexcept { key_ = 2; }
  [[nodiscard]] std::uint32_t key() const noexcept { return key_; }

 private:
  std::uint32_t key_ = 1;
};

class EngineMemoryTest : public testing::Test {
 protected:
  static EngineOptions small() {
    EngineOptions options;
    options.bounce_slot_count = 2;
    options.bounce_slot_bytes = 4096;
    return options;
  }
  std::array<std::byte, 64> bytes_{};
  std::unique_ptr<EventLoop> loop_ = EventLoop::start("test").value();
  const EngineOptions options_ = small();
  const Placement placement_{};
  std::shared_ptr<ReturningDomain> domain_ = std::make_shared<ReturningDomain>();
  EngineMemory memory_{options_, placement_};
};

/// The session before has ended while its device was away, so that none has resumed.
TEST_F(EngineMemoryTest, NextSessionOverADeviceThatHasReturnedHasTheNewKeys) {
  const std::size_t index = memory_.intern(domain_, *loop_).value();
  const auto slots = memory_.allocate_slots(2, 64).value();
  const auto mine = memory_.register_memory(bytes_).value();
  const auto bounce = memory_.bounce_store(*domain_, index).value();
  const auto zeroes = memory_.zeroes(*domain_, index).value();
  EXPECT_EQ(slots->memory()->key(index), domain_->key());

  domain_->come_back();
  EXPECT_EQ(memory_.intern(domain_, *loop_).value(), index);
  EXPECT_EQ(slots->memory()->key(index), domain_->key());
  EXPECT_EQ(mine->key(index), domain_->key());
  EXPECT_EQ(bounce->memory()->key(index), domain_->key());
  EXPECT_EQ(zeroes->key(index), domain_->key());
}

/// Another session waits with its operations for the device, while this one begins in vain.
TEST_F(EngineMemoryTest, MemoryOfADeviceThatIsAwayHasItsKeyAgainAsSoonAsTheDeviceReturns) {
  const std::size_t index = memory_.intern(domain_, *loop_).value();
  const auto slots = memory_.allocate_slots(2, 64).value();
  domain_->go();
  ASSERT_OK(memory_.intern(domain_, *loop_));
  domain_->come_back();
  memory_.renew_keys(*domain_);
  EXPECT_TRUE(slots->memory()->registered(index));
  EXPECT_EQ(slots->memory()->key(index), domain_->key());
}

/// As when a device goes and returns again and again, and sessions move to another one meanwhile.
TEST_F(EngineMemoryTest, DomainThatNoSessionUsesGivesItsIndexToAnother) {
  const auto slots = memory_.allocate_slots(2, 64).value();
  std::array<std::shared_ptr<ReturningDomain>, kMaxMemoryDomains> used;
  for (std::size_t i = 0; i < used.size(); ++i) {
    used[i] = std::make_shared<ReturningDomain>();
    ASSERT_EQ(memory_.intern(used[i], *loop_).value(), i);
  }
  domain_->come_back();  // its key differs from the others'
  EXPECT_CODE(memory_.intern(domain_, *loop_), kLimitExceeded);

  constexpr std::size_t kLeft = 3;
  const auto zeroes = memory_.zeroes(*used[kLeft], kLeft).value();
  const std::weak_ptr<ReturningDomain> left = std::exchange(used[kLeft], nullptr);
  EXPECT_EQ(memory_.intern(domain_, *loop_).value(), kLeft);
  EXPECT_TRUE(left.expired());
  EXPECT_EQ(slots->memory()->key(kLeft), domain_->key());
  EXPECT_EQ(zeroes->key(kLeft), domain_->key());
  EXPECT_EQ(slots->memory()->key(kLeft + 1), used[kLeft + 1]->key());
}

}  // namespace
}  // namespace remora::detail
