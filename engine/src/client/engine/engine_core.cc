#include "client/engine/engine_core.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include <remora/engine/engine.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/owned.h>

#include "base/closed.h"
#include "base/log.h"
#include "client/datapath/arena.h"
#include "client/datapath/memory_releaser.h"
#include "client/engine/control_calls.h"
#include "client/queue/poller.h"
#include "client/session/session_core.h"
#include "transport/connect.h"
#include "transport/fault/core.h"

namespace remora::detail {

namespace {

/// How often sessions are looked at: a fraction of the shortest lease.
constexpr int kTicksOfALease = 10;
constexpr std::chrono::milliseconds kTickPeriodLeast{10};
constexpr std::chrono::milliseconds kMaxTickPeriod{1000};

}  // namespace

EngineCore::EngineCore(EngineOptions options, Placement placement)
    : options_{std::move(options)},
      placement_{std::move(placement)},
      releaser_{std::make_shared<MemoryReleaser>()} {
  constexpr std::uint32_t kMaxCopyThreads = 4;
  const std::uint32_t processors = std::max(1U, std::thread::hardware_concurrency());
  parallel_copy_ = std::make_shared<ParallelCopy>(
      options_.copy_threads != 0 ? options_.copy_threads : std::min(processors, kMaxCopyThreads),
      placement_);
  pollers_ = std::make_unique<Pollers>();
  control_calls_ = std::make_shared<ControlCalls>(options_.control_threads, placement_);
}

EngineCore::~EngineCore() {
  control_calls_->stop();
  releaser_->close();
}

Result<std::shared_ptr<EngineCore>> EngineCore::create(EngineOptions options) {
  constexpr std::uint32_t kCopyThreadsMax = 256;
  constexpr std::size_t kClientNameBytesMax = 64;
  constexpr std::uint32_t kLaneDepthMax = 16384;
  const auto wrong = [](std::string_view what) {
    return Error{Code::kInvalidArgument, "Engine::open"}.with_subject(what);
  };
  if (options.client_name.size() > kClientNameBytesMax) return wrong("client_name is too long");
  if (options.key && !config::is_client_name(options.client_name))
    return wrong("client_name of a key: 1 to 64 of A-Z a-z 0-9 . _ -");
  if (options.lane_depth == 0 || options.lane_depth > kLaneDepthMax)
    return wrong("lane_depth").with_limit(options.lane_depth, kLaneDepthMax);
  if (options.lanes == 0 || options.lanes > kLanesMax)
    return wrong("lanes").with_limit(options.lanes, kLanesMax);
  if (options.copy_threads > kCopyThreadsMax)
    return wrong("copy_threads").with_limit(options.copy_threads, kCopyThreadsMax);
  if (options.pollers > kPollersMax)
    return wrong("pollers").with_limit(options.pollers, kPollersMax);
  if (options.control_threads > kControlThreadsMax)
    return wrong("control_threads").with_limit(options.control_threads, kControlThreadsMax);
  if (options.arena_threads > kArenaThreadsMax)
    return wrong("arena_threads").with_limit(options.arena_threads, kArenaThreadsMax);
  if (options.bounce_slot_count == 0 || options.bounce_slot_bytes < 64)
    return wrong("bounce slots: at least one, of at least 64 bytes");
  if (options.operation_deadline <= options.operation_deadline.zero() ||
      options.control_deadline <= options.control_deadline.zero())
    return wrong("deadlines must be positive");
  if (options.faults != nullptr && options.faults->foreign())
    return closed_handle("EngineOptions::faults", true);
  auto placement = Placement::create(options.placement, options.device);
  if (!placement) return placement.error();
  if (options.registry == nullptr) {
    auto registry = metrics::Registry::create();
    if (!registry) return registry.error();
    options.registry = std::move(*registry);
  }
  if (const Status counted = log::count_lost_lines(*options.registry); !counted)
    return counted.error();
  return std::make_shared<EngineCore>(std::move(options), std::move(*placement));
}

Result<EventLoop*> EngineCore::control_loop() {
  const MutexLock lock{mutex_};
  if (control_loop_ == nullptr) {
    auto loop = EventLoop::start("remora-client",
                                 [placement = placement_] { (void)placement.bind_thread(); });
    if (!loop) return loop.error();
    control_loop_ = std::move(*loop);
  }
  return control_loop_.get();
}

std::chrono::nanoseconds EngineCore::goodbye_time() const noexcept {
  constexpr std::chrono::milliseconds kTime{300};
  constexpr std::chrono::seconds kRemembered{5};
  const Clock::time_point unheard{Clock::duration{goodbye_unheard_at_.load()}};
  return Clock::now() - unheard < kRemembered ? kTime / 10 : kTime;
}
void EngineCore::goodbye_unheard() noexcept {
  goodbye_unheard_at_.store(Clock::now().time_since_epoch().count());
}

std::optional<EventLoop::Parting> EngineCore::part() const noexcept {
  const MutexLock lock{mutex_};
  if (control_loop_ == nullptr || pollers_->is_one_of_them()) return std::nullopt;
  return std::optional<EventLoop::Parting>{std::in_place, *control_loop_};
}

Result<Poller*> EngineCore::poller() {
  const MutexLock lock{mutex_};
  return pollers_->pick(options_.pollers, options_.spin, placement_, *options_.registry);
}

bool EngineCore::on_poller() const noexcept { return pollers_->is_one_of_them(); }

Result<std::shared_ptr<JobThreads>> EngineCore::arena() {
  const MutexLock lock{mutex_};
  if (arena_ == nullptr) {
    const std::uint32_t threads = options_.arena_threads != 0
                                      ? options_.arena_threads
                                      : std::max(2U, std::thread::hardware_concurrency()) - 1;
    auto made = JobThreads::start(threads, placement_);
    if (!made) return made.error();
    arena_ = std::move(*made);
  }
  return arena_;
}

EngineCore::Turn::Turn(EngineCore& engine, std::string key, Deadline deadline)
    : engine_{engine}, key_{std::move(key)} {
  MutexLock lock{engine_.mutex_};
  mine_ = engine_.turn_over_.wait_until(lock, deadline, [this] {
    engine_.mutex_.assert_held();
    return !engine_.connecting_.contains(key_);
  });
  if (mine_) engine_.connecting_.insert(key_);
}

EngineCore::Turn::~Turn() {
  if (!mine_) return;
  const MutexLock lock{engine_.mutex_};
  engine_.connecting_.erase(key_);
  engine_.turn_over_.notify_all();
}

Result<std::shared_ptr<SessionCore>> EngineCore::session(const Uri& uri, TransportKind kind,
                                                         bool hardware_only, Deadline deadline) {
  const bool payload_crc =
      kind == TransportKind::kTcp && (uri.payload_crc || options_.tcp_payload_crc);
  const std::string key = uri.host + "|" + std::to_string(uri.port) + "|" +
                          std::string{to_string(kind)} +
                          (kind == TransportKind::kRdma && hardware_only ? "|hardware" : "") +
                          (payload_crc ? "|crc" : "");
  const Turn turn{*this, key, deadline};
  if (!turn.mine())
    return Error{Code::kTimedOut, "connect"}
        .with_server(uri.server())
        .with_reason(Reason::kExpired);
  // Outlives the lock: the last reference to a session must not go while the engine is locked.
  std::shared_ptr<SessionCore> existing;
  {
    const MutexLock lock{mutex_};
    existing = sessions_[key].lock();
  }
  if (existing != nullptr && existing->connected()) return existing;
  const transport::ConnectOptions options{.device = options_.device,
                                          .hardware_only = hardware_only,
                                          .payload_crc = payload_crc,
                                          .core_dump = options_.core_dump};
  Dial dial{.server = uri.server(), .connect = [uri, kind, options](Deadline until) {
              return transport::connect(kind, uri, options, until);
            }};
  if (options_.faults != nullptr)
    dial.connect = transport::with_faults(options_.faults, kind, std::move(dial.connect));
  auto session = SessionCore::start(shared_from_this(), std::move(dial), deadline);
  if (!session) return session.error().with_server(uri.server());
  const MutexLock lock{mutex_};
  sessions_[key] = *session;
  return session;
}

void EngineCore::keep_alive(const std::shared_ptr<SessionCore>& session,
                            std::chrono::milliseconds lease) {
  const MutexLock lock{mutex_};
  std::erase_if(leased_, [](const auto& weak) { return weak.expired(); });
  leased_.push_back(session);
  const auto period = std::clamp(lease / kTicksOfALease, kTickPeriodLeast, kMaxTickPeriod);
  if (tick_period_ != tick_period_.zero() && tick_period_ <= period) return;
  tick_period_ = period;
  control_loop_->every(period, [weak = weak_from_this()] {
    if (const auto alive = weak.lock()) alive->tick();
  });
}

/// Control thread.
void EngineCore::tick() noexcept {
  // Outlive the lock: the last reference to a session must not go while the engine is locked.
  std::vector<std::shared_ptr<SessionCore>> sessions;
  {
    const MutexLock lock{mutex_};
    sessions.reserve(leased_.size());
    for (const auto& weak : leased_)
      if (auto alive = weak.lock()) sessions.push_back(std::move(alive));
  }
  for (const auto& session : sessions) session->tick(Clock::now());
}

Result<std::size_t> EngineCore::intern(const std::shared_ptr<transport::MemoryDomain>& domain) {
  std::vector<std::shared_ptr<LocalMemory>> known;
  std::size_t index = 0;
  auto loop = control_loop();
  if (!loop) return loop.error();
  if (const Status watched = releaser_->watch(**loop); !watched) return watched.error();
  {
    const MutexLock lock{mutex_};
    while (index < domains_.size() && domains_[index] != nullptr && domains_[index] != domain)
      ++index;
    if (index == domains_.size())
      return Error{Code::kLimitExceeded, "devices of one engine"}.with_limit(index + 1, index);
    domains_[index] = domain;
    for (const auto& weak : memories_)
      if (auto memory = weak.lock()) known.push_back(std::move(memory));
  }
  // What cannot be registered now is tried again, and reported, by the operation that needs it.
  for (const auto& memory : known) (void)memory->register_with(*domain, index);
  return index;
}

Result<std::shared_ptr<LocalMemory>> EngineCore::zeroes(transport::MemoryDomain& domain,
                                                        std::size_t domain_index) {
  constexpr std::size_t kZeroesBytes = std::size_t{256} << 10U;
  const MutexLock lock{mutex_};
  if (zeroes_ == nullptr) {
    auto store = SlotStore::create(1, kZeroesBytes, slab_options());
    if (!store) return store.error();
    zeroes_ = std::move(*store);
  }
  if (auto status = zeroes_->memory()->register_with(domain, domain_index); !status)
    return status.error();
  // The memory is the store's: it lives as long as it has an owner.
  return std::shared_ptr<LocalMemory>{zeroes_, zeroes_->memory().get()};
}

std::shared_ptr<transport::RegistrationCache> EngineCore::registration_cache(
    std::size_t domain_index) {
  const MutexLock lock{mutex_};
  Cache& known = caches_[domain_index];
  if (!std::exchange(known.asked, true) && options_.mr_cache_bytes != 0)
    known.cache = domains_[domain_index]->make_cache(
        {.bytes_max = options_.mr_cache_bytes, .registry = options_.registry});
  return known.cache;
}

Result<std::shared_ptr<SlotStore>> EngineCore::bounce_store(transport::MemoryDomain& domain,
                                                            std::size_t domain_index) {
  const MutexLock lock{mutex_};
  if (bounce_ == nullptr) {
    auto store =
        SlotStore::create(options_.bounce_slot_count, options_.bounce_slot_bytes, slab_options());
    if (!store) return store.error();
    bounce_ = std::move(*store);
  }
  if (auto status = bounce_->memory()->register_with(domain, domain_index); !status)
    return status.error();
  return bounce_;
}

void EngineCore::remember(const std::shared_ptr<LocalMemory>& memory) {
  std::vector<std::pair<std::size_t, std::shared_ptr<transport::MemoryDomain>>> domains;
  {
    const MutexLock lock{mutex_};
    std::erase_if(memories_, [](const auto& weak) { return weak.expired(); });
    memories_.push_back(memory);
    for (std::size_t i = 0; i < domains_.size(); ++i)
      if (domains_[i] != nullptr) domains.emplace_back(i, domains_[i]);
  }
  for (const auto& [index, domain] : domains) (void)memory->register_with(*domain, index);
}

Result<std::shared_ptr<SlotStore>> EngineCore::allocate_slots(std::size_t count,
                                                              std::size_t slot_bytes) {
  auto store = SlotStore::create(count, slot_bytes, slab_options());
  if (!store) return store.error();
  remember((*store)->memory());
  return store;
}

Result<std::shared_ptr<LocalMemory>> EngineCore::register_memory(std::span<std::byte> bytes) {
  if (bytes.empty() || bytes.data() == nullptr)
    return Error{Code::kInvalidArgument, "register_memory"}.with_subject("empty span");
  // What is not used any more does not count against the limit of locked memory.
  releaser_->sweep();
  auto memory = releaser_->handle(bytes);
  remember(memory);
  return memory;
}

Result<Uri> region_uri(std::string_view text, Rights rights) {
  auto uri = Uri::parse(text);
  if (!uri) return uri;
  if (uri->region.empty())
    return Error{Code::kInvalidArgument, "URI without a region"}.with_subject(text);
  if (rights == Rights::kNone)
    return Error{Code::kInvalidArgument, "open without any right"}.with_subject(uri->region);
  return uri;
}

}  // namespace remora::detail
