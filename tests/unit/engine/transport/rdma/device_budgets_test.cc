#include "transport/rdma/device_budgets.h"

#include <atomic>
#include <gtest/gtest.h>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "transport/rdma/budget_share.h"

namespace remora::transport::rdma {
namespace {

TEST(RegistrationBudgets, AllOrNothingUpToTheLimit) {
  RegistrationBudgets budgets{10};
  const auto budget = budgets.of("mlx5_0", 1000);
  auto six = BudgetShare::take(budget, 6);
  ASSERT_TRUE(six);
  const auto five = BudgetShare::take(budget, 5);
  ASSERT_FALSE(five);
  EXPECT_EQ(five.error().code(), Code::kLimitExceeded);
  EXPECT_EQ(five.error().subject(), "limits.registrations_max");
  EXPECT_EQ(five.error().asked(), 11U);
  EXPECT_EQ(five.error().allowed(), 10U);
  EXPECT_EQ(budgets.used(), 6U);
  EXPECT_TRUE(BudgetShare::take(budget, 4)) << "given back at once";
  EXPECT_EQ(budgets.used(), 6U);
  EXPECT_FALSE(BudgetShare::take(budget, UINT64_MAX)) << "the sum wraps around";
}

TEST(RegistrationBudgets, SharesAreGivenBackOnce) {
  RegistrationBudgets budgets{10};
  const auto budget = budgets.of("mlx5_0", 0);
  {
    BudgetShare first = BudgetShare::take(budget, 3).value();
    BudgetShare second = std::move(first);
    EXPECT_EQ(budgets.used(), 3U);
    BudgetShare third = BudgetShare::take(budget, 2).value();
    third = std::move(second);
    EXPECT_EQ(budgets.used(), 3U) << "what it had before went back";
  }
  EXPECT_EQ(budgets.used(), 0U);
}

TEST(RegistrationBudgets, SharesThatJoinedAreGivenBackTogether) {
  WindowBudgets budgets{10};
  const auto budget = budgets.of("mlx5_0", 0);
  {
    BudgetShare all = BudgetShare::take(budget, 4).value();
    all.join(BudgetShare::take(budget, 5).value());
    EXPECT_EQ(budgets.used(), 9U);
    const auto more = BudgetShare::take(budget, 2);
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().subject(), "limits.windows_max");
  }
  EXPECT_EQ(budgets.used(), 0U);
}

TEST(RegistrationBudgets, WhatIsLostStaysCounted) {
  RegistrationBudgets budgets{10};
  const auto budget = budgets.of("mlx5_0", 0);
  {
    BudgetShare share = BudgetShare::take(budget, 4).value();
    share.lose(1);
  }
  EXPECT_EQ(budgets.used(), 1U);
  EXPECT_FALSE(BudgetShare::take(budget, 10));
}

TEST(RegistrationBudgets, ConfiguredIsOneForAllDevices) {
  RegistrationBudgets budgets{2};
  const auto one = BudgetShare::take(budgets.of("mlx5_0", 1000), 1);
  const auto two = BudgetShare::take(budgets.of("mlx5_1", 1000), 1);
  EXPECT_TRUE(one && two);
  EXPECT_FALSE(BudgetShare::take(budgets.of("mlx5_2", 1000), 1));
}

TEST(RegistrationBudgets, ElseEachDeviceHasWhatItSays) {
  RegistrationBudgets budgets{0};
  const auto one = BudgetShare::take(budgets.of("mlx5_0", 1), 1);
  const auto more = BudgetShare::take(budgets.of("mlx5_0", 1), 1);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().subject(), "what mlx5_0 can do");
  const auto other = BudgetShare::take(budgets.of("mlx5_1", 1), 1);
  EXPECT_TRUE(other);
  EXPECT_EQ(budgets.used(), 2U);
  EXPECT_TRUE(BudgetShare::take(budgets.of("says_nothing", 0), 1'000'000'000));
}

TEST(RegistrationBudgets, ManyThreadsNeverHaveMoreThanThereIs) {
  constexpr std::uint64_t kMax = 5;
  RegistrationBudgets budgets{kMax};
  const auto budget = budgets.of("", 0);
  std::atomic<std::uint64_t> held{0};
  std::atomic<bool> too_many{false};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 2000; ++round) {
        const auto share = BudgetShare::take(budget, 2);
        if (!share) continue;
        if (held.fetch_add(2) + 2 > kMax) too_many = true;
        std::this_thread::yield();
        held.fetch_sub(2);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(too_many);
  EXPECT_EQ(budgets.used(), 0U);
}

}  // namespace
}  // namespace remora::transport::rdma
