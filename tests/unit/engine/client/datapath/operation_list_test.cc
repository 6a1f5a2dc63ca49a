#include "client/datapath/operation_list.h"

#include <array>
#include <gtest/gtest.h>

#include <remora/assert.h>

#include "client/datapath/operation_record.h"

namespace remora::detail {
namespace {

TEST(OperationList, TakesInTheOrderOfAppending) {
  std::array<OperationRecord, 3> records{};
  OperationList list;
  for (OperationRecord& each : records) list.append(each);
  EXPECT_EQ(list.count, 3U);
  for (OperationRecord& each : records) EXPECT_EQ(&list.take_first(), &each);
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.last, nullptr);
}

TEST(OperationList, SpliceLeavesTheOtherListEmpty) {
  std::array<OperationRecord, 2> records{};
  OperationList list;
  OperationList other;
  list.append(records[0]);
  other.append(records[1]);
  list.splice(other);
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(list.count, 2U);
  EXPECT_EQ(list.last, &records[1]);
}

TEST(OperationList, RemoveNamesTheOperationBehind) {
  std::array<OperationRecord, 3> records{};
  OperationList list;
  for (OperationRecord& each : records) list.append(each);
  OperationRecord* after = nullptr;
  EXPECT_TRUE(list.remove(records[1], &after));
  EXPECT_EQ(after, &records[2]);
  EXPECT_FALSE(list.remove(records[1]));
  EXPECT_EQ(list.count, 2U);
}

TEST(OperationListDeathTest, EmptyListHasNoFirstOperation) {
  OperationList list;
  if constexpr (kHotAssertions) {
    EXPECT_DEATH((void)list.take_first(), "a bug in Remora: a list counts its operations");
  }
}

TEST(OperationListDeathTest, NoMoreOperationsAreDroppedThanThereAre) {
  OperationRecord record{};
  OperationList list;
  list.append(record);
  if constexpr (kHotAssertions) {
    EXPECT_DEATH(list.drop_first(2, nullptr), "a bug in Remora: a list counts its operations");
  }
}

TEST(CompletionSinkDeathTest, NoRunIsTakenFromAnEmptySink) {
  std::array<CompletionSink::Run, 1> ring{};
  CompletionSink sink{ring};
  EXPECT_EQ(sink.ready(), 0U);
  if constexpr (kHotAssertions) {
    EXPECT_DEATH((void)sink.take_run(), "a bug in Remora: a run is taken while one is there");
  }
}

}  // namespace
}  // namespace remora::detail
