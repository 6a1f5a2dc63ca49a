#pragma once

/// The regions of members on the servers of a cluster: those of the engine, or a fake.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/region.h>
#include <remora/result.h>
#include <remora/volume/management.h>
#include <remora/volume/records.h>

#include "member_header.h"

namespace remora::volume::detail {

/// Thread-safe. Each function blocks, at most for the engine's limits on control requests.
class MemberRegions {
 public:
  virtual ~MemberRegions() = default;
  MemberRegions(const MemberRegions&) = delete;
  MemberRegions& operator=(const MemberRegions&) = delete;

  /// Asks the server how much of its pool is free: its record is some seconds old. False: it does
  /// not answer, or has other memory than the record says.
  virtual bool refresh(ServerRecord& server) = 0;
  /// Creates the region `spec` on `server`, whose memory must be that of its record.
  virtual Managed<Member> make(const ServerRecord& server, const RegionSpec& spec) = 0;
  /// The description of a member's region. Errors: kUnknownRegion; kStaleRegion (its server has
  /// other memory).
  virtual Result<RegionInfo> stat(const Member& member,
                                  const std::vector<std::string>& addresses) = 0;
  /// The names of the regions on that server that begin with `prefix`.
  virtual Result<std::vector<std::string>> list(const std::string& server,
                                                const std::vector<std::string>& addresses,
                                                std::string_view prefix) = 0;
  /// The header of a mirror's region. Errors: kProtocol and kUnsupported (it is none, or a damaged
  /// one); those of Engine::open_region().
  virtual Result<MemberHeader> read_header(const std::string& server,
                                           const std::vector<std::string>& addresses,
                                           const std::string& region) = 0;
  /// Revokes all grants first. A region that is not there is no error.
  virtual Status remove(const std::string& server, const std::vector<std::string>& addresses,
                        const std::string& region) = 0;

 protected:
  MemberRegions() = default;
};

}  // namespace remora::volume::detail
