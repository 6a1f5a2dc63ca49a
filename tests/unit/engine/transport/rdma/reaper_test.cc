/// A slow device destroys objects, while no caller waits for it.

#include "transport/rdma/reaper.h"

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "support/eventually.h"

namespace remora::transport {
namespace {

class ReaperTest : public ::testing::Test {
 protected:
  /// Given back only while the device answers.
  class Slow {
   public:
    explicit Slow(ReaperTest& test) noexcept : test_{&test} {}
    Slow(Slow&& other) noexcept : test_{std::exchange(other.test_, nullptr)} {}
    Slow& operator=(Slow&&) = delete;
    ~Slow() {
      if (test_ == nullptr) return;
      ++test_->begun_;
      const std::lock_guard answers{test_->device_};
      const std::lock_guard lock{test_->mutex_};
      test_->gone_by_.push_back(std::this_thread::get_id());
    }

   private:
    ReaperTest* test_;
  };

  [[nodiscard]] std::size_t gone() {
    const std::lock_guard lock{mutex_};
    return gone_by_.size();
  }

  std::mutex device_;  // held: it hangs
  std::atomic<int> begun_{0};
  std::mutex mutex_;
  std::vector<std::thread::id> gone_by_;
};

TEST_F(ReaperTest, TimeOfDestroyingRunsWhileADeviceHangs) {
  Reaper reaper;
  EXPECT_EQ(reaper.destroying().count(), 0);
  {
    const std::unique_lock hangs{device_};
    reaper.take(Slow{*this});
    ASSERT_TRUE(test::eventually([&] { return reaper.destroying().count() > 0; }));
    const auto before = reaper.destroying();
    EXPECT_TRUE(test::eventually([&] { return reaper.destroying() > before; }));
  }
  ASSERT_TRUE(test::eventually([&] {
    const auto now = reaper.destroying();
    return gone() == 1 && reaper.destroying() == now;
  }));
}

TEST_F(ReaperTest, TheCallerDoesNotWait) {
  Reaper reaper;
  std::unique_lock hangs{device_};
  reaper.take(Slow{*this});
  reaper.take(Slow{*this});
  ASSERT_TRUE(test::eventually([this] { return begun_ == 1; }));
  EXPECT_EQ(gone(), 0U);
  hangs.unlock();
  ASSERT_TRUE(test::eventually([this] { return gone() == 2; }));
  for (const auto& by : gone_by_) EXPECT_NE(by, std::this_thread::get_id());
}

TEST_F(ReaperTest, EndsWhenAllIsGivenBack) {
  std::optional<Reaper> reaper;
  reaper.emplace();
  std::unique_lock hangs{device_};
  for (int i = 0; i < 3; ++i) reaper->take(Slow{*this});
  ASSERT_TRUE(test::eventually([this] { return begun_ == 1; }));
  hangs.unlock();
  reaper.reset();
  EXPECT_EQ(gone(), 3U);
}

/// A worker that serves all clients waits for the destruction of some lanes.
TEST_F(ReaperTest, NothingWaitsBehindWhatIsNotAwaited) {
  Reaper reaper;
  std::unique_lock hangs{device_};
  reaper.take_unawaited(Slow{*this});
  ASSERT_TRUE(test::eventually([this] { return begun_ == 1; }));
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> awaited = held;
  reaper.take(std::move(held));
  EXPECT_TRUE(test::eventually([&] { return awaited.expired(); }));
  EXPECT_EQ(gone(), 0U);
  hangs.unlock();
  EXPECT_TRUE(test::eventually([this] { return gone() == 1; }));
}

TEST_F(ReaperTest, BeyondItsRoomTheBringerGivesItBack) {
  Reaper reaper;
  std::unique_lock hangs{device_};
  reaper.take(Slow{*this});
  ASSERT_TRUE(test::eventually([this] { return begun_ == 1; })) << "it is at work on that";
  for (std::size_t i = 0; i < Reaper::kMaxWaiting; ++i) reaper.take(Slow{*this});
  EXPECT_EQ(begun_, 1);
  std::thread late{[&reaper, this] { reaper.take(Slow{*this}); }};
  EXPECT_TRUE(test::eventually([this] { return begun_ == 2; })) << "on the caller's thread";
  hangs.unlock();
  late.join();
  EXPECT_TRUE(test::eventually([this] { return gone() == Reaper::kMaxWaiting + 2; }));
}

}  // namespace
}  // namespace remora::transport
