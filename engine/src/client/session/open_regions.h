#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <remora/mutex.h>

namespace remora::detail {

/// The grants of a session, for Engine::status_json(). The session owns it. Thread-safe.
class OpenRegions {
 public:
  struct Region {
    std::string name;
    std::string reason;  ///< why the transport was chosen
  };

  OpenRegions() = default;
  ~OpenRegions();
  OpenRegions(const OpenRegions&) = delete;
  OpenRegions& operator=(const OpenRegions&) = delete;

  void add(std::uint64_t grant_id, Region region);
  void remove(std::uint64_t grant_id) noexcept;
  [[nodiscard]] std::vector<Region> all() const;

 private:
  mutable Mutex mutex_;
  std::map<std::uint64_t, Region> regions_ REMORA_GUARDED_BY(mutex_);  ///< by the id of the grant
};

}  // namespace remora::detail
