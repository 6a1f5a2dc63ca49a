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

/// The addresses of one session's server, and which of them answer. Shared by the connections of
/// the session. Thread-safe.
class RailPlan {
 public:
  /// An address that failed is asked again after this time, which doubles up to kMaxPause.
  static constexpr std::chrono::milliseconds kFirstPause{1000};
  static constexpr std::chrono::milliseconds kMaxPause{30'000};

  explicit RailPlan(RailChoice choice) : choice_{std::move(choice)} {}
  [[nodiscard]] const RailChoice& choice() const noexcept { return choice_; }

  /// `first`: the address that the URI names, as it was resolved last. It stays the first of all.
  void set_first(const std::string& first);
  [[nodiscard]] bool is_first(const std::string& address) const;
  /// What the server has told. An address that is there already gets its device.
  void learn(const std::vector<RailAddress>& told);
  /// Those that lanes may go over and that answer, as far as is known, in the order in which they
  /// were learned; then the others, those first that failed longest ago.
  [[nodiscard]] std::vector<RailAddress> in_order() const;
  /// Those that answer, as far as is known.
  [[nodiscard]] std::vector<RailAddress> up() const;
  /// Addresses over which lanes may go, whether they answer or not, in the order in which they were
  /// learned.
  [[nodiscard]] std::vector<RailAddress> usable() const;

  /// A connection over the address failed. The pause until it is asked again doubles for each
  /// failure after it was taken back, until it has worked for 2 * kMaxPause.
  void set_failed(const std::string& address, Clock::time_point now);
  /// An address that failed was asked again, and did not answer. The pause doubles for one over
  /// which no connection was ever made: it may lead nowhere from here.
  void set_silent(const std::string& address, Clock::time_point now);
  /// No lanes can go over the address: it is left out of up() and usable() from now on.
  void leave_out(const std::string& address);
  /// A connection over the address was made.
  void set_up(const std::string& address, Clock::time_point now);
  /// It has failed, and has not answered since.
  [[nodiscard]] bool has_failed(const std::string& address) const;
  /// The session has as many rails as it may have without this one.
  void set_spare(const std::string& address);
  /// The next address that failed and is to be asked again; empty: none is due.
  [[nodiscard]] std::string due(Clock::time_point now) const;
  /// An address that failed has answered: the next connection tries it.
  void set_answered(const std::string& address);
  /// An address has answered since it failed, and no connection was tried over it yet.
  [[nodiscard]] bool any_answered() const;

 private:
  struct Known {
    RailAddress address;
    bool failed = false;
    bool answered = false;  ///< since it failed
    bool left_out = false;
    bool worked = false;  ///< a connection over it was made once
    Clock::time_point failed_at{};
    std::optional<Clock::time_point> up_since{};  ///< a connection over it, since it failed
    std::chrono::milliseconds pause{0};
  };
  [[nodiscard]] Known* find(const std::string& address) REMORA_REQUIRES(mutex_);

  const RailChoice choice_;
  mutable remora::detail::Mutex mutex_;
  std::vector<Known> known_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::transport
