// Engines, their options and handlers, and the library's log.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <remora/config/rdma_settings.h>
#include <remora/config/secret_key.h>
#include <remora/engine/log.h>
#include <remora/metrics/registry.h>

#include "call.h"
#include "handles.h"
#include "libraries.h"

namespace remora::c {
namespace {

/// Calls `copy` with each number that the options of C and of the engine have in common.
template <typename InC, typename InEngine, typename Copy>
void copy_numbers(InC& in_c, InEngine& in_engine, const Copy& copy) noexcept {
  copy(in_c.operation_deadline_ns, in_engine.operation_deadline);
  copy(in_c.control_deadline_ns, in_engine.control_deadline);
  copy(in_c.connect_for_ns, in_engine.connect_for);
  copy(in_c.reconnect_for_ns, in_engine.reconnect_for);
  copy(in_c.spin_ns, in_engine.spin);
  copy(in_c.lane_depth, in_engine.lane_depth);
  copy(in_c.lanes, in_engine.lanes);
  copy(in_c.copy_threads, in_engine.copy_threads);
  copy(in_c.bounce_slot_count, in_engine.bounce_slot_count);
  copy(in_c.bounce_slot_bytes, in_engine.bounce_slot_bytes);
  copy(in_c.mr_cache_from_bytes, in_engine.mr_cache_from_bytes);
  copy(in_c.mr_cache_bytes, in_engine.mr_cache_bytes);
}

void put(std::uint64_t& to_ns, std::chrono::nanoseconds from) noexcept {
  to_ns = static_cast<std::uint64_t>(from.count());
}
void put(std::chrono::nanoseconds& to, std::uint64_t from_ns) noexcept { to = duration(from_ns); }
template <typename Number>
void put(Number& to, Number from) noexcept {
  to = from;
}

remora_engine_options default_options() noexcept {
  const EngineOptions options;
  remora_engine_options to{};
  to.size = sizeof(to);
  copy_numbers(to, options, [](auto& in_c, const auto& in_engine) { put(in_c, in_engine); });
  to.huge_pages = REMORA_HUGE_PAGES_AUTO;
  to.populate = static_cast<std::uint32_t>(options.populate);
  return to;
}

SessionHandlers::Handler handler_for(const remora_engine_options& options, int change) {
  return [call = options.on_session, context = options.session_context,
          change](const SessionEvent& event) {
    const remora_session_event told{
        .size = sizeof(remora_session_event),
        .server = event.server.c_str(),
        .change = change,
        .transport = static_cast<std::int32_t>(event.transport),
        .reason = to_reason(event.reason),
        .reserved = 0,
    };
    call(context, &told);
  };
}

Status put_key(const remora_engine_options& from, EngineOptions& to, Operation operation) {
  if (from.key_file == nullptr && from.key_hex == nullptr) return {};
  if (from.key_file != nullptr && from.key_hex != nullptr)
    return Error{Code::kInvalidArgument, operation}.with_subject(
        "key_file and key_hex: one of both");
  auto key = from.key_file != nullptr ? config::read_key_file(from.key_file)
                                      : config::SecretKey::parse(from.key_hex);
  if (!key) return key.error();
  to.key = *key;
  return {};
}

/// A flag of a field, 0 or 1; other numbers are reserved.
Status put_flag(std::uint32_t from, bool& to, Operation field, Operation operation) {
  if (from > 1)
    return Error{Code::kInvalidArgument, operation}.with_subject(field.text()).with_limit(from, 1);
  to = from == 1;
  return {};
}

static_assert(static_cast<int>(Populate::kNone) == REMORA_POPULATE_NONE &&
              static_cast<int>(Populate::kLazy) == REMORA_POPULATE_LAZY &&
              static_cast<int>(Populate::kNow) == REMORA_POPULATE_NOW);

/// The options of rdma, and of the mappings of regions over shm.
Status put_transports(const remora_engine_options& from, EngineOptions& to, Operation operation) {
  if (from.populate > REMORA_POPULATE_NOW)
    return Error{Code::kInvalidArgument, operation}
        .with_subject("populate")
        .with_limit(from.populate, REMORA_POPULATE_NOW);
  to.populate = static_cast<Populate>(from.populate);
  if (from.device != nullptr) to.device = from.device;
  if (from.rails != nullptr) to.rails = from.rails;
  std::string_view left = from.rdma == nullptr ? "" : from.rdma;
  while (!left.empty()) {
    const std::string_view item = left.substr(0, left.find(','));
    left.remove_prefix(std::min(item.size() + 1, left.size()));
    const std::size_t name_end = std::min(item.find('='), item.size());
    const std::string_view value = item.substr(std::min(name_end + 1, item.size()));
    if (!config::set_rdma_setting(to.rdma, item.substr(0, name_end), value))
      return Error{Code::kInvalidArgument, operation}.with_subject("rdma: " + std::string{item});
  }
  return {};
}

Result<EngineOptions> to_options(const remora_engine_options& from, Operation operation) {
  EngineOptions to;
  if (from.client_name != nullptr) to.client_name = from.client_name;
  if (const Status key = put_key(from, to, operation); !key) return key.error();
  copy_numbers(from, to, [](const auto& in_c, auto& in_engine) { put(in_engine, in_c); });
  bool ordinary_pages = false;
  for (const Status& flag :
       {put_flag(from.huge_pages, ordinary_pages, "huge_pages", operation),
        put_flag(from.core_dump, to.core_dump, "core_dump", operation),
        put_flag(from.tcp_payload_crc, to.tcp_payload_crc, "tcp_payload_crc", operation)})
    if (!flag) return flag.error();
  to.huge_pages = ordinary_pages ? HugePages::kNever : HugePages::kAuto;
  if (from.placement != nullptr) to.placement = from.placement;
  if (const Status done = put_transports(from, to, operation); !done) return done.error();
  if (from.on_session == nullptr) return to;
  to.handlers.on_interrupted = handler_for(from, REMORA_SESSION_INTERRUPTED);
  to.handlers.on_resumed = handler_for(from, REMORA_SESSION_RESUMED);
  to.handlers.on_lost = handler_for(from, REMORA_SESSION_LOST);
  to.handlers.on_stale = handler_for(from, REMORA_SESSION_STALE);
  to.handlers.on_drain = handler_for(from, REMORA_SESSION_DRAIN);
  return to;
}

/// An empty `sink` restores the default.
Status set_sink(LogSink sink, int level, Operation operation) {
  if (level < REMORA_LOG_DEBUG || level > REMORA_LOG_WARNING)
    return Error{Code::kInvalidArgument, operation}.with_subject("level");
  set_log_sink(std::move(sink), static_cast<LogLevel>(level));
  return {};
}

std::uint64_t nanoseconds_of(const LogLine& line) noexcept {
  const auto at = std::chrono::duration_cast<std::chrono::nanoseconds>(line.at.time_since_epoch());
  return static_cast<std::uint64_t>(at.count());
}

}  // namespace
}  // namespace remora::c

