#include "nbdkit_fakes.h"

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace remora::test {

NbdkitFakes* fakes = nullptr;

void NbdkitFakes::add_event(const std::string& event) {
  const std::lock_guard lock{mutex_};
  events_.push_back(event);
}
std::vector<std::string> NbdkitFakes::events() {
  const std::lock_guard lock{mutex_};
  return events_;
}
void NbdkitFakes::add_line(std::string line) {
  const std::lock_guard lock{mutex_};
  lines_.push_back(std::move(line));
}
std::vector<std::string> NbdkitFakes::lines() {
  const std::lock_guard lock{mutex_};
  return lines_;
}

namespace {

char handle;  // its address stands for every handle

template <typename Handle>
int make(Handle** to) noexcept {
  *to = reinterpret_cast<Handle*>(&handle);
  return REMORA_OK;
}

std::uint64_t take(std::uint64_t tag) {
  if (!fakes->takes) return 0;
  fakes->filled.push_back(tag);
  return tag;
}

void log_line(const char* format, std::va_list arguments) {
  std::array<char, 1024> line{};
  (void)std::vsnprintf(line.data(), line.size(), format, arguments);
  fakes->add_line(line.data());
}

}  // namespace
}  // namespace remora::test

using remora::test::fakes;
using remora::test::make;
using remora::test::take;

// NOLINTBEGIN(readability-identifier-naming): functions of C

int remora_engine_options_init(remora_engine_options* options, size_t size) noexcept {
  std::memset(options, 0, size);
  options->size = size;
  return REMORA_OK;
}
int remora_engine_open(const remora_engine_options* options, remora_engine** engine,
                       remora_error* /*error*/) noexcept {
  fakes->connect_for_ns = options->connect_for_ns;
  return make(engine);
}
void remora_engine_free(remora_engine* /*engine*/) noexcept {}
int remora_engine_open_region(const remora_engine* /*engine*/, const char* /*uri*/,
                              uint32_t /*rights*/, remora_region** region,
                              remora_error* /*error*/) noexcept {
  return make(region);
}
int remora_set_log_handler(remora_log_handler /*handler*/, void* /*context*/, int /*level*/,
                           remora_error* /*error*/) noexcept {
  return REMORA_OK;
}
const char* remora_code_name(int code) noexcept {
  return code == REMORA_OUT_OF_MEMORY ? "out of memory" : "another code";
}
const char* remora_reason_name(int /*reason*/) noexcept { return "a reason"; }

int remora_region_info_of(const remora_region* /*region*/, remora_region_info* info,
                          remora_error* /*error*/) noexcept {
  info->size_bytes = std::uint64_t{1} << 30U;
  return REMORA_OK;
}
// Over shm the plugin makes no queue of its own.
int remora_region_transport(const remora_region* /*region*/) noexcept {
  return REMORA_TRANSPORT_SHM;
}
uint32_t remora_region_rights(const remora_region* /*region*/) noexcept { return REMORA_RIGHT_ALL; }
const char* remora_region_transport_reason(const remora_region* /*region*/) noexcept {
  return "shm";
}
int remora_region_connected(const remora_region* /*region*/) noexcept { return fakes->connected; }
void remora_region_free(remora_region* /*region*/) noexcept {}
int remora_region_settled(const remora_region* /*region*/, uint64_t /*deadline_ns*/,
                          remora_error* /*error*/) noexcept {
  fakes->add_event("settled");
  return fakes->settled();
}
int remora_region_read(const remora_region* /*region*/, uint64_t /*offset*/, void* /*into*/,
                       size_t /*length*/, const remora_memory* /*memory*/, uint64_t /*deadline_ns*/,
                       remora_error* /*error*/) noexcept {
  return REMORA_OK;
}
int remora_region_write(const remora_region* /*region*/, uint64_t /*offset*/, const void* /*from*/,
                        size_t /*length*/, const remora_memory* /*memory*/,
                        uint64_t /*deadline_ns*/, remora_error* error) noexcept {
  fakes->add_event("write");
  return fakes->write(error);
}
int remora_region_write_zeroes(const remora_region* /*region*/, uint64_t /*offset*/,
                               uint64_t length, uint64_t /*deadline_ns*/,
                               remora_error* /*error*/) noexcept {
  fakes->add_event("zero");
  fakes->zeroed.push_back(length);
  return REMORA_OK;
}
int remora_region_flush_visible(const remora_region* /*region*/, uint64_t /*deadline_ns*/,
                                remora_error* /*error*/) noexcept {
  return REMORA_OK;
}

