#include <remora/verbs/slice.h>

#include "wire.h"

namespace remora::verbs {

std::array<std::byte, RemoteSlice::kWireBytes> RemoteSlice::to_wire() const noexcept {
  std::array<std::byte, kWireBytes> wire{};
  detail::store_big(wire.data(), address_);
  detail::store_big(wire.data() + 8, length_bytes_);
  detail::store_big(wire.data() + 16, rkey_);
  return wire;
}

Result<RemoteSlice> RemoteSlice::from_wire(std::span<const std::byte> bytes) {
  constexpr Operation kOperation = "RemoteSlice::from_wire";
  if (bytes.size() != kWireBytes)
    return Error{Code::kProtocol, kOperation}.with_limit(bytes.size(), kWireBytes);
  const RemoteSlice slice{detail::load_big<std::uint64_t>(bytes.data()),
                          detail::load_big<std::uint64_t>(bytes.data() + 8),
                          detail::load_big<std::uint32_t>(bytes.data() + 16)};
  if (slice.length_bytes_ > UINT64_MAX - slice.address_ || !slice.valid())
    return Error{Code::kProtocol, kOperation}.with_subject("address and length wrap around");
  return slice;
}

}  // namespace remora::verbs
