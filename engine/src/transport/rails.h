#pragma once

/// Rails: the pairs of a device here and a device of the server over which the lanes of one session
/// go.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"

namespace remora::transport {

/// What EngineOptions::rails or `rails=` of a URI asks for.
struct RailChoice {
  static constexpr std::uint32_t kMaxRails = 8;
  std::uint32_t max = 1;               ///< rails of one session; 1: the session stays on one device
  std::vector<std::string> devices{};  ///< names of devices here; empty: any

  /// "auto" (kMaxRails), a number from 1 to kMaxRails, or names of devices with commas between
  /// them. Errors: kInvalidArgument, with the text as subject.
  [[nodiscard]] static Result<RailChoice> parse(std::string_view text);
  [[nodiscard]] bool several() const noexcept { return max > 1; }
  [[nodiscard]] bool allows(std::string_view device) const noexcept;
};

/// An address of the server, and its device.
struct RailAddress {
  std::string address{};  ///< numeric, without a port
  std::string device{};   ///< the server's name for its device

  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

/// The rail of a lane, for reports and for the choice of a lane.
struct LaneRail {
  std::string device{};              ///< here
  std::string server_device{};       ///< empty: the server did not tell
  std::string home_device{};         ///< of the server, when all rails answer; empty: server_device
  std::string address{};             ///< of the server
  std::uint32_t megabits_per_s = 0;  ///< of the port here; 0: not known
  int memory_node = -1;              ///< of the device here; -1: not known, or there is one only
};

/// Two names have one number only by a rare chance; 0 is that of the empty name. For a comparison
/// on the data path.
[[nodiscard]] constexpr std::uint32_t device_number(std::string_view name) noexcept {
  if (name.empty()) return 0;
  std::uint32_t hash = 2'166'136'261U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return hash == 0 ? 1 : hash;
}

/// Which rail each lane goes over, by its number, for the first `homes.size()` lanes or more; then
/// they repeat. `homes`: the addresses of the rails that lanes go over, in turn, when all answer.
/// `rails`: the addresses of those that answer, at least one. A lane whose home answers goes over
/// it: so it returns to its device. The others take rails that are no lane's home, then all in
/// turn.
[[nodiscard]] std::vector<std::size_t> rails_of_lanes(const std::vector<std::string>& homes,
                                                      const std::vector<std::string>& rails);

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
