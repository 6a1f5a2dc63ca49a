#include "server/notification_credits.h"

#include <algorithm>

#include <remora/assert.h>

#include "server/server_core.h"

namespace remora::detail {

std::size_t NotificationCredits::reserve(std::size_t max) noexcept {
  std::size_t before = unhandled_.load();
  std::size_t reserved = 0;
  do {
    reserved = std::min(max, transport::kMaxNotices - std::min(before, transport::kMaxNotices));
    if (reserved == 0) return 0;
  } while (!unhandled_.compare_exchange_weak(before, before + reserved));
  return reserved;
}

bool NotificationCredits::stop_reading() noexcept {
  reading_stopped_.store(true);
  return unhandled_.load() >= transport::kMaxNotices;
}

void NotificationCredits::notice_handled() noexcept {
  const std::size_t before = unhandled_.fetch_sub(1);
  REMORA_ASSERT(before > 0, "each notice is handled once");
  // Reading starts again once half of the room is free, not after each notice.
  if (before - 1 <= transport::kMaxNotices / 2 && reading_stopped_.exchange(false))
    server_.control().read_notices_again(session_id_);
}

}  // namespace remora::detail
