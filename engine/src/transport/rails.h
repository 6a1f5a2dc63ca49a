#pragma once

/// Rails: pairs of a client's device and a server's device that carry the lanes of one session.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remora::transport {

/// An address of the server, and the server's device that has it.
struct RailAddress {
  std::string address{};  ///< numeric, without a port
  std::string device{};   ///< the server's name for its device

  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

/// The rail of a lane, for reports and for choosing a lane.
struct LaneRail {
  std::string device{};              ///< the client's device
  std::string server_device{};       ///< empty: the server did not tell
  std::string home_device{};         ///< the server's, if all rails answer; empty: server_device
  std::string address{};             ///< of the server
  std::uint32_t megabits_per_s = 0;  ///< of the client's port; 0: not known
  int memory_node = -1;              ///< of the client's device; -1: not known, or one node only
};

/// A hash of the name, for a comparison on the data path. Two names rarely have the same number; 0
/// is that of the empty name.
[[nodiscard]] constexpr std::uint32_t device_number(std::string_view name) noexcept {
  if (name.empty()) return 0;
  std::uint32_t hash = 2'166'136'261U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return hash == 0 ? 1 : hash;
}

/// Assigns a rail to each lane, by the lane's number, for the first `homes.size()` lanes or more;
/// then the assignment repeats. `homes`: the addresses of the rails that lanes use in turn when all
/// answer. `rails`: the addresses of the rails that answer, at least one. A lane whose home answers
/// uses it, so it returns to its device. The other lanes use rails that are no lane's home, then
/// all rails in turn.
[[nodiscard]] std::vector<std::size_t> rails_of_lanes(const std::vector<std::string>& homes,
                                                      const std::vector<std::string>& rails);

}  // namespace remora::transport
