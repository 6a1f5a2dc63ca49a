/// What runs out, and clocks that jump: clients and servers go on with what they have.

#include <array>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "fault_test.h"
#include "support/callgrind.h"

namespace remora::fault {
namespace {

class LimitsTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.shm_too = over_tcp()};
  }
  /// One more client.
  static Result<Region> one_more(const std::string& uri, std::chrono::seconds patience = 20s) {
    EngineOptions options;
    options.reconnect_for = 0s;
    options.control_deadline = patience;
    auto engine = Engine::open(options);
    if (!engine) return engine.error();
    return engine->open_region(uri, Rights::kAll);
  }
  /// The same, counted.
  Result<Region> count_one_more(const std::string& uri, std::chrono::seconds patience = 20s) {
    const auto began = std::chrono::steady_clock::now();
    auto opened = one_more(uri, patience);
    count_one(opened ? ok_status() : Status{opened.error()},
              std::chrono::steady_clock::now() - began);
    return opened;
  }
};

TEST_P(LimitsTest, ServerWithoutDescriptorsServesThoseItHas) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers look at memory through descriptors";
  LoadProcess& load = start_load("t0", {"fresh=1", "deadline=20000"});
  const std::uint64_t count = rounds(2, 20);
  for (std::uint64_t round = 0; round < count; ++round) {
    ASSERT_EQ(server().ask("limit nofile 0"), "ok");
    std::uint64_t refused = 0;
    for (int i = 0; i < 2; ++i) {
      const auto opened = count_one_more(uri("t0"), 1s);
      if (opened) continue;
      ++refused;
      // The kernel takes it up, and the server does not, or hangs up since it wants more than one:
      // it can tell it nothing. A device's connection manager may refuse it.
      const Code code = opened.error().code();
      EXPECT_TRUE(code == Code::kTimedOut || code == Code::kConnectionLost ||
                  (over_rdma() && code == Code::kConnectionRefused))
          << opened.error();
    }
    EXPECT_GT(refused, 0U) << "they were not needed";
    ASSERT_EQ(server().ask("limit nofile -1"), "ok");
    EXPECT_TRUE(ok(count_one_more(uri("t0")))) << "it recovers";
  }
  EXPECT_TRUE(finish(load).failed.empty()) << "those that it had noticed nothing";
}

TEST_P(LimitsTest, ClientWithoutDescriptorsFailsAndHoldsNothing) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers look at memory through descriptors";
  const std::uint64_t count = rounds(2, 20);
  std::uint64_t failed = 0;
  for (std::uint64_t round = 0; round < count; ++round)
    for (rlim_t more = 0; more < 16; ++more) {
      rlimit before{};
      ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
      const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      ::close(next);
      rlimit tight = before;
      tight.rlim_cur = static_cast<rlim_t>(next) + more;
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
      const auto opened = count_one_more(uri("t0"));
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
      if (opened) continue;
      ++failed;
      EXPECT_TRUE(
          opened.error().code() == Code::kSystem || opened.error().code() == Code::kLimitExceeded ||
          opened.error().code() == Code::kUnsupported ||
          opened.error().code() == Code::kUnreachable || opened.error().code() == Code::kProvider)
          << more << " left: " << opened.error().message();
    }
  EXPECT_GT(failed, 0U);
  EXPECT_TRUE(ok(one_more(uri("t0"))));
}

TEST_P(LimitsTest, ServerWithoutMemoryRefusesRegionsAndServesThoseItHas) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers need the address space themselves";
  if (over_rdma()) GTEST_SKIP() << "registrations are bounded by memlock there";
  LoadProcess& load = start_load("t0", {"fresh=1", "deadline=20000"});
  const std::uint64_t count = rounds(2, 20);
  for (std::uint64_t round = 0; round < count; ++round) {
    ASSERT_EQ(server().ask("limit as 2097152"), "ok");
    for (std::uint64_t i = 0; i < 4; ++i) {
      // Over tcp an ordinary region is a piece of the pool, which is there already; one that shm
      // may open, too, has a file of its own, which must be mapped beyond the limit.
      const auto began = std::chrono::steady_clock::now();
      const std::string answer = server().ask("create-shm m" + std::to_string(i));
      const bool refused = answer.find(to_string(Code::kOutOfMemory)) != std::string::npos;
      EXPECT_TRUE(refused) << answer;
      if (refused)
        count_one(Error{Code::kOutOfMemory, "create"}, std::chrono::steady_clock::now() - began);
    }
    if (over_tcp()) {
      EXPECT_EQ(server().ask("create ordinary"), "ok");
      EXPECT_EQ(server().ask("remove ordinary"), "ok");
    }
    ASSERT_EQ(server().ask("limit as -1"), "ok");
    for (std::uint64_t i = 0; i < 4; ++i) {
      const std::string name = "m" + std::to_string(i);
      EXPECT_EQ(server().ask("create-shm " + name), "ok") << "it recovers";
      EXPECT_EQ(server().ask("remove " + name), "ok");
    }
  }
  EXPECT_TRUE(finish(load).failed.empty());
}

