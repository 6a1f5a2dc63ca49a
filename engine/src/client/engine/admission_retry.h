#pragma once

/// Repeats attempts to reach a server until the server admits the client.

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include <remora/engine/control.h>
#include <remora/engine/uri.h>
#include <remora/result.h>

#include "client/engine/attempt.h"

namespace remora::detail {

/// The attempts of one call, for EngineOptions::connect_for. Logs only the first failure and the
/// end. Borrows its arguments. One thread at a time.
class AdmissionRetry {
 public:
  /// `connect_for` 0: one attempt only.
  AdmissionRetry(std::chrono::nanoseconds connect_for, const Uri& uri,
                 const ControlLimits& limits) noexcept
      : connect_for_{connect_for}, uri_{uri}, limits_{limits} {}

  /// Calls `make` until it succeeds, the server has answered, an error is not temporary, or the
  /// time is up. Returns the result of the last call.
  template <typename Make>
  auto run(const Make& make) -> decltype(make(std::declval<Attempt&>())) {
    std::optional<decltype(make(std::declval<Attempt&>()))> made;
    repeat([&](Attempt& attempt) -> const Error* {
      made.emplace(make(attempt));
      return *made ? nullptr : &made->error();
    });
    return std::move(*made);
  }

 private:
  /// Makes one attempt. Returns null if it has succeeded, else its error.
  using Try = std::function<const Error*(Attempt&)>;
  void repeat(const Try& try_once);

  const std::chrono::nanoseconds connect_for_;
  const Uri& uri_;
  const ControlLimits& limits_;
};

}  // namespace remora::detail
