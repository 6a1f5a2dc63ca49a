#include "base/placement.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <sched.h>
#include <string>
#include <thread>
#include <unistd.h>

#include <remora/engine/engine.h>

#include "client/datapath/parallel_copy.h"
#include "support/eventually.h"

namespace remora::detail {
namespace {

std::shared_ptr<const Machine> machine(const char* description, const Processors& allowed = {}) {
  return std::make_shared<const Machine>(Machine::synthetic(description, allowed).value());
}
/// Two nodes of four processors: 0-3 and 4-7.
std::shared_ptr<const Machine> two_nodes(const Processors& allowed = {}) {
  return machine("numa:2 core:4 pu:1", allowed);
}

TEST(Choose, NoneChoosesNothing) {
  const auto chosen = Placement::choose("none", two_nodes(), 1, 0).value();
  EXPECT_TRUE(chosen.processors().empty());
  EXPECT_EQ(chosen.memory_node(), std::nullopt);
}

TEST(Choose, AutoOnOneNodeChoosesNothing) {
  const auto chosen = Placement::choose("auto", machine("numa:1 core:4 pu:1"), 0, 0).value();
  EXPECT_TRUE(chosen.processors().empty());
  EXPECT_EQ(chosen.memory_node(), std::nullopt);
  EXPECT_EQ(chosen.to_string(), "nothing is bound");
}

TEST(Choose, AutoGoesToTheDevice) {
  const auto chosen = Placement::choose("auto", two_nodes(), 1, 0).value();
  EXPECT_EQ(chosen.processors(), (Processors{4, 5, 6, 7}));
  EXPECT_EQ(chosen.memory_node(), 1U);
  EXPECT_EQ(chosen.to_string(), "threads on 4-7, slots on node 1");
}

TEST(Choose, AutoWithoutADeviceStaysWithTheThreadAndSlotsWithTheirMakers) {
  const auto chosen = Placement::choose("auto", two_nodes(), std::nullopt, 0).value();
  EXPECT_EQ(chosen.processors(), (Processors{0, 1, 2, 3}));
  EXPECT_EQ(chosen.memory_node(), std::nullopt);
}

TEST(Choose, AutoUsesOnlyProcessorsThatThisProcessMayUse) {
  EXPECT_EQ(Placement::choose("auto", two_nodes({1, 2, 6}), 1, 0).value().processors(),
            Processors{6});
  const auto away = Placement::choose("auto", two_nodes({0, 1}), 1, 0).value();
  EXPECT_TRUE(away.processors().empty()) << "none is near the device: threads run anywhere";
  EXPECT_EQ(away.memory_node(), 1U);
}

TEST(Choose, ListIsTakenAsItIs) {
  const auto chosen = Placement::choose("6,4", two_nodes(), std::nullopt, 0).value();
  EXPECT_EQ(chosen.processors(), (Processors{4, 6}));
  EXPECT_EQ(chosen.memory_node(), 1U);
  EXPECT_EQ(Placement::choose("6,4", two_nodes(), 0, 0).value().memory_node(), 0U) << "the device";
  const auto flat = Placement::choose("1", machine("numa:1 core:4 pu:1"), 0, 0).value();
  EXPECT_EQ(flat.processors(), Processors{1});
  EXPECT_EQ(flat.memory_node(), std::nullopt);
}

TEST(Choose, ListWithAProcessorThatIsNotOursIsInvalid) {
  for (const char* text : {"8", "0-8", "3"}) {
    const auto chosen = Placement::choose(text, two_nodes({0, 1, 2, 4, 5}), std::nullopt, 0);
    ASSERT_FALSE(chosen) << text;
    EXPECT_EQ(chosen.error().code(), Code::kInvalidArgument);
    EXPECT_NE(chosen.error().message().find("0-2,4-5"), std::string::npos) << "what may be used";
  }
}

TEST(Choose, MoreThanTwoNodes) {
  const auto it = machine("package:2 numa:2 core:2 pu:2");
  EXPECT_EQ(it->node_count(), 4U);
  EXPECT_EQ(Placement::choose("auto", it, 2, 0).value().processors(), (Processors{8, 9, 10, 11}));
}

class DeviceNode : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(root_); }
  void add(const std::string& name, const std::string& node) const {
    std::filesystem::create_directories(root_ / name / "device");
    std::ofstream{root_ / name / "device" / "numa_node"} << node << '\n';
  }
  std::filesystem::path root_ =
      std::filesystem::path{testing::TempDir()} / ("device_node." + std::to_string(::getpid()));
};

