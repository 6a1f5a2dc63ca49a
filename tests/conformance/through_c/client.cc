#include "through_c/client.h"

#include <utility>

#include "through_c/call.h"
#include "through_c/many.h"

namespace remora::through_c {

void Slot::release() noexcept {
  if (slots_ == nullptr) return;
  (void)remora_slots_return(slots_.get(), bytes_.data());
  slots_.reset();
}

Slot SlotPool::take() noexcept {
  auto* const data = static_cast<std::byte*>(remora_slots_take(slots_.get()));
  if (data == nullptr) return {};
  return {slots_, {data, slot_bytes_}};
}

namespace {

RegionInfo to_info(const remora_region_info& info) {
  return {.name = info.name,
          .size_bytes = info.size_bytes,
          .block_bytes = info.block_bytes,
          .rights = static_cast<Rights>(info.rights),
          .atomic_domain = info.atomic_domain,
          .shm = info.shm != 0,
          .epoch = info.epoch,
          .incarnation = info.incarnation,
          .memory_id = info.memory_id,
          .extent_count = info.extent_count,
          .open_count = info.open_count,
          .owner = info.owner,
          .access = {},
          .lifetime = static_cast<Lifetime>(info.lifetime),
          .ttl = std::chrono::milliseconds{info.ttl_ms}};
}

/// The description of a region, which `call` fills in.
template <typename Call>
Result<RegionInfo> ask_info(Call call) {
  remora_region_info info{};
  info.size = sizeof(info);
  const Status asked = carry_out([&](remora_error* error) { return call(&info, error); });
  if (!asked) return asked.error();
  return to_info(info);
}

}  // namespace

struct Region::State {
  explicit State(remora_region* made) : region{made} {
    info = ask_info([this](remora_region_info* to, remora_error* error) {
             return remora_region_info_of(region, to, error);
           }).value();
  }
  ~State() { remora_region_free(region); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  remora_region* region;
  RegionInfo info;
};

Region::Region(remora_region* region) : state_{std::make_shared<const State>(region)} {}

const remora_region* Region::handle() const noexcept { return state_->region; }
const RegionInfo& Region::info() const noexcept { return state_->info; }
std::uint64_t Region::size_bytes() const noexcept { return remora_region_size_bytes(handle()); }
Rights Region::rights() const noexcept {
  return static_cast<Rights>(remora_region_rights(handle()));
}
TransportKind Region::transport() const noexcept {
  return static_cast<TransportKind>(remora_region_transport(handle()));
}
std::string Region::transport_reason() const { return remora_region_transport_reason(handle()); }
bool Region::connected() const noexcept { return remora_region_connected(handle()) != 0; }

Status Region::settled(std::chrono::nanoseconds deadline) const {
  return carry_out(
      [&](remora_error* error) { return remora_region_settled(handle(), to_ns(deadline), error); });
}
Result<Region> Region::fence() const {
  return make<Region, remora_region>([this](remora_region** fenced, remora_error* error) {
    return remora_region_fence(handle(), fenced, error);
  });
}
Result<ReopenedRegion> Region::reopen() const {
  int same_contents = 0;
  auto made = make<Region, remora_region>([&](remora_region** again, remora_error* error) {
    return remora_region_reopen(handle(), again, &same_contents, error);
  });
  if (!made) return made.error();
  return ReopenedRegion{.region = std::move(*made), .same_contents = same_contents != 0};
}
Result<Queue> Region::queue(const QueueOptions& options) const {
  const remora_queue_options given{
      .size = sizeof(given), .depth = options.depth, .deadline_ns = to_ns(options.deadline)};
  remora_queue* made = nullptr;
  const Status done = carry_out(
      [&](remora_error* error) { return remora_queue_create(handle(), &given, &made, error); });
  if (!done) return done.error();
  return Queue{made, block_bytes()};
}

Status Region::read(ByteOffset from, Target into, std::chrono::nanoseconds deadline) const {
  const LocalBytes& local = into.local();
  return carry_out([&](remora_error* error) {
    return remora_region_read(handle(), from.bytes, local.data, local.length, local.memory,
                              to_ns(deadline), error);
  });
}
Status Region::read(Block from, Target into, std::chrono::nanoseconds deadline) const {
  return read(offset_of(from, block_bytes()), into, deadline);
}
Status Region::read(ByteOffset from, std::span<const Target> into,
                    std::chrono::nanoseconds deadline) const {
  const auto pieces = to_pieces(into);
  if (!pieces) return pieces.error();
  return carry_out([&](remora_error* error) {
    return remora_region_read_pieces(handle(), from.bytes, pieces->data(), pieces->size(),
                                     to_ns(deadline), error);
  });
}
Status Region::write(ByteOffset to, Source from, std::chrono::nanoseconds deadline) const {
  const LocalBytes& local = from.local();
  return carry_out([&](remora_error* error) {
    return remora_region_write(handle(), to.bytes, local.data, local.length, local.memory,
                               to_ns(deadline), error);
  });
}
Status Region::write(Block to, Source from, std::chrono::nanoseconds deadline) const {
  return write(offset_of(to, block_bytes()), from, deadline);
}
Status Region::write(ByteOffset to, std::span<const Source> from,
                     std::chrono::nanoseconds deadline) const {
  const auto pieces = to_pieces(from);
  if (!pieces) return pieces.error();
  return carry_out([&](remora_error* error) {
    return remora_region_write_pieces(handle(), to.bytes, pieces->data(), pieces->size(),
                                      to_ns(deadline), error);
  });
}
Status Region::write_notify(ByteOffset to, Source from, std::uint32_t notice,
                            std::chrono::nanoseconds deadline) const {
  const LocalBytes& local = from.local();
  return carry_out([&](remora_error* error) {
    return remora_region_write_notify(handle(), to.bytes, local.data, local.length, local.memory,
                                      notice, to_ns(deadline), error);
  });
}
Status Region::write_zeroes(ByteOffset at, std::uint64_t length,
                            std::chrono::nanoseconds deadline) const {
  return carry_out([&](remora_error* error) {
    return remora_region_write_zeroes(handle(), at.bytes, length, to_ns(deadline), error);
  });
}
Status Region::flush_visible(std::chrono::nanoseconds deadline) const {
  return carry_out([&](remora_error* error) {
    return remora_region_flush_visible(handle(), to_ns(deadline), error);
  });
}
Result<std::uint64_t> Region::compare_swap(ByteOffset at, std::uint64_t expected,
                                           std::uint64_t desired,
                                           std::chrono::nanoseconds deadline) const {
  std::uint64_t before = 0;
  const Status done = carry_out([&](remora_error* error) {
    return remora_region_compare_swap(handle(), at.bytes, expected, desired, &before,
                                      to_ns(deadline), error);
  });
  if (!done) return done.error();
  return before;
}
Result<std::uint64_t> Region::fetch_add(ByteOffset at, std::uint64_t delta,
                                        std::chrono::nanoseconds deadline) const {
  std::uint64_t before = 0;
  const Status done = carry_out([&](remora_error* error) {
    return remora_region_fetch_add(handle(), at.bytes, delta, &before, to_ns(deadline), error);
  });
  if (!done) return done.error();
  return before;
}

namespace {

/// A call with many pairs: `call` gets the array of outcomes, which become those of C++.
template <typename Call>
Status run_many(std::size_t count, const ManyOptions& options, Call call) {
  std::vector<remora_pair_outcome> each(options.each.empty() ? 0 : count, unwritten());
  const Status done = carry_out([&](remora_error* error) {
    return call(each.empty() ? nullptr : each.data(), to_ns(options.deadline), error);
  });
  give_outcomes(each, options.each);
  return done;
}

}  // namespace

Status Region::read_many(std::span<const ReadPair> pairs, const ManyOptions& options) const {
  const auto given = to_pairs(pairs);
  if (!given) return given.error();
  return run_many(pairs.size(), options,
                  [&](remora_pair_outcome* each, std::uint64_t deadline_ns, remora_error* error) {
                    return remora_region_read_many(handle(), given->data(), given->size(), each,
                                                   deadline_ns, error);
                  });
}
Status Region::write_many(std::span<const WritePair> pairs, const ManyOptions& options) const {
  const auto given = to_pairs(pairs);
  if (!given) return given.error();
  return run_many(pairs.size(), options,
                  [&](remora_pair_outcome* each, std::uint64_t deadline_ns, remora_error* error) {
                    return remora_region_write_many(handle(), given->data(), given->size(), each,
                                                    deadline_ns, error);
                  });
}
Status Region::fetch_add_many(std::span<FetchAddPair> pairs, const ManyOptions& options) const {
  auto given = to_pairs(pairs);
  const Status done =
      run_many(pairs.size(), options,
               [&](remora_pair_outcome* each, std::uint64_t deadline_ns, remora_error* error) {
                 return remora_region_fetch_add_many(handle(), given.data(), given.size(), each,
                                                     deadline_ns, error);
               });
  take_before(given, pairs);
  return done;
}
Status Region::compare_swap_many(std::span<CompareSwapPair> pairs,
                                 const ManyOptions& options) const {
  auto given = to_pairs(pairs);
  const Status done =
      run_many(pairs.size(), options,
               [&](remora_pair_outcome* each, std::uint64_t deadline_ns, remora_error* error) {
                 return remora_region_compare_swap_many(handle(), given.data(), given.size(), each,
                                                        deadline_ns, error);
               });
  take_before(given, pairs);
  return done;
}

struct Session::State {
  explicit State(remora_session* made) : session{made} {
    remora_server_info info{};
    info.size = sizeof(info);
    carry_out([&](remora_error* error) {
      return remora_session_server(session, &info, error);
    }).value();
    server.name = info.name;
    server.boot_id = info.boot_id;
    server.memory_id = info.memory_id;
    server.pool_bytes = info.pool_bytes;
    server.pool_free_bytes = info.pool_free_bytes;
    server.device = info.device;
    for (const TransportKind kind :
         {TransportKind::kRdma, TransportKind::kShm, TransportKind::kTcp})
      if ((info.transports >> static_cast<unsigned>(kind) & 1U) != 0)
        server.transports.push_back(kind);
  }
  ~State() { remora_session_free(session); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  remora_session* session;
  ServerInfo server;
};

Session::Session(remora_session* session) : state_{std::make_shared<const State>(session)} {}

const ServerInfo& Session::server() const noexcept { return state_->server; }
TransportKind Session::transport() const noexcept {
  return static_cast<TransportKind>(remora_session_transport(state_->session));
}
bool Session::connected() const noexcept { return remora_session_connected(state_->session) != 0; }

Status Session::settled(std::chrono::nanoseconds deadline) const {
  return carry_out([&](remora_error* error) {
    return remora_session_settled(state_->session, to_ns(deadline), error);
  });
}

Result<Usage> Session::usage() const {
  remora_usage usage{};
  usage.size = sizeof(usage);
  const Status asked = carry_out(
      [&](remora_error* error) { return remora_session_usage(state_->session, &usage, error); });
  if (!asked) return asked.error();
  return Usage{.client_bytes = usage.client_bytes,
               .client_quota_bytes = usage.client_quota_bytes,
               .pool_bytes = usage.pool_bytes,
               .pool_used_bytes = usage.pool_used_bytes,
               .pool_freeing_bytes = usage.pool_freeing_bytes,
               .sessions = usage.sessions,
               .grants = usage.grants};
}

Result<RegionInfo> Session::create_region(const RegionSpec& spec) const {
  std::vector<remora_region_access> access(spec.access.size());
  for (std::size_t i = 0; i < access.size(); ++i) {
    spec.access[i].client.copy(access[i].client, sizeof(access[i].client) - 1);
    access[i].rights = static_cast<std::uint32_t>(spec.access[i].rights);
    access[i].admin = spec.access[i].admin ? 1 : 0;
  }
  remora_region_spec given{};
  given.size = sizeof(given);
  given.name = spec.name.c_str();
  given.size_bytes = spec.size_bytes;
  given.block_bytes = spec.block_bytes;
  given.atomic_domain = spec.atomic_domain.c_str();
  given.access = access.data();
  given.access_count = access.size();
  given.ttl_ms = static_cast<std::uint64_t>(spec.ttl.count());
  given.lifetime = static_cast<std::uint32_t>(spec.lifetime);
  given.rights = static_cast<std::uint32_t>(spec.rights);
  given.shm = spec.shm ? 1 : 0;
  return ask_info([&](remora_region_info* info, remora_error* error) {
    return remora_session_create_region(state_->session, &given, info, error);
  });
}

Result<std::vector<RegionInfo>> Session::regions() const {
  remora_region_list* list = nullptr;
  const Status asked = carry_out(
      [&](remora_error* error) { return remora_session_regions(state_->session, &list, error); });
  if (!asked) return asked.error();
  const std::unique_ptr<remora_region_list, void (*)(remora_region_list*)> owner{
      list, [](remora_region_list* made) { remora_region_list_free(made); }};
  std::vector<RegionInfo> found;
  for (std::size_t i = 0; i < remora_region_list_count(list); ++i) {
    auto info = ask_info([&](remora_region_info* to, remora_error* error) {
      return remora_region_list_get(list, i, to, error);
    });
    if (!info) return info.error();
    found.push_back(std::move(*info));
  }
  return found;
}

Result<RegionInfo> Session::stat(std::string_view name) const {
  return ask_info([&](remora_region_info* info, remora_error* error) {
    return remora_session_stat(state_->session, std::string{name}.c_str(), info, error);
  });
}
Status Session::remove_region(std::string_view name, Removal removal) const {
  return carry_out([&](remora_error* error) {
    return remora_session_remove_region(state_->session, std::string{name}.c_str(),
                                        static_cast<int>(removal), error);
  });
}
Result<RegionInfo> Session::resize_region(std::string_view name, std::uint64_t size_bytes) const {
  return ask_info([&](remora_region_info* info, remora_error* error) {
    return remora_session_resize_region(state_->session, std::string{name}.c_str(), size_bytes,
                                        info, error);
  });
}

Result<std::chrono::nanoseconds> Session::ping() const {
  std::uint64_t took_ns = 0;
  const Status done = carry_out(
      [&](remora_error* error) { return remora_session_ping(state_->session, &took_ns, error); });
  if (!done) return done.error();
  return std::chrono::nanoseconds{took_ns};
}

Result<std::vector<SessionInfo>> Session::sessions() const {
  remora_session_list* list = nullptr;
  const Status asked = carry_out(
      [&](remora_error* error) { return remora_session_sessions(state_->session, &list, error); });
  if (!asked) return asked.error();
  const std::unique_ptr<remora_session_list, void (*)(remora_session_list*)> owner{
      list, [](remora_session_list* made) { remora_session_list_free(made); }};
  std::vector<SessionInfo> found;
  for (std::size_t i = 0; i < remora_session_list_count(list); ++i) {
    remora_session_info info{};
    info.size = sizeof(info);
    const Status got = carry_out(
        [&](remora_error* error) { return remora_session_list_get(list, i, &info, error); });
    if (!got) return got.error();
    found.push_back({.id = info.id,
                     .client_name = info.client_name,
                     .client_proven = info.client_proven == 1,
                     .transport = static_cast<TransportKind>(info.transport),
                     .peer = info.peer,
                     .device = info.device,
                     .age = std::chrono::milliseconds{info.age_ms},
                     .open_regions = info.open_regions,
                     .lost = info.lost == 1,
                     .own = info.own == 1});
  }
  return found;
}

Status Session::end_session(std::uint64_t id) const {
  return carry_out(
      [&](remora_error* error) { return remora_session_end_session(state_->session, id, error); });
}

namespace {

using DrainCall = int (*)(const remora_session*, remora_drain_state*, remora_error*);

Result<DrainState> call_drain(DrainCall call, const remora_session* session) {
  remora_drain_state state{};
  state.size = sizeof(state);
  const Status done = carry_out([&](remora_error* error) { return call(session, &state, error); });
  if (!done) return done.error();
  return DrainState{.draining = state.draining == 1,
                    .remaining = std::chrono::milliseconds{state.remaining_ms},
                    .sessions = state.sessions,
                    .lost_sessions = state.lost_sessions,
                    .open_regions = state.open_regions};
}

}  // namespace

Result<DrainState> Session::drain() const {
  return call_drain(remora_session_drain, state_->session);
}
Result<DrainState> Session::end_drain() const {
  return call_drain(remora_session_end_drain, state_->session);
}
Result<DrainState> Session::drain_state() const {
  return call_drain(remora_session_drain_state, state_->session);
}

}  // namespace remora::through_c
