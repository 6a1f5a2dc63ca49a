// Registered memory, slots, and pieces.

#include <cstdint>
#include <span>

#include "call.h"
#include "handles.h"

using remora::Code;
using remora::Error;
using remora::Status;
using remora::c::Call;
using remora::c::is_live;

remora_slots::remora_slots(remora::SlotPool&& made)
    : Handle{kKind},
      pool{std::make_shared<remora::SlotPool>(std::move(made))},
      out(pool->slot_count()) {
  // The pool is new: it hands out its slots in the order of their addresses.
  constexpr std::size_t kAlignment = 64;
  stride_bytes = (pool->slot_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  remora::Slot first = pool->take();
  base = first.bytes().data();
  // A slot that shares the slab with its pool.
  remora::detail::LocalMemory* const local = remora::Target{first}.memory();
  memory.reset(new remora_memory{
      remora::RegisteredMemory{std::shared_ptr<remora::detail::LocalMemory>{pool, local}}});
}

int remora_engine_register_memory(const remora_engine* engine, void* data, size_t length,
                                  remora_memory** memory, remora_error* error) noexcept {
  Call call{"remora_engine_register_memory", error};
  call.on(engine).into(static_cast<std::byte*>(data), "data").into(memory, "memory");
  return call.run([&] {
    return remora::c::make_handle(
        engine->object.register_memory({static_cast<std::byte*>(data), length}), memory);
  });
}
void remora_memory_free(remora_memory* memory) noexcept { remora::c::free_handle(memory); }

int remora_engine_allocate_slots(const remora_engine* engine, size_t count, size_t slot_bytes,
                                 remora_slots** slots, remora_error* error) noexcept {
  return Call{"remora_engine_allocate_slots", error}.on(engine).into(slots, "slots").run([&] {
    return remora::c::make_handle(engine->object.allocate_slots(count, slot_bytes), slots);
  });
}
void remora_slots_free(remora_slots* slots) noexcept { remora::c::free_handle(slots); }

const remora_memory* remora_slots_memory(const remora_slots* slots) noexcept {
  return is_live(slots) ? slots->memory.get() : nullptr;
}

void* remora_slots_take(remora_slots* slots) noexcept {
  if (!is_live(slots)) return nullptr;
  remora::Slot slot = slots->pool->take();
  if (!slot) return nullptr;
  std::byte* const data = slot.bytes().data();
  slots->out[static_cast<std::size_t>(data - slots->base) / slots->stride_bytes] = std::move(slot);
  return data;
}

int remora_slots_return(remora_slots* slots, void* slot) noexcept {
  if (!is_live(slots)) return Call{"remora_slots_return", nullptr}.on(slots).code();
  // An address below the first slot wraps, and is refused.
  const std::size_t place = static_cast<std::size_t>(static_cast<std::byte*>(slot) - slots->base);
  const std::size_t index = place / slots->stride_bytes;
  if (index >= slots->out.size() || place % slots->stride_bytes != 0 || !slots->out[index])
    return REMORA_INVALID_ARGUMENT;
  // Its element is empty before another thread can take the slot.
  const remora::Slot back = std::move(slots->out[index]);
  return REMORA_OK;
}

int remora_piece_init(remora_piece* piece, void* data, size_t length,
                      const remora_memory* memory) noexcept {
  Call call{"remora_piece_init", nullptr};
  call.into(piece, "piece").on_any(memory);
  return call.run([&]() -> Status {
    const remora::Target target = remora::c::target_of(data, length, memory);
    if (memory != nullptr && target.bytes().data() != data)
      return Error{Code::kOutOfRange, call.operation()}.with_reason(remora::Reason::kOutsideMemory);
    *piece = {.data = data, .length = length, .registered = target.memory()};
    return {};
  });
}
