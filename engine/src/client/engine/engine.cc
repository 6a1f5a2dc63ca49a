#include <utility>

#include <remora/engine/engine.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/owned.h>

#include "base/closed.h"
#include "client/engine/engine_core.h"
#include "client/services/control_calls.h"

namespace remora {

using detail::closed;

Engine::Engine(std::shared_ptr<detail::EngineCore> core) noexcept : core_{std::move(core)} {}
Engine::~Engine() { leave(); }
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&& other) noexcept {
  if (this == &other) return *this;
  leave();
  core_ = std::move(other.core_);
  return *this;
}

void Engine::leave() noexcept {
  if (core_ == nullptr) return;
  core_->handler_gate().close();
  core_->control_calls()->close(!core_->on_poller());
  const auto parting = core_->parting();
  core_.reset();
}

std::shared_ptr<detail::EngineServices> Engine::services() const noexcept {
  return core_.pointer();
}

Result<Engine> Engine::open(const EngineOptions& options) {
  auto core = detail::EngineCore::create(options);
  if (!core) return core.error();
  return Engine{std::move(*core)};
}

Result<Region> Engine::open_region(std::string_view text, Rights rights) const {
  return detail::open_by(core_, text, rights, detail::Opening::kOpen);
}

Result<Region> Engine::fence_region(std::string_view text, Rights rights) const {
  return detail::open_by(core_, text, rights, detail::Opening::kFence);
}

Result<Session> Engine::connect(std::string_view text) const {
  return detail::connect_by(core_, text);
}

Result<SlotPool> Engine::allocate_slots(std::size_t count, std::size_t slot_bytes) const {
  if (core_ == nullptr) return closed("allocate_slots", core_);
  auto store = core_->memory().allocate_slots(count, slot_bytes);
  if (!store) return store.error();
  return SlotPool{std::move(*store)};
}

Result<RegisteredMemory> Engine::register_memory(std::span<std::byte> bytes) const {
  if (core_ == nullptr) return closed("register_memory", core_);
  auto memory = core_->memory().register_memory(bytes);
  if (!memory) return memory.error();
  return RegisteredMemory{std::move(*memory)};
}

std::string Engine::status_json() const { return status_json({}); }
std::string Engine::status_json(const metrics::StatusQuery& query) const {
  return core_ == nullptr ? "{}" : core_->status_json(query);
}
metrics::Registry& Engine::registry() const noexcept {
  return core_ == nullptr ? detail::closed_registry() : core_->registry();
}

}  // namespace remora
