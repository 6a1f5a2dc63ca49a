// The engine of through_c/client.h: its options, session events, and what it makes.

#include <string>
#include <utility>

#include <remora/config/rdma_settings.h>

#include "through_c/call.h"
#include "through_c/client.h"

namespace remora::through_c {

void Engine::on_session(void* context, const remora_session_event* event) {
  const SessionHandlers& handlers = static_cast<const State*>(context)->handlers;
  const SessionHandlers::Handler* handler = nullptr;
  switch (event->change) {
    case REMORA_SESSION_INTERRUPTED: handler = &handlers.on_interrupted; break;
    case REMORA_SESSION_RESUMED: handler = &handlers.on_resumed; break;
    case REMORA_SESSION_LOST: handler = &handlers.on_lost; break;
    case REMORA_SESSION_STALE: handler = &handlers.on_stale; break;
    case REMORA_SESSION_DRAIN: handler = &handlers.on_drain; break;
    default: return;
  }
  if (!*handler) return;
  (*handler)({.server = event->server,
              .transport = static_cast<TransportKind>(event->transport),
              .reason = static_cast<Reason>(event->reason)});
}

Result<Engine> Engine::open(const EngineOptions& options) {
  if (options.registry || options.faults)
    return Error{Code::kUnsupported, "Engine::open"}.with_subject("an option, through the C API");
  auto state = std::make_unique<State>();
  state->handlers = options.handlers;
  const std::string key_hex = options.key ? options.key->to_hex() : std::string{};
  const std::string rdma = config::to_string(options.rdma, ",");
  remora_engine_options given;
  if (remora_engine_options_init(&given, sizeof(given)) != REMORA_OK)
    return Error{Code::kInternal, "remora_engine_options_init"};
  given.client_name = options.client_name.c_str();
  given.operation_deadline_ns = to_ns(options.operation_deadline);
  given.control_deadline_ns = to_ns(options.control_deadline);
  given.connect_for_ns = to_ns(options.connect_for);
  given.reconnect_for_ns = to_ns(options.reconnect_for);
  given.spin_ns = to_ns(options.spin);
  given.lane_depth = options.lane_depth;
  given.lanes = options.lanes;
  given.copy_threads = options.copy_threads;
  given.bounce_slot_count = options.bounce_slot_count;
  given.bounce_slot_bytes = options.bounce_slot_bytes;
  given.huge_pages =
      options.huge_pages == HugePages::kNever ? REMORA_HUGE_PAGES_NEVER : REMORA_HUGE_PAGES_AUTO;
  given.mr_cache_from_bytes = options.mr_cache_from_bytes;
  given.mr_cache_bytes = options.mr_cache_bytes;
  given.placement = options.placement.c_str();
  given.device = options.device.c_str();
  given.core_dump = options.core_dump ? 1 : 0;
  given.tcp_payload_crc = options.tcp_payload_crc ? 1 : 0;
  if (options.key) given.key_hex = key_hex.c_str();
  given.rails = options.rails.c_str();
  given.rdma = rdma.c_str();
  given.populate = static_cast<std::uint32_t>(options.populate);
  given.on_session = on_session;
  given.session_context = state.get();
  const Status opened = carry_out(
      [&](remora_error* error) { return remora_engine_open(&given, &state->engine, error); });
  if (!opened) return opened.error();
  return Engine{std::move(state)};
}

Result<Region> Engine::open_region(std::string_view uri, Rights rights) const {
  return make<Region, remora_region>([&](remora_region** region, remora_error* error) {
    return remora_engine_open_region(handle(), std::string{uri}.c_str(),
                                     static_cast<std::uint32_t>(rights), region, error);
  });
}
Result<Region> Engine::fence_region(std::string_view uri, Rights rights) const {
  return make<Region, remora_region>([&](remora_region** region, remora_error* error) {
    return remora_engine_fence_region(handle(), std::string{uri}.c_str(),
                                      static_cast<std::uint32_t>(rights), region, error);
  });
}
Result<Session> Engine::connect(std::string_view uri) const {
  return make<Session, remora_session>([&](remora_session** session, remora_error* error) {
    return remora_engine_connect(handle(), std::string{uri}.c_str(), session, error);
  });
}

Result<SlotPool> Engine::allocate_slots(std::size_t count, std::size_t slot_bytes) const {
  remora_slots* made = nullptr;
  const Status done = carry_out([&](remora_error* error) {
    return remora_engine_allocate_slots(handle(), count, slot_bytes, &made, error);
  });
  if (!done) return done.error();
  return SlotPool{std::shared_ptr<remora_slots>{made, remora_slots_free}, count, slot_bytes};
}
Result<RegisteredMemory> Engine::register_memory(std::span<std::byte> bytes) const {
  remora_memory* made = nullptr;
  const Status done = carry_out([&](remora_error* error) {
    return remora_engine_register_memory(handle(), bytes.data(), bytes.size(), &made, error);
  });
  if (!done) return done.error();
  return RegisteredMemory{std::shared_ptr<remora_memory>{made, remora_memory_free}, bytes};
}

}  // namespace remora::through_c
