#include "transport/rails.h"

#include <algorithm>

namespace remora::transport {

std::vector<std::size_t> rails_of_lanes(const std::vector<std::string>& homes,
                                        const std::vector<std::string>& rails) {
  std::vector<std::size_t> turns(std::max(homes.size(), rails.size()), rails.size());
  std::vector<std::size_t> others;
  for (std::size_t rail = 0; rail < rails.size(); ++rail) {
    const auto home = std::find(homes.begin(), homes.end(), rails[rail]);
    if (home == homes.end())
      others.push_back(rail);
    else
      turns[static_cast<std::size_t>(home - homes.begin())] = rail;
  }
  std::size_t next = 0;
  for (std::size_t& rail : turns) {
    if (rail < rails.size()) continue;
    rail = next < others.size() ? others[next] : (next - others.size()) % rails.size();
    ++next;
  }
  return turns;
}

}  // namespace remora::transport
