#pragma once

/// What every fuzzer uses: its input, read from the front, and the check that ends the process.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

namespace remora::fuzz {

/// The bytes of one run. What is asked for beyond the end is zero.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) noexcept
      : left_{reinterpret_cast<const std::byte*>(data), size} {}

  [[nodiscard]] bool empty() const noexcept { return left_.empty(); }
  /// Little endian on the machines that fuzz: corpora are theirs.
  template <typename T>
  T take() noexcept {
    T value{};
    const auto part = take_bytes(sizeof value);
    if (!part.empty()) std::memcpy(&value, part.data(), part.size());
    return value;
  }
  std::uint8_t byte() noexcept { return take<std::uint8_t>(); }
  bool flag() noexcept { return (byte() & 1U) != 0; }
  /// Below `end`.
  std::uint32_t below(std::uint32_t end) noexcept {
    return end <= 256 ? byte() % end : take<std::uint16_t>() % end;
  }
  /// At most `most`, fewer at the end.
  std::span<const std::byte> take_bytes(std::size_t most) noexcept {
    const auto part = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(part.size());
    return part;
  }

 private:
  std::span<const std::byte> left_;
};

/// A finding: the process ends, and libFuzzer keeps the input.
[[noreturn]] inline void violated(std::string_view what) {
  std::fprintf(stderr, "\nproperty violated: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

/// What must hold, whatever the input is.
inline void require(bool holds, std::string_view what) {
  if (!holds) violated(what);
}

}  // namespace remora::fuzz
