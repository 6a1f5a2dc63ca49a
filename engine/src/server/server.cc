#include <cstdint>
#include <cstring>
#include <utility>

#include <remora/engine/server.h>

#include "base/closed.h"
#include "server/administration.h"
#include "server/server_core.h"

namespace remora {

using detail::closed;

std::uint64_t RegionView::size_bytes() const noexcept {
  return memory_ == nullptr ? 0 : memory_->size_bytes();
}

namespace {

/// Calls `copy(piece of the region, position in the buffer)` for all that [offset, +length) covers.
template <typename Copy>
Status for_each_piece(const detail::RegionMemory& memory, std::uint64_t offset,
                      std::uint64_t length, Copy&& copy) {
  if (offset > memory.size_bytes() || length > memory.size_bytes() - offset)
    return Error{Code::kOutOfRange, "RegionView"}.with_limit(offset + length, memory.size_bytes());
  std::uint64_t start = 0;
  std::uint64_t done = 0;
  for (const transport::MemoryStretch& stretch : memory.stretches()) {
    const std::uint64_t end = start + stretch.length_bytes;
    if (done < length && offset + done < end) {
      const std::uint64_t into = offset + done - start;
      const std::uint64_t count = std::min(length - done, stretch.length_bytes - into);
      copy(std::span{stretch.address + into, count}, done);
      done += count;
    }
    start = end;
  }
  return {};
}

}  // namespace

Status RegionView::read(ByteOffset from, std::span<std::byte> into) const {
  if (memory_ == nullptr) return closed("RegionView", memory_);
  return for_each_piece(*memory_, from.bytes, into.size(),
                        [&](std::span<std::byte> piece, std::uint64_t at) {
                          std::memcpy(into.data() + at, piece.data(), piece.size());
                        });
}

Status RegionView::write(ByteOffset to, std::span<const std::byte> from) const {
  if (memory_ == nullptr) return closed("RegionView", memory_);
  return for_each_piece(*memory_, to.bytes, from.size(),
                        [&](std::span<std::byte> piece, std::uint64_t at) {
                          std::memcpy(piece.data(), from.data() + at, piece.size());
                        });
}

std::vector<std::span<std::byte>> RegionView::extents() const {
  std::vector<std::span<std::byte>> found;
  if (memory_ == nullptr) return found;
  for (const transport::MemoryStretch& stretch : memory_->stretches())
    found.emplace_back(stretch.address, stretch.length_bytes);
  return found;
}

Server::Server(std::unique_ptr<detail::ServerCore> core) noexcept : core_{std::move(core)} {}
Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

Result<Server> Server::start(const config::ServerConfig& config,
                             std::shared_ptr<metrics::Registry> registry,
                             std::vector<RefusedTransport>* refused, std::stop_token stop,
                             StartProgressHandler on_progress,
                             std::shared_ptr<DescriptorStore> store) {
  auto core = detail::ServerCore::start(config, {.registry = std::move(registry),
                                                 .refused = refused,
                                                 .stop = std::move(stop),
                                                 .on_progress = std::move(on_progress),
                                                 .store = std::move(store)});
  if (!core) return core.error();
  return Server{std::move(*core)};
}

void Server::stop() noexcept {
  if (core_ != nullptr) core_->stop();
}
void Server::hand_over() noexcept {
  if (core_ != nullptr) core_->hand_over();
}
void Server::expedite_stop() noexcept {
  if (core_ != nullptr) core_->expedite_stop();
}

Status Server::alive() const {
  if (core_ == nullptr) return closed("alive", core_);
  return core_->alive();
}

Status Server::on_notify(std::string_view region, NotificationHandler handler) const {
  if (core_ == nullptr) return closed("on_notify", core_);
  return core_->notifier().on_notify(std::string{region}, std::move(handler));
}

Status Server::set_clients(const std::vector<config::ClientConfig>& clients) const {
  if (core_ == nullptr) return closed("set_clients", core_);
  return core_->set_clients(clients);
}

Status Server::set_limits(const config::Limits& limits) const {
  if (core_ == nullptr) return closed("set_limits", core_);
  return core_->set_limits(limits);
}

Result<std::vector<SessionInfo>> Server::sessions() const {
  if (core_ == nullptr) return closed("sessions", core_);
  return detail::Administration{*core_}.await_sessions();
}
Status Server::end_session(std::uint64_t id) const {
  if (core_ == nullptr) return closed("end session", core_);
  return detail::Administration{*core_}.await_end(id);
}
Result<DrainState> Server::drain() const {
  if (core_ == nullptr) return closed("drain", core_);
  return detail::Administration{*core_}.await_drain(detail::Administration::DrainStep::kBegin);
}
Result<DrainState> Server::end_drain() const {
  if (core_ == nullptr) return closed("drain", core_);
  return detail::Administration{*core_}.await_drain(detail::Administration::DrainStep::kEnd);
}
Result<DrainState> Server::drain_state() const {
  if (core_ == nullptr) return closed("drain", core_);
  return detail::Administration{*core_}.await_drain(detail::Administration::DrainStep::kNone);
}

Result<RegionView> Server::view(std::string_view region) const {
  if (core_ == nullptr) return closed("view", core_);
  if (core_->ended()) return Error{Code::kClosed, "view"};
  auto found = core_->catalog().find(region);
  if (!found) return found.error();
  return RegionView{(*found)->memory()};
}

namespace {

Result<RegionInfo> with_memory_id(const detail::ServerCore& server, Result<RegionInfo> info) {
  if (info) info->memory_id = server.memory_id();
  return info;
}

}  // namespace

Result<RegionInfo> Server::create_region(const RegionSpec& spec) const {
  if (core_ == nullptr) return closed("create", core_);
  if (core_->ended()) return Error{Code::kClosed, "create"};
  return with_memory_id(*core_, core_->regions().create(spec));
}

Status Server::remove_region(std::string_view name, Removal removal) const {
  if (core_ == nullptr) return closed("remove", core_);
  if (core_->ended()) return Error{Code::kClosed, "remove"};
  if (removal == Removal::kNow) return core_->regions().remove_now(name);
  return core_->regions().remove(name, removal);
}

Result<RegionInfo> Server::resize_region(std::string_view name, std::uint64_t size_bytes) const {
  if (core_ == nullptr) return closed("resize", core_);
  if (core_->ended()) return Error{Code::kClosed, "resize"};
  return with_memory_id(*core_, core_->regions().resize(name, size_bytes));
}

std::vector<RegionInfo> Server::regions() const {
  if (core_ == nullptr) return {};
  auto regions = core_->catalog().list("", SIZE_MAX);
  for (RegionInfo& region : regions) region.memory_id = core_->memory_id();
  return regions;
}

ServerStatus Server::status() const {
  if (core_ == nullptr) return {};
  const detail::PoolUsage usage = core_->pool_usage();
  return {.sessions = core_->session_count(),
          .regions = core_->catalog().size(),
          .grants = static_cast<std::uint64_t>(core_->metrics().open_grants()),
          .pool_bytes = usage.total_bytes,
          .pool_used_bytes = usage.used_bytes,
          .pool_freeing_bytes = usage.freeing_bytes};
}

std::string Server::status_json() const { return status_json({}); }
std::string Server::status_json(const metrics::StatusQuery& query) const {
  return core_ == nullptr ? "{}" : core_->status_json(query);
}

std::uint16_t Server::port() const noexcept { return core_ == nullptr ? 0 : core_->port(); }
std::string Server::metrics_address() const {
  return core_ == nullptr ? std::string{} : core_->metrics_address();
}
std::vector<std::string> Server::listening() const {
  return core_ == nullptr ? std::vector<std::string>{} : core_->listeners().descriptions();
}
metrics::Registry& Server::registry() const noexcept {
  return core_ == nullptr ? detail::closed_registry() : *core_->metrics().registry();
}

}  // namespace remora
