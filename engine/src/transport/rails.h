#pragma once

/// Rails: the pairs of a device here and a device of the server over which the lanes of one session
/// go.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remora::transport {

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

}  // namespace remora::transport
