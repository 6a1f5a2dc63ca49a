/// The service manager gets pings for as long as the server makes progress, and only where it has
/// asked this process for them.

#include "server/watchdog.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/eventually.h"

namespace remora::apps {
namespace {

class WatchdogTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/notify";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ASSERT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
    ::unsetenv("WATCHDOG_PID");
    ::setenv("WATCHDOG_USEC", "30000", 1);
  }
  void TearDown() override {
    for (const char* const variable : {"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"})
      ::unsetenv(variable);
    ::close(socket_);
    ::unlink(path_.c_str());
    ::rmdir(folder_.c_str());
  }
  /// Pings that have come since the last call.
  int take_pings() const {
    int count = 0;
    std::array<char, 64> text{};
    for (ssize_t got = 0; (got = ::recv(socket_, text.data(), text.size(), 0)) > 0; ++count)
      EXPECT_EQ((std::string_view{text.data(), static_cast<std::size_t>(got)}), "WATCHDOG=1");
    return count;
  }
  [[nodiscard]] bool asked_more_often(int times) const {
    return test::eventually([this, until = asked_ + times] { return asked_ >= until; });
  }
  /// Answers as alive_ says, and counts how often it is asked.
  std::unique_ptr<Watchdog> start() {
    return Watchdog::start([this]() -> Status {
             ++asked_;
             if (alive_) return {};
             return Error{Code::kTimedOut, "progress of the server"};
           })
        .value();
  }

  std::atomic<bool> alive_{true};
  std::atomic<int> asked_{0};

 private:
  std::string folder_ = "/tmp/remora-watchdog.XXXXXX";
  std::string path_;
  int socket_ = -1;
};

TEST_F(WatchdogTest, PingsWhileTheServerMakesProgress) {
  const auto watchdog = start();
  int pings = 0;
  EXPECT_TRUE(test::eventually([&] { return (pings += take_pings()) >= 5; })) << pings;
}

TEST_F(WatchdogTest, EndsWithoutProgressAndBeginsAgainWithIt) {
  const auto watchdog = start();
  ASSERT_TRUE(test::eventually([&] { return take_pings() != 0; }));
  alive_ = false;
  ASSERT_TRUE(asked_more_often(2));
  (void)take_pings();  // one may have been on its way
  ASSERT_TRUE(asked_more_often(5));
  EXPECT_EQ(take_pings(), 0) << "a service manager would take it for alive";
  alive_ = true;
  EXPECT_TRUE(test::eventually([&] { return take_pings() != 0; }));
}

TEST_F(WatchdogTest, SendsNothingToAServiceManagerThatDoesNotAsk) {
  ::unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(watchdog_period().count(), 0);
  (void)start();  // ends with the expression
  EXPECT_EQ(asked_, 0);
  EXPECT_EQ(take_pings(), 0);
}

TEST_F(WatchdogTest, SendsNothingThatAnotherProcessIsAskedFor) {
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(watchdog_period().count(), 0);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  EXPECT_EQ(watchdog_period(), std::chrono::milliseconds{30});
  ::setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_EQ(watchdog_period().count(), 0) << "no number";
}

}  // namespace
}  // namespace remora::apps
