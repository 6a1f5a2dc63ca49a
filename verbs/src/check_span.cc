#include "check_span.h"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace remora::verbs::detail {

std::string hexadecimal(std::string_view before, std::uint64_t value) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "0x%" PRIx64, value);
  return std::string{before} + text.data();
}

Status check_span(std::span<std::byte> bytes, Operation operation) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const Error wrong{Code::kInvalidArgument, operation};
  const std::uint64_t room = UINTPTR_MAX - address;
  if (bytes.empty() || address == 0) {
    const Error named = wrong.with_subject(hexadecimal("no bytes at ", address));
    return bytes.empty() ? named : named.with_limit(bytes.size(), 0);
  }
  if (bytes.size() > room)
    return wrong.with_subject(hexadecimal("bytes at ", address) + " wrap around")
        .with_limit(bytes.size(), room);
  return {};
}

}  // namespace remora::verbs::detail
