#pragma once

/// The objects behind the opaque pointers of the C API.
///
/// Each begins with a word that states its kind. Freeing a handle destroys what it holds and
/// changes that word; its memory stays until 256 other handles have been freed, so that a call with
/// a freed handle is refused instead of reading the bytes of another object.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace remora::c {

enum class Kind : std::uint32_t {
  kFreed = 0x46524545,
  kEngine = 0x52450001,
  kSession,
  kRegion,
  kQueue,
  kMemory,
  kSlots,
  kRegionList,
  kServer,
  kView,
  kSessionList,
  kVolume,
  kVolumeQueue,
};

/// Base of every handle, at its beginning.
struct Handle {
  explicit Handle(Kind made_as) noexcept : kind{made_as} {}
  Kind kind;
};

template <typename T>
[[nodiscard, gnu::always_inline]] inline bool is_aligned(const T* pointer) noexcept {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignof(T) == 0;
}

/// Whether a caller's pointer is a handle of this kind that was not freed.
template <typename T>
[[nodiscard, gnu::always_inline]] inline bool is_live(const T* handle) noexcept {
  return handle != nullptr && is_aligned(handle) && handle->kind == T::kKind;
}

/// Keeps the memory of a freed handle until 256 later ones have been freed. Lock-free, so that it
/// works in a child of fork(2).
void retire(void* memory) noexcept;

/// For `..._free`: a pointer that is no live handle is ignored.
template <typename T>
void free_handle(T* handle) noexcept {
  if (!is_live(handle)) return;
  std::destroy_at(handle);
  ::new (static_cast<void*>(handle)) Handle{Kind::kFreed};
  retire(handle);
}

}  // namespace remora::c
