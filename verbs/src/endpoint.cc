#include <remora/verbs/endpoint.h>

#include "big_endian.h"

namespace remora::verbs {
namespace {

constexpr std::uint32_t kMaxNumber = 0xffffff;
constexpr std::size_t kEndpointBytes = Endpoint::kWireBytes;
static_assert(DatagramEndpoint::kWireBytes == kEndpointBytes);

// The two forms differ in the meaning of the second number, and in the last byte.
struct WireFields {
  Gid gid;
  std::uint32_t qp_number = 0;
  std::uint32_t number = 0;
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
};

std::array<std::byte, kEndpointBytes> store_fields(const WireFields& fields,
                                                   std::byte kind) noexcept {
  std::array<std::byte, kEndpointBytes> wire{};
  for (std::size_t i = 0; i < fields.gid.bytes.size(); ++i)
    wire[i] = std::byte{fields.gid.bytes[i]};
  detail::store_big(wire.data() + 16, fields.qp_number);
  detail::store_big(wire.data() + 20, fields.number);
  detail::store_big(wire.data() + 24, fields.lid);
  wire[26] = static_cast<std::byte>(fields.mtu);
  wire[27] = kind;
  return wire;
}

Result<WireFields> load_fields(std::span<const std::byte> bytes, std::byte kind,
                               Operation operation) {
  const Error refused{Code::kProtocol, operation};
  if (bytes.size() != kEndpointBytes) return refused.with_limit(bytes.size(), kEndpointBytes);
  WireFields fields;
  for (std::size_t i = 0; i < fields.gid.bytes.size(); ++i)
    fields.gid.bytes[i] = std::to_integer<std::uint8_t>(bytes[i]);
  fields.qp_number = detail::load_big<std::uint32_t>(bytes.data() + 16);
  fields.number = detail::load_big<std::uint32_t>(bytes.data() + 20);
  fields.lid = detail::load_big<std::uint16_t>(bytes.data() + 24);
  const auto mtu = std::to_integer<unsigned>(bytes[26]);
  if (fields.qp_number > kMaxNumber) return refused.with_subject("queue pair number");
  if (mtu < IBV_MTU_256 || mtu > IBV_MTU_4096) return refused.with_subject("path MTU");
  if (bytes[27] != kind) return refused.with_subject("kind of endpoint");
  fields.mtu = static_cast<ibv_mtu>(mtu);
  return fields;
}

constexpr std::byte kConnectedKind{0};
constexpr std::byte kDatagramKind{1};

unsigned mtu_in_bytes(ibv_mtu mtu) noexcept { return 128U << static_cast<unsigned>(mtu); }

}  // namespace

std::array<std::byte, Endpoint::kWireBytes> Endpoint::to_wire() const noexcept {
  return store_fields({gid, qp_number, psn, lid, mtu}, kConnectedKind);
}

Result<Endpoint> Endpoint::from_wire(std::span<const std::byte> bytes) {
  constexpr Operation kOperation = "Endpoint::from_wire";
  const auto fields = load_fields(bytes, kConnectedKind, kOperation);
  if (!fields) return fields.error();
  if (fields->number > kMaxNumber)
    return Error{Code::kProtocol, kOperation}.with_subject("packet sequence number");
  return Endpoint{fields->gid, fields->qp_number, fields->number, fields->lid, fields->mtu};
}

std::ostream& operator<<(std::ostream& out, const Endpoint& endpoint) {
  return out << "qp " << endpoint.qp_number << " psn " << endpoint.psn << " gid "
             << endpoint.gid.to_string() << " lid " << endpoint.lid << " mtu "
             << mtu_in_bytes(endpoint.mtu);
}

std::array<std::byte, DatagramEndpoint::kWireBytes> DatagramEndpoint::to_wire() const noexcept {
  return store_fields({gid, qp_number, qkey, lid, mtu}, kDatagramKind);
}

Result<DatagramEndpoint> DatagramEndpoint::from_wire(std::span<const std::byte> bytes) {
  const auto fields = load_fields(bytes, kDatagramKind, "DatagramEndpoint::from_wire");
  if (!fields) return fields.error();
  return DatagramEndpoint{fields->gid, fields->qp_number, fields->number, fields->lid, fields->mtu};
}

std::ostream& operator<<(std::ostream& out, const DatagramEndpoint& endpoint) {
  return out << "qp " << endpoint.qp_number << " qkey " << endpoint.qkey << " gid "
             << endpoint.gid.to_string() << " lid " << endpoint.lid << " mtu "
             << mtu_in_bytes(endpoint.mtu);
}

}  // namespace remora::verbs