TEST_F(DeviceNode, OfANameOrOfAllThatAgree) {
  EXPECT_EQ(device_node("", root_), std::nullopt) << "no such folder";
  add("mlx5_0", "1");
  EXPECT_EQ(device_node("mlx5_0", root_), 1U);
  EXPECT_EQ(device_node("", root_), 1U);
  add("mlx5_1", "1");
  EXPECT_EQ(device_node("", root_), 1U);
  add("mlx5_2", "0");
  EXPECT_EQ(device_node("", root_), std::nullopt) << "they differ";
  EXPECT_EQ(device_node("mlx5_2", root_), 0U);
  add("rxe0", "-1");
  EXPECT_EQ(device_node("rxe0", root_), std::nullopt) << "the kernel knows none";
  EXPECT_EQ(device_node("mlx5_9", root_), std::nullopt) << "no such device";
}

int processors_of_this_thread() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

TEST(Placement, BoundThreadStaysAndBorrowedThreadIsReleased) {
  const Processors all = Machine::here().value().processors();
  const auto placement = Placement::create(std::to_string(all.back()), "").value();
  std::thread{[&] {
    EXPECT_TRUE(placement.bind_thread());
    EXPECT_EQ(processors_of_this_thread(), 1);
    EXPECT_EQ(::sched_getcpu(), static_cast<int>(all.back()));
  }}.join();
  std::thread{[&] {
    const int before = processors_of_this_thread();
    const ThreadBinding bound = placement.borrow_thread();
    EXPECT_EQ(processors_of_this_thread(), 1);
    placement.release_thread(bound);
    EXPECT_EQ(processors_of_this_thread(), before);
  }}.join();
}

TEST(Placement, CopyingThreadsAreBoundAndTheCallerIsNot) {
  const Processors all = Machine::here().value().processors();
  if (all.size() < 2) GTEST_SKIP() << "one processor";
  const int before = processors_of_this_thread();
  ParallelCopy copy{2, Placement::create(std::to_string(all.front()), "").value()};
  const auto caller = std::this_thread::get_id();
  std::atomic<int> helped{0};
  for (test::Patience patience; helped == 0 && !patience.over();)
    copy.for_each(64, [&](std::size_t) {
      if (std::this_thread::get_id() == caller) {
        std::this_thread::sleep_for(std::chrono::microseconds{100});
        EXPECT_EQ(processors_of_this_thread(), before);
        return;
      }
      ++helped;
      EXPECT_EQ(processors_of_this_thread(), 1);
    });
  EXPECT_GT(helped, 0);
}

TEST(Placement, OfNothingDoesNothing) {
  const int before = processors_of_this_thread();
  EXPECT_FALSE(Placement{}.bind_thread());
  EXPECT_FALSE(Placement{}.borrow_thread().known);
  Placement{}.release_thread({});
  Placement{}.place({});
  EXPECT_EQ(processors_of_this_thread(), before);
}

TEST(EnginePlacement, BadTextIsInvalid) {
  for (const char* text : {"", "Auto", "all", "0-", "60000"}) {
    EngineOptions options;
    options.placement = text;
    const auto engine = Engine::open(options);
    ASSERT_FALSE(engine) << text;
    EXPECT_EQ(engine.error().code(), Code::kInvalidArgument) << engine.error();
  }
  for (const char* text : {"none", "auto"}) {
    EngineOptions options;
    options.placement = text;
    EXPECT_TRUE(Engine::open(options)) << text;
  }
}

}  // namespace
}  // namespace remora::detail
