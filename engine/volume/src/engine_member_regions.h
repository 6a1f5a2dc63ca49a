#pragma once

/// Regions of members on real servers.

#include <string>
#include <string_view>
#include <vector>

#include <remora/engine/engine_share.h>

#include "member_regions.h"
#include "member_servers.h"

namespace remora::volume::detail {

/// Tries each server once, as MemberServers does.
class EngineMemberRegions final : public MemberRegions {
 public:
  explicit EngineMemberRegions(const remora::detail::EngineShare& engine)
      : engine_{engine}, servers_{engine} {}

  bool refresh(ServerRecord& server) override;
  Managed<Member> make(const ServerRecord& server, const RegionSpec& spec) override;
  Result<RegionInfo> stat(const Member& member, const std::vector<std::string>& addresses) override;
  Result<std::vector<std::string>> list(const std::string& server,
                                        const std::vector<std::string>& addresses,
                                        std::string_view prefix) override;
  Result<MemberHeader> read_header(const std::string& server,
                                   const std::vector<std::string>& addresses,
                                   const std::string& region) override;
  Status remove(const std::string& server, const std::vector<std::string>& addresses,
                const std::string& region) override;

 private:
  const remora::detail::EngineShare engine_;
  MemberServers servers_;
};

}  // namespace remora::volume::detail
