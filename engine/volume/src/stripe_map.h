#pragma once

/// Where the bytes of a volume are.
///
/// | part | is |
/// |---|---|
/// | unit | stripe_bytes of the volume, contiguous in one group |
/// | line | `width` units, one in each group of a row |
/// | group | units of one region, one of each line of its row |
/// | row | `width` groups |
///
/// Unit u is in line u / width; line n is in row n / units_of_group; the unit is the group's
/// (n mod units_of_group)-th, in the group row × width + u mod width.

#include <cstdint>

#include <remora/assert.h>
#include <remora/result.h>
#include <remora/volume/records.h>

namespace remora::volume::detail {

/// A place in a group.
struct Place {
  std::uint32_t group = 0;
  std::uint64_t offset_bytes = 0;  ///< in the group's region
  std::uint64_t left_bytes = 0;    ///< from there to the end of the stripe unit
};

/// A value. Its functions are part of the data path.
class StripeMap {
 public:
  /// Errors: kProtocol: the record is of no possible volume; the subject names what is wrong.
  static Result<StripeMap> of(const VolumeRecord& record);

  /// Holds no bytes.
  [[nodiscard]] static StripeMap none() noexcept { return {}; }

  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::uint32_t group_count() const noexcept { return group_count_; }
  /// Whether these bytes are in the volume, and there is at least one.
  [[nodiscard, gnu::always_inline]] bool holds(std::uint64_t offset_bytes,
                                               std::uint64_t length_bytes) const noexcept {
    return length_bytes - 1 < size_bytes_ && offset_bytes <= size_bytes_ - length_bytes;
  }
  /// Whether these bytes are in one unit of the volume, and there is at least one.
  [[nodiscard, gnu::always_inline]] bool in_one_unit(std::uint64_t offset_bytes,
                                                     std::uint64_t length_bytes) const noexcept {
    // The sum does not overflow: the last byte has the unit of the first one.
    return length_bytes - 1 <= (~offset_bytes & unit_mask_) &&
           offset_bytes + (length_bytes - 1) < size_bytes_;
  }
  /// The place of a byte of the volume; `offset_bytes` must be less than size_bytes().
  [[nodiscard, gnu::always_inline]] Place place_of(std::uint64_t offset_bytes) const noexcept {
    // 32-bit divisions, which take a third of the time of 64-bit ones: of() bounds the units.
    REMORA_ASSERT_HOT(offset_bytes < size_bytes_, "only a byte of the volume has a place");
    const auto unit = static_cast<std::uint32_t>(offset_bytes >> unit_shift_);
    std::uint32_t line = unit / width_;
    std::uint32_t group = unit - line * width_;
    const std::uint64_t within = offset_bytes & unit_mask_;
    if (line >= units_of_group_) {  // behind the first row
      const std::uint32_t row = line / units_of_group_;
      group += row * width_;
      line -= row * units_of_group_;
    }
    return {.group = group,
            .offset_bytes = (std::uint64_t{line} << unit_shift_) + within,
            .left_bytes = unit_mask_ - within + 1};
  }

 private:
  StripeMap() = default;

  std::uint64_t size_bytes_ = 0;
  std::uint64_t unit_mask_ = 0;  ///< the bytes of a unit, a power of two, less 1
  std::uint32_t unit_shift_ = 0;
  std::uint32_t width_ = 0;
  std::uint32_t units_of_group_ = 0;
  std::uint32_t group_count_ = 0;
};

}  // namespace remora::volume::detail
