#pragma once

/// Result and Error: the outcome of every function of Remora.
///
/// A fallible function returns `Result<T>` (or `Status`, which is `Result<void>`). An `Error` is a
/// small, trivially copyable value: a code to branch on, a reason that refines it, the call that
/// failed, its errno, the NIC's completion status, the requested and the allowed amount, and its
/// subject. Its text is made only when it is printed and names a remedy if one is known.
///
/// No function throws, except `Result::value()` on an error, which is for examples and scripts: it
/// throws `remora::Exception`. Without exceptions (-fno-exceptions) it writes the error's text to
/// stderr and ends the program by std::abort().
///
/// Thread safety: values; distinct objects may be used from distinct threads.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <tl/expected.hpp>
#include <utility>

#include <remora/error.h>

namespace remora {

/// Thrown by `Result::value()` on an error, and by no other function of the library.
class Exception : public std::exception {
 public:
  /// Copies `error`, and makes its message. Allocates.
  explicit Exception(const Error& error) : error_{error}, text_{error.message()} {}
  /// The error's message; valid as long as this object.
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  /// The error of the Result.
  [[nodiscard]] const Error& error() const noexcept { return error_; }

 private:
  Error error_;
  std::string text_;
};

namespace detail {

/// Two functions, of which each source file uses one: so a program may have source files with and
/// without exceptions.
#if defined(__cpp_exceptions)
/// Throws Exception.
[[noreturn, gnu::cold]] inline void throw_error(const Error& error) { throw Exception{error}; }
#else
/// Writes the error's text to stderr and aborts.
[[noreturn, gnu::cold]] inline void end_program(const Error& error) noexcept {
  std::fprintf(stderr, "remora: value() of an error: %s\n", error.message().c_str());
  std::abort();
}
#endif

/// For Result::value().
[[noreturn, gnu::always_inline]] inline void refuse_value(const Error& error) {
#if defined(__cpp_exceptions)
  throw_error(error);
#else
  end_program(error);
#endif
}

}  // namespace detail

/// A value or an Error. The caller must check which.
///
/// `if (!result) return result.error();` is the idiom; `result.value()` throws `Exception` on an
/// error, or ends the program without exceptions (see the top of this file); `*result` and
/// `result->` on an error are programmer errors (undefined).
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  /// Success, with a value.
  // NOLINTNEXTLINE(google-explicit-constructor): functions return plain values and errors.
  Result(T value) : state_{std::move(value)} {}
  /// Failure.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(const Error& error) : state_{tl::unexpect, error} {}

  /// True: there is a value.
  [[nodiscard]] bool ok() const noexcept { return state_.has_value(); }
  /// As ok().
  explicit operator bool() const noexcept { return ok(); }

  /// Only when !ok().
  [[nodiscard]] const Error& error() const noexcept { return state_.error(); }

  /// The value; throws on an error (see above). Always inline, so that a source with exceptions and
  /// one without them do not share these functions.
  [[gnu::always_inline]] T& value() & { return check(), *state_; }
  /// As above.
  [[gnu::always_inline]] const T& value() const& { return check(), *state_; }
  /// As above; moves the value out.
  [[gnu::always_inline]] T value() && { return check(), std::move(*state_); }

  /// The value. Only when ok().
  T& operator*() & noexcept { return *state_; }
  /// As above.
  const T& operator*() const& noexcept { return *state_; }
  /// As above; the value may be moved out.
  T&& operator*() && noexcept { return std::move(*state_); }
  /// A member of the value. Only when ok().
  T* operator->() noexcept { return &*state_; }
  /// As above.
  const T* operator->() const noexcept { return &*state_; }

 private:
  [[gnu::always_inline]] void check() const {
    if (!ok()) detail::refuse_value(state_.error());
  }
  tl::expected<T, Error> state_;
};

/// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  /// Success.
  Result() noexcept = default;
  /// Failure.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(const Error& error) : state_{tl::unexpect, error} {}

  /// True: success.
  [[nodiscard]] bool ok() const noexcept { return state_.has_value(); }
  /// As ok().
  explicit operator bool() const noexcept { return ok(); }
  /// Only when !ok().
  [[nodiscard]] const Error& error() const noexcept { return state_.error(); }
  /// Does nothing on success; throws on an error, as Result<T>::value().
  [[gnu::always_inline]] void value() const {
    if (!ok()) detail::refuse_value(state_.error());
  }

 private:
  tl::expected<void, Error> state_;
};

/// The result of a function that has nothing to return but its outcome.
using Status = Result<void>;

/// The success of a function that returns Status.
[[nodiscard]] inline Status ok_status() noexcept { return {}; }

}  // namespace remora
