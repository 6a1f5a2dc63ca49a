#include "volume_queue_handle.h"

#include <algorithm>
#include <new>
#include <utility>

namespace remora::c {

namespace {

Error busy(Operation operation) noexcept {
  return Error{Code::kBusy, operation}.with_subject("another thread is in a call of this queue");
}

}  // namespace

VolumeQueueHandle::VolumeQueueHandle(volume::VolumeQueue&& made)
    : Handle{kKind}, queue_{std::move(made)}, entries_(queue_.depth()), free_(queue_.depth()) {
  for (std::uint32_t place = 0; place < free_.size(); ++place) free_[place] = place;
}

VolumeQueueHandle* VolumeQueueHandle::of(const remora_queue* queue) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(queue);
  if (address == 0 || address % alignof(VolumeQueueHandle) != 0) return nullptr;
  // A cast of a misaligned pointer is undefined, even of one that is not followed.
  auto* const handle = reinterpret_cast<Handle*>(const_cast<remora_queue*>(queue));
  return handle->kind == kKind ? static_cast<VolumeQueueHandle*>(handle) : nullptr;
}

Status VolumeQueueHandle::submit(Operation operation) noexcept {
  // In a child of fork(2) the flag may be set, where a thread of the parent was in a call: the
  // queue refuses the call.
  if (made_in_ != remora::detail::this_process()) return queue_.submit();
  const Collecting owner{collecting_};
  if (!owner) return busy(operation);
  return queue_.submit();
}

int VolumeQueueHandle::collect(Call& call, Look how, std::size_t at_least,
                               remora_completion* completions, std::size_t capacity,
                               std::size_t* count) noexcept {
  call.into(completions, "completions").into(count, "count");
  return call.run([&]() -> Status {
    *count = 0;
    if (capacity == 0)
      return Error{Code::kInvalidArgument, call.operation()}.with_subject("capacity");
    if (made_in_ != remora::detail::this_process()) return queue_.submit();  // which refuses
    const Collecting owner{collecting_};
    if (!owner) return busy(call.operation());
    failed_.clear();
    const std::size_t wanted = std::min(at_least, capacity);
    *count = hand_over_found(completions, capacity);
    if (*count == capacity || (at_least != 0 && *count >= wanted)) return {};
    found_ = look(how, wanted - std::min(wanted, *count));
    *count += hand_over_found(completions + *count, capacity - *count);
    return {};
  });
}

const Error* VolumeQueueHandle::error_of(const remora_completion& completion) const noexcept {
  const auto found = std::find_if(failed_.begin(), failed_.end(), [&](const Failed& failed) {
    return failed.ticket == completion.ticket;
  });
  return found == failed_.end() ? nullptr : &found->error;
}

volume::VolumeCompletions VolumeQueueHandle::look(Look how, std::size_t at_least) noexcept {
  switch (how) {
    case Look::kWait: return queue_.wait(at_least);
    case Look::kPoll: return queue_.poll();
    case Look::kProgress: return queue_.progress();
  }
  return {};
}

std::size_t VolumeQueueHandle::hand_over_found(remora_completion* to,
                                               std::size_t capacity) noexcept {
  const std::size_t count = std::min(capacity, found_.size());
  for (std::size_t i = 0; i < count; ++i) {
    const volume::VolumeCompletion& ended = found_[i];
    const auto place = static_cast<std::uint32_t>(ended.tag());
    to[i] = {.tag = entries_[place].tag,
             .ticket = entries_[place].ticket,
             .old_value = ended.old_value(),
             .code = REMORA_OK,
             .reason = REMORA_REASON_NONE};
    free_.push_back(place);
    if (!ended.ok()) [[unlikely]]
      put_error(ended.error(), to[i]);
  }
  found_ = found_.subspan(count);
  return count;
}

void VolumeQueueHandle::put_error(const Error& error, remora_completion& to) noexcept {
  to.old_value = 0;
  to.code = to_code(error.code());
  to.reason = to_reason(error.reason());
  try {
    failed_.push_back({.ticket = to.ticket, .error = error});
  } catch (const std::bad_alloc&) {  // the code is there
  }
}

}  // namespace remora::c
