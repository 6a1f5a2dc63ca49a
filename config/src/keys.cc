#include "keys.h"

#include <vector>

#include "key_tables.h"

namespace remora::config {

std::span<const Key> keys() {
  static const std::vector<Key> all = [] {
    std::vector<Key> joined;
    for (const std::span<const Key> part : {network_keys(), memory_keys(), client_keys(),
                                            limit_keys(), report_keys(), cluster_keys()})
      joined.insert(joined.end(), part.begin(), part.end());
    return joined;
  }();
  return all;
}

}  // namespace remora::config