using remora::Code;
using remora::Error;
using remora::Status;
using remora::c::Call;
using remora::c::give_text;

int remora_engine_options_init(remora_engine_options* options, size_t size) noexcept {
  Call call{"remora_engine_options_init", nullptr};
  call.into(options, "options");
  if (call.code() != REMORA_OK) return call.code();
  if (size < remora::c::kStructBytesMin || size > remora::c::kStructBytesMax)
    return REMORA_INVALID_ARGUMENT;
  std::memset(options, 0, size);
  options->size = size;
  remora::c::fill(options, remora::c::default_options());
  return REMORA_OK;
}

int remora_engine_open(const remora_engine_options* options, remora_engine** engine,
                       remora_error* error) noexcept {
  Call call{"remora_engine_open", error};
  auto given = remora::c::default_options();
  call.into(engine, "engine");
  if (options != nullptr) call.copies(options, given, "options: its size");
  return call.run([&]() -> Status {
    if (const Status checked = remora::c::check_libraries(call.operation()); !checked)
      return checked.error();
    auto made = remora::c::to_options(given, call.operation());
    if (!made) return made.error();
    return remora::c::make_handle(remora::Engine::open(*made), engine);
  });
}

void remora_engine_free(remora_engine* engine) noexcept { remora::c::free_handle(engine); }

int remora_engine_status_json(const remora_engine* engine, char** text, size_t* length,
                              remora_error* error) noexcept {
  return give_text({"remora_engine_status_json", error}, engine, text, length,
                   [&] { return engine->object.status_json(); });
}

int remora_engine_metrics(const remora_engine* engine, char** text, size_t* length,
                          remora_error* error) noexcept {
  return give_text({"remora_engine_metrics", error}, engine, text, length,
                   [&] { return engine->object.registry().text(); });
}

int remora_set_log_handler(remora_log_handler handler, void* context, int level,
                           remora_error* error) noexcept {
  Call call{"remora_set_log_handler", error};
  return call.run([&]() -> Status {
    if (handler == nullptr) return remora::c::set_sink({}, level, call.operation());
    return remora::c::set_sink(
        [handler, context, line_text = std::string{}](const remora::LogLine& line) mutable {
          line_text.assign(line.text);  // with a final 0
          handler(context, static_cast<int>(line.level), remora::c::nanoseconds_of(line),
                  line_text.c_str(), line_text.size());
        },
        level, call.operation());
  });
}

int remora_set_log_line_handler(remora_log_line_handler handler, void* context, int level,
                                remora_error* error) noexcept {
  Call call{"remora_set_log_line_handler", error};
  return call.run([&]() -> Status {
    if (handler == nullptr) return remora::c::set_sink({}, level, call.operation());
    return remora::c::set_sink(
        [handler, context](const remora::LogLine& line) {
          const std::string event{line.event};  // each with a final 0
          const std::string text{line.text};
          const std::string json = remora::to_json(line);
          const remora_log_line given{
              .size = sizeof(remora_log_line),
              .at_ns = remora::c::nanoseconds_of(line),
              .event = event.c_str(),
              .text = text.c_str(),
              .text_length = text.size(),
              .json = json.c_str(),
              .json_length = json.size(),
              .level = static_cast<std::int32_t>(line.level),
              .reserved = 0,
          };
          handler(context, &given);
        },
        level, call.operation());
  });
}
