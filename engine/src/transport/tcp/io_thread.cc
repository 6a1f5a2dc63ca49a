#include "transport/tcp/io_thread.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/epoll.h>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "base/spin_pause.h"
#include "base/thread_clocks.h"
#include "transport/tcp/step_limits.h"

namespace remora::transport::tcp {

namespace {

/// The most idle sockets that the thread polls one by one while it spins; epoll watches more.
constexpr std::size_t kMaxAsked = 4;
/// The number of rounds over the active lanes between two checks of all lanes, and the number of
/// bytes that are served meanwhile.
constexpr unsigned kRoundsPerLook = 16;
constexpr std::uint64_t kBytesPerLook = kRoundsPerLook * kMaxStepBytes;
/// The time that a client has to receive the refusal that ends its lane, and to ask for the reason
/// on the control channel, which would end with the lane.
constexpr std::chrono::seconds kRefusalTimeout{1};
constexpr int kRefusedLookMs = 100;
/// A thread that has served nothing for so long destroys buffers that no lane uses.
constexpr int kTrimAfterMs = 1000;

}  // namespace

Result<std::shared_ptr<IoThread>> IoThread::start(ServedMetrics metrics,
                                                  std::chrono::nanoseconds spin) {
  auto io = std::make_shared<IoThread>(std::move(metrics), spin);
  if (auto status = io->service_.open(); !status) return status.error();
  auto thread = ServiceThread::start("remora-tcp", io->service_, [raw = io.get()] {
    const detail::ThreadClocks::Member counted{serving_clocks()};
    raw->run();
  });
  if (!thread) return thread.error();
  io->thread_ = std::move(*thread);
  return io;
}

IoThread::IoThread(ServedMetrics metrics, std::chrono::nanoseconds spin)
    : metrics_{std::move(metrics)}, spin_{spin} {}

Status IoThread::add(std::shared_ptr<ServerLane> lane) {
  ServerLane* const raw = lane.get();
  const remora::detail::MutexLock lock{mutex_};
  lanes_.emplace(raw, std::move(lane));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = raw}};
  if (::epoll_ctl(service_.epoll(), EPOLL_CTL_ADD, raw->fd(), &event) == 0) return {};
  const Error error = Error{Code::kSystem, "epoll_ctl"}.with_errno(errno);
  lanes_.erase(raw);
  return error;
}

void IoThread::run() noexcept {
  unsigned round = 0;
  while (!service_.stop_requested()) {
    Clock::time_point now = Clock::now();
    if (active_.empty()) {
      const bool spin = now - moved_at_ < spin_;
      if (!spin) report();
      const int timeout_ms = spin ? 0 : sleep_ms();
      if (!await_events(timeout_ms) && timeout_ms > 0) buffers_.trim();
      now = Clock::now();  // the thread may have slept
    } else if (++round % kRoundsPerLook == 0 || since_look_bytes_ >= kBytesPerLook) {
      report();
      await_events(0);
    }
    serve_active(now);
    // Until then polling the sockets is pause enough.
    const Clock::duration waited = now - moved_at_;
    if (waited >= detail::kSpinAlone && waited < spin_) std::this_thread::yield();
    if (!refused_.empty()) end_refused(now);
  }
}

/// The longest sleep; -1: until there is an event.
int IoThread::sleep_ms() const noexcept {
  if (!refused_.empty()) return kRefusedLookMs;
  return buffers_.has_spare() ? kTrimAfterMs : -1;
}

/// Adds to the active lanes those that have events. False: there were none.
bool IoThread::await_events(int timeout_ms) noexcept {
  since_look_bytes_ = 0;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(service_.epoll(), events.data(), events.size(), timeout_ms);
  const Clock::time_point now = Clock::now();
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    auto* const lane = static_cast<ServerLane*>(event.data.ptr);
    if (lane == nullptr) {
      service_.clear_wake();
      unpark(now);
      continue;
    }
    // The client disconnected while the lane waited for room for its notices.
    if ((event.events & EPOLLHUP) != 0) lane->hung_up = true;
    // A lane that waited for room to send looks for requests again.
    if ((event.events & EPOLLOUT) != 0) watch(*lane, EPOLLIN);
    activate(*lane, now);
  }
  return count > 0;
}

void IoThread::activate(ServerLane& lane, Clock::time_point now) {
  if (!std::exchange(lane.active, true)) active_.push_back({&lane, now});
}

/// Parks the lanes again for which there is still no room.
void IoThread::unpark(Clock::time_point now) noexcept {
  for (ServerLane* const lane : std::exchange(parked_, {})) {
    watch(*lane, EPOLLIN);
    activate(*lane, now);
  }
}

