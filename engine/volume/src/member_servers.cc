#include "member_servers.h"

#include <utility>

namespace remora::volume {

Result<Session> MemberServers::connect_one(const std::string& address) const {
  const std::string uri = "remora://" + address;
  auto session = engine_.connect(uri);
  if (session && session->transport() == TransportKind::kShm)
    return engine_.connect(uri + "?transport=tcp");
  return session;
}

Result<Session> MemberServers::connect(const std::string& server,
                                       const std::vector<std::string>& addresses) {
  const remora::detail::MutexLock lock{mutex_};
  if (const auto found = sessions_.find(server); found != sessions_.end()) return found->second;
  Result<Session> session{Error{Code::kNotFound, "address of a server"}.with_subject(server)};
  for (const std::string& address : addresses) {
    auto next = connect_one(address);
    // What one address has said about the versions tells more than that another is silent.
    if (next || session.error().reason() != Reason::kVersion) session = std::move(next);
    if (session) break;
  }
  return sessions_.emplace(server, std::move(session)).first->second;
}

}  // namespace remora::volume
