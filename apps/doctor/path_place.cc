#include "doctor/path_place.h"

#include <string>

namespace remora::apps::doctor {
namespace {

Place place_of_refusal(const Error& error) noexcept {
  switch (error.reason()) {
    case Reason::kAuthentication: return {Step::kKey, Side::kServer};
    case Reason::kDraining:
    case Reason::kNotRemora:
    case Reason::kHttp:
    case Reason::kVersion: return {Step::kHandshake, Side::kServer};
    case Reason::kOtherUser: return {Step::kConnect, Side::kClient};
    default: return {Step::kConnect, Side::kServer};
  }
}

/// Whether a call of this host failed: an answer of a server names the request.
bool is_of_verbs(const Error& error) noexcept {
  return error.operation().starts_with("ibv_") || error.operation().starts_with("rdma_");
}

Place place_of_system(const Error& error) noexcept {
  if (error.reason() == Reason::kOtherUser || error.reason() == Reason::kWorldWritable)
    return {Step::kConnect, Side::kClient};
  return {Step::kMemory, Side::kClient};
}

std::string_view why_of(Step step) noexcept {
  switch (step) {
    case Step::kName: return "the name has no address";
    case Step::kRoute: return "packets do not reach the server's address";
    case Step::kOffer: return "one of the two hosts does not have this transport";
    case Step::kConnect: return "no connection comes about";
    case Step::kHandshake: return "the connection is there, and the two sides do not agree";
    case Step::kKey: return "the server does not know this client by its name and key";
    case Step::kRights: return "the server does not allow it to this client";
    case Step::kMemory: return "memory or a device cannot be used";
    case Step::kOperation: return "the path is there, and bytes do not travel over it";
  }
  return {};
}

std::string_view command_of(const Place& place) noexcept {
  switch (place.step) {
    case Step::kName: return "getent hosts HOST; cat /etc/resolv.conf";
    case Step::kRoute: return "ip route get ADDRESS";
    case Step::kKey: return "remora doctor URI --client NAME --key-file FILE";
    case Step::kRights: return "on the server's host: remora config show FILE   # clients, access";
    case Step::kMemory: return place.side == Side::kClient ? "remora doctor" : "remora usage URI";
    case Step::kConnect:
      if (place.side == Side::kNetwork) return "on the server's host: sudo nft list ruleset";
      return "on the server's host: systemctl status remora-server; ss -ltnp";
    case Step::kOffer:
    case Step::kHandshake:
    case Step::kOperation:
      return "on the server's host: remora doctor --config FILE; journalctl -u remora-server";
  }
  return {};
}

}  // namespace

std::string_view to_string(Step step) noexcept {
  switch (step) {
    case Step::kName: return "name";
    case Step::kRoute: return "route";
    case Step::kOffer: return "offer";
    case Step::kConnect: return "connect";
    case Step::kHandshake: return "handshake";
    case Step::kKey: return "key";
    case Step::kRights: return "rights";
    case Step::kMemory: return "memory";
    case Step::kOperation: return "operation";
  }
  return "operation";
}

std::string_view to_string(Side side) noexcept {
  switch (side) {
    case Side::kClient: return "this host";
    case Side::kNetwork: return "the network between";
    case Side::kServer: return "the server";
  }
  return "this host";
}

Place place_of(const Error& error) noexcept {
  if (error.reason() == Reason::kNotOffered) return {Step::kOffer, Side::kServer};
  if (error.reason() == Reason::kAuthentication) return {Step::kKey, Side::kServer};
  switch (error.code()) {
    case Code::kNotFound:
      return {error.operation() == "getaddrinfo" ? Step::kName : Step::kOffer, Side::kClient};
    case Code::kUnreachable:
      return {Step::kRoute, error.system_errno() != 0 ? Side::kClient : Side::kNetwork};
    case Code::kTimedOut: return {Step::kConnect, Side::kNetwork};
    case Code::kConnectionRefused: return place_of_refusal(error);
    case Code::kConnectionLost:
    case Code::kProtocol: return {Step::kHandshake, Side::kServer};
    case Code::kNoRight:
    case Code::kUnknownRegion:
    case Code::kLimitExceeded:
    case Code::kAlreadyExists: return {Step::kRights, Side::kServer};
    case Code::kUnsupported:
    case Code::kWrongAtomicDomain: return {Step::kOffer, Side::kServer};
    case Code::kAccessRefused:
    case Code::kIndeterminate:
    case Code::kStaleRegion: return {Step::kOperation, Side::kServer};
    case Code::kOutOfMemory:
      return {Step::kMemory, is_of_verbs(error) ? Side::kClient : Side::kServer};
    case Code::kPermissionDenied:
    case Code::kProvider:
    case Code::kSystem: return place_of_system(error);
    default: return {Step::kConnect, Side::kClient};
  }
}

bool is_absent(const Error& error) noexcept {
  return place_of(error).step == Step::kOffer || error.operation() == "find the server over shm";
}

Finding broken_path(TransportKind transport, const Error& error, bool named) {
  const Place place = place_of(error);
  Finding finding;
  finding.id =
      "path." + std::string{to_string(transport)} + "." + std::string{to_string(place.step)};
  finding.colour = named ? Colour::kRed : is_absent(error) ? Colour::kNotChecked : Colour::kYellow;
  finding.found = std::string{to_string(transport)} + " breaks at the step '" +
                  std::string{to_string(place.step)} + "', on the side of " +
                  std::string{to_string(place.side)} + ": " + error.message();
  finding.why = why_of(place.step);
  finding.command = command_of(place);
  return finding;
}

}  // namespace remora::apps::doctor
