/// Misuse: noticed before anything is sent, with the place in the volume.

#include <limits>

#include "volume_rig.h"

namespace remora::volume::test {
namespace {

class VolumeErrorsTest : public VolumeRig {
 protected:
  void SetUp() override {
    VolumeRig::SetUp();
    volume_.emplace(open(make({.unused_bytes = 4_KiB})));
    size_ = volume_->size_bytes();
  }
  /// The error of the only operation of a queue.
  template <typename Take>
  Error queued(const Take& take) {
    VolumeQueue queue = volume_->queue({.depth = 2}).value();
    EXPECT_TRUE(take(queue));
    EXPECT_TRUE(queue.submit().ok());
    const VolumeCompletions found = queue.wait(1);
    EXPECT_EQ(found.size(), 1U);
    EXPECT_FALSE(found[0].ok());
    return found[0].ok() ? Error{Code::kInternal} : found[0].error();
  }

  std::optional<Volume> volume_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(16_KiB);
};

TEST_F(VolumeErrorsTest, BytesBehindTheEndAreOutOfRange) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t at : {size_, size_ - 100, kMax, kMax - 100}) {
    const Status read = volume_->read(ByteOffset{at}, bytes_);
    EXPECT_CODE(read, kOutOfRange);
    EXPECT_TRUE(read.error().subject().starts_with("v, a volume of ")) << read.error();
    EXPECT_EQ(read.error().offset_bytes(), at);
    EXPECT_EQ(read.error().length_bytes(), bytes_.size());
    EXPECT_CODE(volume_->write(ByteOffset{at}, bytes_), kOutOfRange);
    EXPECT_CODE(volume_->write_zeroes(ByteOffset{at}, 200), kOutOfRange);
    EXPECT_CODE(volume_->write_zeroes(ByteOffset{at}, kMax), kOutOfRange);
    EXPECT_EQ(queued([&](VolumeQueue& queue) { return queue.read(ByteOffset{at}, bytes_); }).code(),
              Code::kOutOfRange);
    EXPECT_EQ(
        queued([&](VolumeQueue& queue) { return queue.write(ByteOffset{at}, bytes_); }).code(),
        Code::kOutOfRange);
    EXPECT_EQ(
        queued([&](VolumeQueue& queue) { return queue.write_zeroes(ByteOffset{at}, 200); }).code(),
        Code::kOutOfRange);
  }
  EXPECT_CODE(volume_->read(Block{size_ / 4_KiB}, bytes_), kOutOfRange);
  EXPECT_CODE(volume_->write(Block{kMax}, bytes_), kOutOfRange);
  EXPECT_CODE(volume_->fetch_add(ByteOffset{size_}, 1), kOutOfRange);
  EXPECT_CODE(volume_->compare_swap(ByteOffset{size_ - 4}, 0, 1), kOutOfRange);
  EXPECT_EQ(
      queued([&](VolumeQueue& queue) { return queue.fetch_add(ByteOffset{size_}, 1); }).code(),
      Code::kOutOfRange);
}

TEST_F(VolumeErrorsTest, MisalignedAtomicsAreRefusedAlsoAcrossUnits) {
  for (const std::uint64_t at : {std::uint64_t{4}, 4_KiB - 4, 64_KiB * 3 - 4}) {
    EXPECT_CODE(volume_->fetch_add(ByteOffset{at}, 1), kMisaligned);
    EXPECT_CODE(volume_->compare_swap(ByteOffset{at}, 0, 1), kMisaligned);
    EXPECT_EQ(queued([&](VolumeQueue& queue) { return queue.fetch_add(ByteOffset{at}, 1); }).code(),
              Code::kMisaligned);
  }
}

TEST_F(VolumeErrorsTest, NoBytesAreAnInvalidArgumentWithTheReasonOfTheEngine) {
  const std::span<std::byte> none{};
  EXPECT_CODE(volume_->read(ByteOffset{0}, none), kInvalidArgument);
  EXPECT_CODE(volume_->write(ByteOffset{size_}, none), kInvalidArgument);
  const Status zeroes = volume_->write_zeroes(ByteOffset{0}, 0);
  EXPECT_CODE(zeroes, kInvalidArgument);
  EXPECT_EQ(zeroes.error().reason(), Reason::kZeroLength);
  Slot empty;
  const Status slot = volume_->read(ByteOffset{0}, Target{empty});
  EXPECT_CODE(slot, kInvalidArgument);
  const RegisteredMemory memory = engine().register_memory(bytes_).value();
  const Status outside = volume_->read(ByteOffset{0}, Target{memory, 1, bytes_.size()});
  EXPECT_CODE(outside, kOutOfRange);
  EXPECT_EQ(outside.error().reason(), Reason::kOutsideMemory);
  EXPECT_EQ(queued([&](VolumeQueue& queue) { return queue.read(ByteOffset{0}, none); }).code(),
            Code::kInvalidArgument);
}

TEST_F(VolumeErrorsTest, NullPointersAreInvalidArgumentsWholeAndInParts) {
  for (const std::size_t length : {std::size_t{8}, bytes_.size()}) {
    const std::span<std::byte> null{static_cast<std::byte*>(nullptr), length};
    const Status read = volume_->read(ByteOffset{0}, null);
    EXPECT_CODE(read, kInvalidArgument);
    EXPECT_EQ(read.error().reason(), Reason::kNullPointer);
    EXPECT_CODE(volume_->write(ByteOffset{0}, null), kInvalidArgument);
  }
}

TEST_F(VolumeErrorsTest, WithoutARightAnOperationNamesGroupAndPlace) {
  const Volume reader = open(make(), {.rights = Rights::kRead});
  const Status written = reader.write(ByteOffset{5 * 4_KiB + 100}, std::span{bytes_}.first(10));
  EXPECT_CODE(written, kNoRight);
  EXPECT_EQ(written.error().subject(), "v, group 2, member s2");
  EXPECT_EQ(written.error().server(), address(2));
  EXPECT_EQ(written.error().offset_bytes(), 5 * 4_KiB + 100);
  EXPECT_EQ(written.error().length_bytes(), 10U);
  EXPECT_CODE(reader.write(ByteOffset{0}, bytes_), kNoRight);
  EXPECT_CODE(reader.fetch_add(ByteOffset{0}, 1), kNoRight);
}

TEST_F(VolumeErrorsTest, DepthsOutOfRangeAreRefused) {
  EXPECT_CODE(volume_->queue({.depth = 0}), kInvalidArgument);
  EXPECT_CODE(volume_->queue({.depth = kMaxQueueDepth + 1}), kInvalidArgument);
}

}  // namespace
}  // namespace remora::volume::test