TEST_P(LimitsTest, ClientWithoutMemoryIsToldAndGoesOn) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers need the address space themselves";
  if (over_rdma()) GTEST_SKIP() << "registrations are bounded by memlock there";
  ASSERT_EQ(server().ask("create other"), "ok");
  test::Child client{"poor", {"uri=" + uri("t0"), "other=" + uri("other")}};
  const auto ask = [&](const std::string& line) {
    client.write_line(line);
    return client.read_line().value_or("no answer");
  };
  const auto count_of = [this](const std::string& how, std::chrono::nanoseconds took) {
    count_one(how == "ok" ? ok_status() : Status{Error{Code::kOutOfMemory, "client"}}, took);
  };
  ASSERT_EQ(client.read_line().value_or("no answer"), "ready");
  const std::vector<std::string> wants{"slots", "queue", "connect", "open"};
  for (const std::string& want : wants) EXPECT_EQ(ask(want), "ok") << want;
  EXPECT_EQ(ask("work"), "ok");
  const std::uint64_t count_of_rounds = rounds(2, 20);
  for (std::uint64_t round = 0; round < count_of_rounds; ++round) {
    ASSERT_EQ(ask("limit 65536"), "ok");
    for (const std::string& want : wants) {
      // Over tcp another region of the same session is known by its numbers: nothing is mapped.
      if (want == "open" && over_tcp()) continue;
      const auto began = std::chrono::steady_clock::now();
      const std::string answer = ask(want);
      count_of(answer, std::chrono::steady_clock::now() - began);
      EXPECT_NE(answer.find(to_string(Code::kOutOfMemory)), std::string::npos)
          << want << ": " << answer;
      EXPECT_EQ(ask("work"), "ok") << "the session goes on";
    }
    ASSERT_EQ(ask("limit -1"), "ok");
    for (const std::string& want : wants) EXPECT_EQ(ask(want), "ok") << want << ": it recovers";
    EXPECT_EQ(ask("work"), "ok");
  }
  client.close_input();
  EXPECT_EQ(client.wait(), 0);
  EXPECT_TRUE(test::eventually([&] { return server().ask("remove other") == "ok"; }));
}

REMORA_FAULT(LimitsTest);

class FullLogTest : public LimitsTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override { return {.log = "/dev/full"}; }
};

TEST_P(FullLogTest, ServerWhoseLogCannotBeWrittenServes) {
  LoadProcess& load = start_load("t0", {"fresh=1", "deadline=20000"});
  const std::uint64_t count = rounds(2, 20);
  for (std::uint64_t round = 0; round < count; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(ok(count_one_more(uri("t0"))));
    pause_for_a_while(50ms, 100ms);
    EXPECT_EQ(server().ask("unwritten"), "1") << "there was nothing to write";
  }
  EXPECT_TRUE(finish(load).failed.empty());
}

REMORA_FAULT(FullLogTest);

/// A server or a client whose wall clock jumps. Leases and deadlines are counted by the steady one.
class ClockTest : public LimitsTest {
 protected:
  void SetUp() override {
    if (test::kSanitized) GTEST_SKIP() << "libfaketime and sanitizers both want to be first";
    if (faketime_library().empty()) GTEST_SKIP() << "needs libfaketime (package faketime)";
    runtime_dir();
    jump("+0");
    LimitsTest::SetUp();
  }
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.lease = 10s, .keep = 10s, .faketime = of_server_ ? file() : std::string{}};
  }
  static constexpr std::array<const char*, 3> kJumps{"+3600", "-86400", "+0"};
  static constexpr auto kBetween = 1200ms;
  [[nodiscard]] static std::string file() { return runtime_dir().path() + "/clock"; }
  static void jump(const std::string& by) {
    const std::string made = file() + ".new";
    std::ofstream{made} << by << '\n';
    std::filesystem::rename(made, file());
  }
  bool of_server_ = true;
};

class ClientClockTest : public ClockTest {
 protected:
  ClientClockTest() { of_server_ = false; }
};

TEST_P(ClockTest, JumpsOfTheServersClockEndNothing) {
  LoadProcess& load = start_load("t0", {"fresh=1", "deadline=20000"});
  const std::string before = server().ask("clock");
  const std::uint64_t count = rounds(2, 20);
  for (std::uint64_t round = 0; round < count; ++round)
    for (const char* by : kJumps) {
      jump(by);
      std::this_thread::sleep_for(kBetween);  // the jumps are longer than any lease
      const std::int64_t moved =
          std::stoll(server().ask("clock")) - std::stoll(before) - std::stoll(by);
      ASSERT_LT(std::abs(moved), 600) << "the clock did not jump by " << by;
    }
  const LoadReport report = finish(load);
  EXPECT_TRUE(report.failed.empty());
  EXPECT_EQ(report.interrupted, 0U);
}

REMORA_FAULT(ClockTest);

TEST_P(ClientClockTest, JumpsOfAClientsClockEndNothing) {
  LoadProcess& load = start_load_by(uri("t0"), {"fresh=1", "deadline=20000"}, file());
  const std::uint64_t count = rounds(2, 20);
  for (std::uint64_t round = 0; round < count; ++round)
    for (const char* by : kJumps) {
      jump(by);
      std::this_thread::sleep_for(kBetween);
    }
  const LoadReport report = finish(load);
  EXPECT_EQ(report.clock_jumps, count * kJumps.size()) << "as the client has seen it";
  EXPECT_TRUE(report.failed.empty());
  EXPECT_EQ(report.interrupted, 0U);
}

REMORA_FAULT(ClientClockTest);

}  // namespace
}  // namespace remora::fault
