#include "server/session_notices.h"

#include <array>
#include <utility>

#include "server/server_core.h"

namespace remora::detail {

SessionNotices::SessionNotices(ServerCore& server, std::uint64_t session_id,
                               SessionConnection& connection, const GrantNames& names)
    : server_{server},
      connection_{connection},
      names_{names},
      credits_{std::make_shared<NotificationCredits>(server, session_id)} {}

Status SessionNotices::deliver(const transport::Notice& notice) {
  auto region = names_.region_of(notice);
  if (!region) {
    credits_->notice_handled();
    return Error{Code::kProtocol, "notice"}.with_subject(connection_.endpoint().peer());
  }
  server_.notifier().deliver({.region = std::move(*region),
                              .offset = ByteOffset{notice.offset_bytes},
                              .length_bytes = notice.length_bytes,
                              .tag = notice.tag},
                             credits_);
  return {};
}

void SessionNotices::deliver_rest() noexcept {
  const MutexLock lock{rest_mutex_};
  credits_->end();
  std::array<transport::Notice, 32> found;
  for (std::size_t rounds = 0; rounds < 4 * transport::kMaxNotices / found.size(); ++rounds) {
    const std::size_t count = connection_.endpoint().take_notices(found);
    if (count == 0) return;
    for (std::size_t i = 0; i < count; ++i) {
      credits_->add();
      if (!deliver(found[i])) return;
    }
  }
}

}  // namespace remora::detail
