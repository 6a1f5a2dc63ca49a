#pragma once

/// One call of the C API: checks its arguments, catches its exceptions and hands over its error.

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <remora/c/error.h>
#include <remora/result.h>

#include "handle.h"

namespace remora::c {

[[nodiscard]] constexpr int to_code(Code code) noexcept { return static_cast<int>(code) + 1; }
[[nodiscard]] constexpr int to_reason(Reason reason) noexcept { return static_cast<int>(reason); }

/// Fills the caller's struct, if it has given one that can be filled; returns the code of `error`.
int hand_over(const Error& error, remora_error* to) noexcept;
/// Replaces the message that hand_over() has written.
void replace_message(std::string_view message, remora_error* to) noexcept;

/// A duration from the caller. A value longer than any clock can count becomes the longest that can
/// be added to a time.
[[nodiscard]] constexpr std::chrono::nanoseconds duration(std::uint64_t ns) noexcept {
  constexpr std::uint64_t kLongest = std::numeric_limits<std::int64_t>::max() / 4;
  return std::chrono::nanoseconds{static_cast<std::int64_t>(std::min(ns, kLongest))};
}

template <std::size_t N>
void copy_text(char (&to)[N], std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), N - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

/// Largest size that a caller's struct may claim.
inline constexpr std::size_t kStructBytesMax = 65536;
inline constexpr std::size_t kStructBytesMin = 2 * sizeof(std::size_t);

class Call {
 public:
  Call(Operation operation, remora_error* error) noexcept : operation_{operation}, error_{error} {}

  /// Checks the handles and pointers of the caller. The first one that is wrong ends the call.
  template <typename T>
  Call& on(const T* handle) noexcept {
    if (!is_live(handle)) [[unlikely]]
      refuse_handle(handle, is_aligned(handle), T::kName);
    return *this;
  }
  template <typename T>
  Call& on_any(const T* handle) noexcept {
    return handle == nullptr ? *this : on(handle);
  }
  template <typename T>
  Call& into(T* pointer, Operation name) noexcept {
    if (pointer == nullptr || !is_aligned(pointer)) [[unlikely]]
      refuse_pointer(pointer, name);
    return *this;
  }
  Call& text(const char* pointer, Operation name) noexcept { return into(pointer, name); }
  /// A struct that the library fills in.
  template <typename T>
  Call& fills(T* pointer, Operation name) noexcept {
    into(pointer, name);
    if (code_ == REMORA_OK && !is_size(pointer->size)) [[unlikely]]
      refuse_size(pointer->size, sizeof(T), name);
    return *this;
  }
  template <typename T>
  Call& fills_any(T* pointer, Operation name) noexcept {
    return pointer == nullptr ? *this : fills(pointer, name);
  }
  /// Copies a struct of the caller, of any version, over `defaults`.
  template <typename T>
  Call& copies(const T* given, T& defaults, Operation name) noexcept {
    fills(given, name);
    if (code_ != REMORA_OK) return *this;
    const std::size_t size = given->size;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
    if (size > sizeof(T) &&
        std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char c) { return c != 0; }))
      refuse_size(size, sizeof(T), name);
    else
      std::memcpy(static_cast<void*>(&defaults), given, std::min(size, sizeof(T)));
    return *this;
  }

  /// Runs `body`, which returns a Status; returns its code.
  template <typename Body>
  int run(const Body& body) noexcept {
    if (code_ != REMORA_OK) [[unlikely]]
      return code_;
    try {
      const Status done = body();
      if (done) [[likely]]
        return REMORA_OK;
      return fail(done.error());
    } catch (...) {
      return fail_with_exception();
    }
  }

  int fail(const Error& error) noexcept { return code_ = hand_over(error, error_); }
  [[nodiscard]] Operation operation() const noexcept { return operation_; }
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  [[nodiscard]] static bool is_size(std::size_t size) noexcept {
    return size >= kStructBytesMin && size <= kStructBytesMax;
  }
  [[gnu::cold]] void refuse_handle(const void* handle, bool aligned, Operation name) noexcept;
  [[gnu::cold]] void refuse_pointer(const void* pointer, Operation name) noexcept;
  [[gnu::cold]] void refuse_size(std::size_t size, std::size_t known, Operation name) noexcept;
  [[gnu::cold]] int fail_with_exception() noexcept;

  Operation operation_;
  remora_error* error_;
  int code_ = REMORA_OK;
};

/// Copies the fields that both know into a struct that the library fills in.
template <typename T>
void fill(T* to, T value) noexcept {
  if (to == nullptr) return;
  value.size = to->size;
  std::memcpy(static_cast<void*>(to), &value, std::min(to->size, sizeof(T)));
}

/// A text for the caller, freed by remora_free().
inline Status hand_over_text(std::string_view text, char** to, std::size_t* length,
                             Operation operation) noexcept {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return Error{Code::kOutOfMemory, operation};
  std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  *to = copy;
  if (length != nullptr) *length = text.size();
  return {};
}

/// The whole call of a function that returns a text of `handle`. `length` may be null.
template <typename Handle, typename Text>
int give_text(Call call, const Handle* handle, char** to, std::size_t* length,
              const Text& text) noexcept {
  return call.on(handle).into(to, "text").run([&] {
    return hand_over_text(text(), to, length, call.operation());
  });
}

/// A time of a queue as a number of C; the maximum of both stands for none.
[[nodiscard]] inline std::uint64_t monotonic_ns(std::chrono::steady_clock::time_point at) noexcept {
  if (at == std::chrono::steady_clock::time_point::max())
    return std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count());
}

/// The value before an atomic operation.
template <typename Value>
Status give_before(const Result<Value>& found, std::uint64_t* before) noexcept {
  if (!found) return found.error();
  *before = *found;
  return {};
}

/// Makes a handle of a Result's value, or hands over its error.
template <typename Handle, typename Value>
Status make_handle(Result<Value>&& value, Handle** to) {
  if (!value) return value.error();
  *to = new Handle{std::move(*value)};
  return {};
}

}  // namespace remora::c