void IoThread::serve_active(Clock::time_point now) noexcept {
  for (std::size_t i = 0; i < active_.size();) {
    ServerLane* const lane = active_[i].lane;
    const Stays stays = serve_one(active_[i], now);
    if (stays == Stays::kYes) {
      ++i;
      continue;
    }
    REMORA_ASSERT(lane->active, "a lane in the list of active lanes is marked so");
    active_[i] = active_.back();
    active_.pop_back();
    lane->active = false;
    if (stays != Stays::kEnded) continue;
    if (lane->refused() && !lane->aborted())
      keep_session(*lane);
    else
      end_lane(*lane);
  }
}

IoThread::Stays IoThread::serve_one(Active& active, Clock::time_point now) noexcept {
  ServerLane& lane = *active.lane;
  const bool was_refused = lane.refused();
  const bool is_only = active_.size() == 1;
  Progress progress = Progress::kMore;
  const bool served = lane.session().serve([&](const GrantTable& grants) {
    ServedCounts now_served;
    progress = lane.step(grants, buffers_, now_served, is_only ? kMaxLoneStepBytes : kMaxStepBytes);
    served_ += now_served;
    since_look_bytes_ += now_served.bytes[0] + now_served.bytes[1];
    return now_served;
  });
  if (!served) {
    std::this_thread::yield();
    return Stays::kYes;
  }
  if (lane.refused() && !was_refused) refused_.push_back({&lane, now + kRefusalTimeout});
  if (lane.moved()) active.served = moved_at_ = now;
  switch (progress) {
    case Progress::kMore: return Stays::kYes;
    case Progress::kIdle:
      return now - active.served < spin_ && active_.size() <= kMaxAsked ? Stays::kYes : Stays::kNo;
    case Progress::kBlocked:
      // While the thread polls anyway, it tries to send again: epoll would cost three system calls
      // for each time that the socket is full, and tells of room only when much of it is free.
      if (is_only && now - active.served < spin_) return Stays::kYes;
      watch(lane, EPOLLOUT);
      return Stays::kNo;
    case Progress::kParked:
      watch(lane, 0);
      parked_.push_back(&lane);
      return Stays::kNo;
    case Progress::kDead: return Stays::kEnded;
  }
  return Stays::kNo;
}

void IoThread::watch(ServerLane& lane, std::uint32_t events) noexcept {
  epoll_event event{.events = events, .data = {.ptr = &lane}};
  if (::epoll_ctl(service_.epoll(), EPOLL_CTL_MOD, lane.fd(), &event) != 0)
    log::warn({"connection.not_watched", "errno"}, "tcp: epoll_ctl: errno {}", errno);
}

/// Removes a lane that has ended, and tells its session.
void IoThread::end_lane(ServerLane& lane) noexcept {
  report();
  std::erase_if(refused_, [&](const Refused& refused) { return refused.lane == &lane; });
  std::erase(parked_, &lane);
  ::epoll_ctl(service_.epoll(), EPOLL_CTL_DEL, lane.fd(), nullptr);
  std::shared_ptr<ServerLane> last;
  std::size_t left = 0;
  {
    const remora::detail::MutexLock lock{mutex_};
    const auto found = lanes_.find(&lane);
    if (found == lanes_.end()) return;
    last = std::move(found->second);
    lanes_.erase(found);
    left = lanes_.size();
  }
  // Two for each lane, also where clients never leave the thread idle.
  buffers_.trim(std::max(LaneBuffers::kKept, 2 * left));
  last->session().lane_ended(*last);
}

/// The client has disconnected from a lane that was refused a request. end_refused() ends the lane
/// later, so that its session still exists when the client asks for the reason. The lane counts as
/// a lane until then.
void IoThread::keep_session(ServerLane& lane) noexcept {
  ::epoll_ctl(service_.epoll(), EPOLL_CTL_DEL, lane.fd(), nullptr);
}

/// Closes the lanes, and ends the sessions, of clients that do not disconnect after a refusal. Does
/// not wait if the session has ended.
void IoThread::end_refused(Clock::time_point now) noexcept {
  for (std::size_t i = 0; i < refused_.size();) {
    ServerLane& lane = *refused_[i].lane;
    if (now < refused_[i].until && !lane.aborted()) {
      ++i;
      continue;
    }
    std::erase_if(active_, [&](const Active& active) { return active.lane == &lane; });
    end_lane(lane);  // removes it from refused_
  }
}

/// Counts the served requests in the metrics.
void IoThread::report() noexcept {
  const metrics::Recorder recorder = metrics_.registry->recorder();
  for (std::size_t op = 0; op < served_.operations.size(); ++op)
    if (served_.operations[op] != 0) recorder.add(metrics_.operations[op], served_.operations[op]);
  for (std::size_t op = 0; op < served_.bytes.size(); ++op)
    if (served_.bytes[op] != 0) recorder.add(metrics_.bytes[op], served_.bytes[op]);
  if (served_.refused != 0) recorder.add(metrics_.refused, served_.refused);
  if (served_.corrupt != 0) recorder.add(metrics_.corrupt, served_.corrupt);
  served_ = {};
}

}  // namespace remora::transport::tcp
