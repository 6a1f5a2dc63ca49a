#include "transport/tcp/grant_table.h"

#include <gtest/gtest.h>
#include <vector>

#include "transport/work_request.h"

namespace remora::transport::tcp {
namespace {

constexpr std::uint64_t kBytes = 4096;
constexpr std::uint64_t kStart = 65536;

class GrantTableTest : public testing::Test {
 protected:
  std::uint32_t add(Rights rights = Rights::kAll, bool cpu_atomics = true) {
    return table.add({memory.data(), kStart, kBytes, rights, cpu_atomics}).value();
  }
  [[nodiscard]] CompletionStatus status(Opcode opcode, std::uint32_t key, std::uint64_t address,
                                        std::uint32_t length) const {
    return table.resolve({.opcode = opcode, .length_bytes = length, .address = address, .key = key})
        .status;
  }
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);
  GrantTable table;
};

constexpr auto kOk = CompletionStatus::kSuccess;
constexpr auto kRefused = CompletionStatus::kRemoteAccessError;
constexpr auto kInvalid = CompletionStatus::kRemoteInvalidRequest;

TEST_F(GrantTableTest, FirstAndLastByteAreReached) {
  const std::uint32_t key = add();
  const auto at = [&](std::uint64_t address, std::uint32_t length) {
    return table.resolve({.length_bytes = length, .address = address, .key = key}).memory;
  };
  EXPECT_EQ(at(kStart, 1), memory.data());
  EXPECT_EQ(at(kStart, kBytes), memory.data());
  EXPECT_EQ(at(kStart + kBytes - 1, 1), memory.data() + kBytes - 1);
}

TEST_F(GrantTableTest, ExtentHasTheKeyThatItsClientHolds) {
  GrantTable before;
  const GrantedExtent extent{memory.data(), kStart, kBytes, Rights::kAll, true};
  std::vector<std::uint32_t> keys;
  keys.reserve(3);
  for (int i = 0; i < 3; ++i) keys.push_back(before.add(extent).value());
  // In another order, and not all.
  ASSERT_TRUE(table.add_as(keys[2], extent));
  ASSERT_TRUE(table.add_as(keys[0], extent));
  EXPECT_EQ(status(Opcode::kRead, keys[2], kStart, 1), kOk);
  EXPECT_EQ(status(Opcode::kRead, keys[0], kStart, 1), kOk);
  EXPECT_EQ(status(Opcode::kRead, keys[1], kStart, 1), kRefused);
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.add_as(keys[2], extent).error().code(), Code::kInvalidArgument);
  const std::uint32_t newer = add();
  EXPECT_NE(newer, keys[0]);
  EXPECT_NE(newer, keys[2]);
  EXPECT_EQ(table.size(), 3U);
  table.remove(keys[2]);
  EXPECT_EQ(status(Opcode::kRead, keys[2], kStart, 1), kRefused);
}

TEST_F(GrantTableTest, KeyThatNamesAHighSlotIsRefused) {
  const GrantedExtent extent{memory.data(), kStart, kBytes, Rights::kAll, true};
  const auto key =
      static_cast<std::uint32_t>(GrantTable::kMaxNamedExtents << GrantTable::kGenerationBits);
  EXPECT_EQ(table.add_as(key, extent).error().code(), Code::kLimitExceeded);
  EXPECT_EQ(table.size(), 0U);
}

