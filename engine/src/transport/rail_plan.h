#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/mutex.h>

#include "base/clock.h"
#include "transport/rail_choice.h"
#include "transport/rails.h"

namespace remora::transport {

/// The addresses of one session's server, and whether each of them answers. Shared by the
/// connections of the session. Thread-safe.
class RailPlan {
 public:
  /// The pause before an address that failed is tried again. It doubles up to kMaxPause.
  static constexpr std::chrono::milliseconds kFirstPause{1000};
  static constexpr std::chrono::milliseconds kMaxPause{30'000};

  explicit RailPlan(RailChoice choice) : choice_{std::move(choice)} {}
  [[nodiscard]] const RailChoice& choice() const noexcept { return choice_; }

  /// Sets the address that the URI names, as it was resolved last. It stays the first of all.
  void set_first(const std::string& first);
  [[nodiscard]] bool is_first(const std::string& address) const;
  /// Adds the addresses that the server has told. A known address gets its device.
  void learn(const std::vector<RailAddress>& told);
  /// Addresses over which lanes may go: first those that answer, as far as is known, in the order
  /// in which they were learned; then the others, the longest failed first.
  [[nodiscard]] std::vector<RailAddress> in_order() const;
  /// Addresses that answer, as far as is known.
  [[nodiscard]] std::vector<RailAddress> up() const;
  /// Addresses over which lanes may go, whether they answer or not, in the order in which they were
  /// learned.
  [[nodiscard]] std::vector<RailAddress> usable() const;

  /// A connection over the address failed. The pause before it is tried again doubles with each
  /// failure after a recovery, until the address has worked for 2 * kMaxPause.
  void set_failed(const std::string& address, Clock::time_point now);
  /// An address that failed was tried again, and did not answer. The pause doubles if no connection
  /// was ever made over the address: it may lead nowhere from this host.
  void set_silent(const std::string& address, Clock::time_point now);
  /// No lanes can go over the address: it no longer appears in up() and usable().
  void leave_out(const std::string& address);
  /// A connection over the address has been made.
  void set_up(const std::string& address, Clock::time_point now);
  /// Whether the address has failed, and has not answered since.
  [[nodiscard]] bool has_failed(const std::string& address) const;
  /// The session has as many rails as it may have without this address.
  void set_spare(const std::string& address);
  /// The next failed address whose pause is over; empty: none.
  [[nodiscard]] std::string due(Clock::time_point now) const;
  /// An address that failed has answered: the next connection tries it.
  void set_answered(const std::string& address);
  /// Whether an address has answered since it failed, and no connection over it was tried since.
  [[nodiscard]] bool any_answered() const;

 private:
  struct Known {
    RailAddress address;
    bool failed = false;
    bool answered = false;  ///< since it failed
    bool left_out = false;
    bool worked = false;  ///< a connection over it was made at least once
    Clock::time_point failed_at{};
    std::optional<Clock::time_point> up_since{};  ///< begin of its connection after the failure
    std::chrono::milliseconds pause{0};
  };
  [[nodiscard]] Known* find(const std::string& address) REMORA_REQUIRES(mutex_);

  const RailChoice choice_;
  mutable remora::detail::Mutex mutex_;
  std::vector<Known> known_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::transport
