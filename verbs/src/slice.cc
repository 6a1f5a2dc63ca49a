#include <ios>
#include <string_view>

#include <remora/verbs/slice.h>

#include "big_endian.h"

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

namespace {

std::ostream& print(std::ostream& out, std::uint64_t address, std::uint64_t length_bytes,
                    std::string_view key_name, std::uint32_t key) {
  const std::ios_base::fmtflags flags = out.flags();
  out << std::dec << length_bytes << " bytes at 0x" << std::hex << address << std::dec << ' '
      << key_name << ' ' << key;
  out.flags(flags);
  return out;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const LocalSlice& slice) {
  if (!slice.valid()) return out << "invalid slice";
  return print(out, slice.address(), slice.length_bytes(), "lkey", slice.lkey());
}

std::ostream& operator<<(std::ostream& out, const RemoteSlice& slice) {
  if (!slice.valid()) return out << "invalid slice";
  return print(out, slice.address(), slice.length_bytes(), "rkey", slice.rkey());
}

}  // namespace remora::verbs
