#include "base/crc32c.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace remora {

namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // bits reversed
constexpr std::size_t kSlices = 8;
using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

/// kTables[n][b]: the part of the sum that comes from byte b when n more bytes follow it.
constexpr Tables kTables = [] {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
    tables[0][byte] = crc;
  }
  for (std::size_t slice = 1; slice < kSlices; ++slice)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[slice - 1][byte];
      tables[slice][byte] = (before >> 8U) ^ tables[0][before & 0xffU];
    }
  return tables;
}();

/// The next eight bytes as a little-endian number, for the tables and for the instruction.
std::uint64_t eight(const std::byte* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

using Update = std::uint32_t (*)(const std::byte*, std::size_t, std::uint32_t) noexcept;

std::uint32_t update_by_tables(const std::byte* at, std::size_t length,
                               std::uint32_t crc) noexcept {
  for (; length >= kSlices; at += kSlices, length -= kSlices) {
    const std::uint64_t word = eight(at) ^ crc;
    crc = 0;
    for (std::size_t i = 0; i < kSlices; ++i)
      crc ^= kTables[kSlices - 1 - i][(word >> (8 * i)) & 0xffU];
  }
  for (; length > 0; ++at, --length)
    crc = (crc >> 8U) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*at)) & 0xffU];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t update_by_instruction(const std::byte* at,
                                                                      std::size_t length,
                                                                      std::uint32_t crc) noexcept {
  std::uint64_t wide = crc;
  for (; length >= 8; at += 8, length -= 8) wide = __builtin_ia32_crc32di(wide, eight(at));
  crc = static_cast<std::uint32_t>(wide);
  for (; length > 0; ++at, --length)
    crc = __builtin_ia32_crc32qi(crc, std::to_integer<unsigned char>(*at));
  return crc;
}
bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
#elif defined(__aarch64__)
__attribute__((target("+crc"))) std::uint32_t update_by_instruction(const std::byte* at,
                                                                    std::size_t length,
                                                                    std::uint32_t crc) noexcept {
  for (; length >= 8; at += 8, length -= 8) crc = __crc32cd(crc, eight(at));
  for (; length > 0; ++at, --length) crc = __crc32cb(crc, std::to_integer<unsigned char>(*at));
  return crc;
}
bool has_instruction() noexcept { return (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
constexpr Update update_by_instruction = update_by_tables;
bool has_instruction() noexcept { return false; }
#endif

std::uint32_t choose_and_update(const std::byte* at, std::size_t length,
                                std::uint32_t crc) noexcept;

/// The first call chooses the function.
constinit std::atomic<Update> chosen{&choose_and_update};

std::uint32_t choose_and_update(const std::byte* at, std::size_t length,
                                std::uint32_t crc) noexcept {
  const Update update = has_instruction() ? update_by_instruction : update_by_tables;
  chosen.store(update, std::memory_order_relaxed);
  return update(at, length, crc);
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return ~chosen.load(std::memory_order_relaxed)(bytes.data(), bytes.size(), ~before);
}

std::uint32_t crc32c_software(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return ~update_by_tables(bytes.data(), bytes.size(), ~before);
}

}  // namespace remora
