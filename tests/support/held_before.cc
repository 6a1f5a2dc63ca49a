#include "support/held_before.h"

#include <chrono>
#include <set>

#include "support/eventually.h"

namespace remora::test {

/// A server notices by itself that its clients have gone; in an emulator that takes its time.
constexpr std::chrono::seconds kNoticedWithin{60};

HeldBefore::HeldBefore(const std::string& name, const std::function<void()>& warm_up) {
  static std::set<std::string> warm;
  if (warm.insert(name).second) warm_up();
  baseline_ = Resources::settled();
}

void HeldBefore::expect_again(std::optional<Server>& server) const {
  if (server) {
    // A session that has ended is none any more before its grants have been taken back.
    EXPECT_TRUE(eventually([&] { return server->status().sessions == 0; }, kNoticedWithin))
        << server->status().sessions << " sessions are left";
    EXPECT_TRUE(eventually([&] { return server->status().grants == 0; }, kNoticedWithin))
        << server->status().grants << " grants are left";
    server->stop();
    server.reset();
  }
  EXPECT_TRUE(back_at(*baseline_)) << "I8: this process";
}

}  // namespace remora::test
