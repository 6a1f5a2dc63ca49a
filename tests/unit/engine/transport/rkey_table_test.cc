#include "transport/rkey_table.h"

#include <gtest/gtest.h>
#include <set>
#include <span>
#include <vector>

namespace remora::transport {
namespace {

TEST(RkeyTable, TokensAreDenseAndUnique) {
  const auto table = RkeyTable::create().value();
  const auto first = table->take(3).value();
  const auto second = table->take(2).value();
  std::set<std::uint32_t> all{first.begin(), first.end()};
  all.insert(second.begin(), second.end());
  EXPECT_EQ(all, (std::set<std::uint32_t>{1, 2, 3, 4, 5})) << "0 is never assigned";
  EXPECT_EQ(table->used(), 5U);
  table->give_back(first);
  EXPECT_EQ(table->used(), 2U);
  const auto third = table->take(4).value();
  EXPECT_EQ(std::set<std::uint32_t>(third.begin(), third.end()),
            (std::set<std::uint32_t>{1, 2, 3, 6}));
}

TEST(RkeyTable, KeysAreOfOneLaneAndGoWithTheirToken) {
  const auto table = RkeyTable::create().value();
  const std::uint32_t token = table->take(1).value().front();
  const auto key = [&](std::size_t lane) { return RkeyTable::key_of(table->of_lane(lane), token); };
  for (std::size_t lane = 0; lane < RkeyTable::kMaxLanes; ++lane) EXPECT_EQ(key(lane), 0U);
  table->set(token, 0, 100);
  table->set(token, RkeyTable::kMaxLanes - 1, 107);
  EXPECT_EQ(key(0), 100U);
  EXPECT_EQ(key(1), RkeyTable::kNoKey);
  EXPECT_EQ(key(RkeyTable::kMaxLanes - 1), 107U);
  table->give_back(std::vector{token});
  EXPECT_EQ(key(0), RkeyTable::kNoKey);
  EXPECT_EQ(table->take(1).value().front(), token);
  EXPECT_EQ(key(RkeyTable::kMaxLanes - 1), RkeyTable::kNoKey) << "the next one has none yet";
}

TEST(RkeyTable, ForgettingKeysLeavesTokens) {
  const auto table = RkeyTable::create().value();
  const auto tokens = table->take(1000).value();
  for (const std::uint32_t token : tokens) table->set(token, 2, token + 7);
  table->forget_keys();
  for (const std::uint32_t token : tokens)
    ASSERT_EQ(RkeyTable::key_of(table->of_lane(2), token), RkeyTable::kNoKey);
  EXPECT_EQ(table->used(), 1000U);
}

TEST(RkeyTable, MoreThanThereAreIsAnErrorAndTakesNone) {
  const auto table = RkeyTable::create().value();
  const auto most = table->take(RkeyTable::kMaxTokens - 1);
  ASSERT_TRUE(most);
  EXPECT_EQ(most->back(), RkeyTable::kMaxTokens - 1);
  table->set(most->back(), RkeyTable::kMaxLanes - 1, 1);  // the last word of all
  table->give_back(std::span{*most}.first(2));
  const auto three = table->take(3);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code(), Code::kLimitExceeded);
  EXPECT_EQ(three.error().asked(), RkeyTable::kMaxTokens);
  EXPECT_EQ(three.error().allowed(), RkeyTable::kMaxTokens - 1);
  EXPECT_TRUE(table->take(2));
  EXPECT_EQ(table->used(), RkeyTable::kMaxTokens - 1);
}

}  // namespace
}  // namespace remora::transport