// Of a volume no test makes requests.
int remora_engine_open_volume(const remora_engine* /*engine*/, const char* /*uri*/,
                              const remora_volume_options* options, remora_volume** volume,
                              remora_error* /*error*/) noexcept {
  fakes->on_event = options->on_event;
  fakes->event_context = options->event_context;
  return make(volume);
}
void remora_volume_free(remora_volume* /*volume*/) noexcept {}
int remora_volume_info_of(const remora_volume* /*volume*/, remora_volume_info* info,
                          remora_error* /*error*/) noexcept {
  info->copies = 2;
  (void)std::snprintf(info->name, sizeof(info->name), "disk");
  return REMORA_OK;
}
int remora_volume_groups(const remora_volume* /*volume*/, remora_volume_group* groups,
                         size_t capacity, size_t* count, remora_error* /*error*/) noexcept {
  *count = 1;
  if (capacity == 0) return REMORA_OK;
  groups[0] = {};
  groups[0].copies = fakes->copies;
  return REMORA_OK;
}
int remora_volume_claim(const remora_volume* /*volume*/,
                        const remora_volume_claim_options* /*options*/,
                        remora_error* /*error*/) noexcept {
  return REMORA_OK;
}
int remora_volume_claimed(const remora_volume* /*volume*/) noexcept { return 1; }
int remora_volume_release(const remora_volume* /*volume*/, remora_error* /*error*/) noexcept {
  fakes->add_event("release");
  return REMORA_OK;
}
int remora_volume_repair(const remora_volume* /*volume*/,
                         const remora_volume_repair_options* options,
                         remora_volume_repair_report* report, char** left,
                         remora_error* /*error*/) noexcept {
  *left = nullptr;
  fakes->add_event("repair");
  const int code = fakes->repair(*options, report);
  fakes->add_event("repaired");
  return code;
}
void remora_free(void* text) noexcept { std::free(text); }
int remora_volume_connected(const remora_volume* /*volume*/) noexcept { return 0; }
int remora_volume_settled(const remora_volume* /*volume*/, uint64_t /*deadline_ns*/,
                          remora_error* /*error*/) noexcept {
  return REMORA_UNSUPPORTED;
}
int remora_volume_read(const remora_volume* /*volume*/, uint64_t /*offset*/, void* /*into*/,
                       size_t /*length*/, const remora_memory* /*memory*/, uint64_t /*deadline_ns*/,
                       remora_error* /*error*/) noexcept {
  return REMORA_UNSUPPORTED;
}
int remora_volume_write(const remora_volume* /*volume*/, uint64_t /*offset*/, const void* /*from*/,
                        size_t /*length*/, const remora_memory* /*memory*/,
                        uint64_t /*deadline_ns*/, remora_error* /*error*/) noexcept {
  return REMORA_UNSUPPORTED;
}
int remora_volume_write_zeroes(const remora_volume* /*volume*/, uint64_t /*offset*/,
                               uint64_t /*length*/, uint64_t /*deadline_ns*/,
                               remora_error* /*error*/) noexcept {
  return REMORA_UNSUPPORTED;
}
int remora_volume_flush_visible(const remora_volume* /*volume*/, uint64_t /*deadline_ns*/,
                                remora_error* /*error*/) noexcept {
  return REMORA_UNSUPPORTED;
}
int remora_volume_queue_create(const remora_volume* /*volume*/,
                               const remora_queue_options* /*options*/, remora_queue** /*queue*/,
                               remora_error* /*error*/) noexcept {
  return REMORA_UNSUPPORTED;
}

int remora_queue_create(const remora_region* /*region*/, const remora_queue_options* /*options*/,
                        remora_queue** queue, remora_error* /*error*/) noexcept {
  return make(queue);
}
void remora_queue_free(remora_queue* /*queue*/) noexcept {}
uint64_t remora_queue_read(remora_queue* /*queue*/, uint64_t /*offset*/, void* /*into*/,
                           size_t /*length*/, const remora_memory* /*memory*/,
                           uint64_t tag) noexcept {
  return take(tag);
}
uint64_t remora_queue_write(remora_queue* /*queue*/, uint64_t /*offset*/, const void* /*from*/,
                            size_t /*length*/, const remora_memory* /*memory*/,
                            uint64_t tag) noexcept {
  return take(tag);
}
int remora_queue_submit(remora_queue* /*queue*/, remora_error* /*error*/) noexcept {
  ++fakes->submit_count;
  int code = REMORA_OK;
  if (!fakes->submits.empty()) {
    code = fakes->submits.front();
    fakes->submits.pop_front();
  }
  if (code != REMORA_OK) return code;
  fakes->in_flight.insert(fakes->in_flight.end(), fakes->filled.begin(), fakes->filled.end());
  fakes->filled.clear();
  return REMORA_OK;
}
int remora_queue_wait(remora_queue* /*queue*/, size_t /*at_least*/, remora_completion* completions,
                      size_t capacity, size_t* count, remora_error* /*error*/) noexcept {
  *count = 0;
  if (fakes->wait_code != REMORA_OK) return fakes->wait_code;
  for (; !fakes->in_flight.empty() && *count < capacity; ++*count) {
    completions[*count] = {};
    completions[*count].tag = fakes->in_flight.back();
    fakes->in_flight.pop_back();
  }
  return REMORA_OK;
}
int remora_queue_completion_error(const remora_queue* /*queue*/,
                                  const remora_completion* completion,
                                  remora_error* /*error*/) noexcept {
  return completion->code;
}

extern "C" {
void nbdkit_error(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  remora::test::log_line(format, arguments);
  va_end(arguments);
}
void nbdkit_debug(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  remora::test::log_line(format, arguments);
  va_end(arguments);
}
void nbdkit_set_error(int error) { fakes->error = error; }
int nbdkit_nanosleep(unsigned /*seconds*/, unsigned /*nanoseconds*/) { return fakes->nanosleep(); }
}

// NOLINTEND(readability-identifier-naming)