TEST_F(GrantTableTest, EachEdgeIsKept) {
  const std::uint32_t key = add();
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite}) {
    EXPECT_EQ(status(opcode, key, kStart - 1, 1), kRefused);
    EXPECT_EQ(status(opcode, key, kStart - 1, 2), kRefused);
    EXPECT_EQ(status(opcode, key, kStart + kBytes, 1), kRefused);
    EXPECT_EQ(status(opcode, key, kStart + kBytes - 1, 2), kRefused);
    EXPECT_EQ(status(opcode, key, kStart, kBytes + 1), kRefused);
    EXPECT_EQ(status(opcode, key, 0, kMaxTransferBytes), kRefused);
    EXPECT_EQ(status(opcode, key, UINT64_MAX, 1), kRefused);
    EXPECT_EQ(status(opcode, key, UINT64_MAX - 7, 8 + kStart), kRefused) << "wraps";
  }
  for (const Opcode opcode : {Opcode::kCompareSwap, Opcode::kFetchAdd}) {
    EXPECT_EQ(status(opcode, key, kStart + kBytes - 8, 8), kOk);
    EXPECT_EQ(status(opcode, key, kStart - 8, 8), kRefused);
    EXPECT_EQ(status(opcode, key, kStart + kBytes, 8), kRefused);
    EXPECT_EQ(status(opcode, key, UINT64_MAX - 7, 8), kRefused);
  }
}

TEST_F(GrantTableTest, LengthsOutOfBoundsAreInvalid) {
  const std::uint32_t key = add();
  EXPECT_EQ(status(Opcode::kRead, key, kStart, 0), kInvalid);
  EXPECT_EQ(status(Opcode::kWrite, key, kStart, 0), kInvalid);
  EXPECT_EQ(status(Opcode::kWrite, key, kStart, kMaxTransferBytes + 1), kInvalid);
  EXPECT_EQ(status(Opcode::kRead, key, kStart, UINT32_MAX), kInvalid);
  for (const std::uint32_t length : {0U, 4U, 7U, 9U, 16U})
    EXPECT_EQ(status(Opcode::kFetchAdd, key, kStart, length), kInvalid) << length;
}

TEST_F(GrantTableTest, AtomicsAreAligned) {
  const std::uint32_t key = add();
  for (std::uint64_t off = 1; off < 8; ++off)
    EXPECT_EQ(status(Opcode::kCompareSwap, key, kStart + off, 8), kInvalid) << off;
}

TEST_F(GrantTableTest, EachRightIsForItsOwn) {
  const auto allowed = [&](Rights rights) {
    const std::uint32_t key = add(rights);
    std::vector<bool> each;
    for (const Opcode opcode :
         {Opcode::kRead, Opcode::kWrite, Opcode::kCompareSwap, Opcode::kFetchAdd})
      each.push_back(status(opcode, key, kStart, 8) == kOk);
    return each;
  };
  EXPECT_EQ(allowed(Rights::kRead), (std::vector{true, false, false, false}));
  EXPECT_EQ(allowed(Rights::kWrite), (std::vector{false, true, false, false}));
  EXPECT_EQ(allowed(Rights::kAtomic), (std::vector{false, false, true, true}));
  EXPECT_EQ(allowed(Rights::kNone), (std::vector(4, false)));
}

TEST_F(GrantTableTest, AtomicsOfADeviceAreNotTheProcessors) {
  const std::uint32_t key = add(Rights::kAll, false);
  EXPECT_EQ(status(Opcode::kFetchAdd, key, kStart, 8), kRefused);
  EXPECT_EQ(status(Opcode::kWrite, key, kStart, 8), kOk);
}

TEST_F(GrantTableTest, KeyThatWasNeverGivenIsRefused) {
  const std::uint32_t key = add();
  EXPECT_EQ(table.size(), 1U);
  for (unsigned bit = 0; bit < 32; ++bit)
    EXPECT_EQ(status(Opcode::kRead, key ^ (1U << bit), kStart, 1), kRefused) << bit;
  table.remove(key ^ 1U);
  EXPECT_EQ(status(Opcode::kRead, key, kStart, 1), kOk);
}

TEST_F(GrantTableTest, RemovedKeyIsRefusedAlsoWhenItsSlotIsUsedAgain) {
  const std::uint32_t first = add();
  table.remove(first);
  table.remove(first);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(status(Opcode::kRead, first, kStart, 1), kRefused);
  for (int i = 0; i < 4000; ++i) {
    const std::uint32_t next = add();
    ASSERT_NE(next, first);
    ASSERT_EQ(status(Opcode::kRead, first, kStart, 1), kRefused);
    table.remove(next);
  }
}

}  // namespace
}  // namespace remora::transport::tcp
