/// A client goes on with its own session of the process before, once, and in time.

#include "server/warm/restored_sessions.h"

#include <csignal>
#include <cstdint>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/system_file.h>

#include "server/warm/kept_process.h"
#include "support/eventually.h"

namespace remora::detail {
namespace {

using std::chrono::seconds;

KeptSession session(std::uint64_t id, TransportKind transport = TransportKind::kTcp) {
  return {.id = id,
          .client_name = "a",
          .proven = false,
          .secret_digest = digest_of(id + 100),
          .transport = transport,
          .resumable = true};
}

control::Resume resume(std::uint64_t id, std::uint64_t secret) {
  control::Resume made;
  made.set_session_id(id);
  made.set_lane_secret(secret);
  return made;
}

class RestoredSessionsTest : public testing::Test {
 protected:
  RestoredSessions sessions_;
};

TEST_F(RestoredSessionsTest, IsClaimedOnceByTheClientThatKnowsItsSecret) {
  sessions_.add({session(1)}, Deadline::max());
  EXPECT_FALSE(sessions_.claim(resume(1, 100), "a", false, TransportKind::kTcp)) << "the secret";
  EXPECT_FALSE(sessions_.claim(resume(2, 101), "a", false, TransportKind::kTcp)) << "the id";
  EXPECT_FALSE(sessions_.claim(resume(1, 101), "b", false, TransportKind::kTcp)) << "the name";
  EXPECT_FALSE(sessions_.claim(resume(1, 101), "a", true, TransportKind::kTcp)) << "the proof";
  EXPECT_FALSE(sessions_.claim(resume(1, 101), "a", false, TransportKind::kShm)) << "transport";
  EXPECT_TRUE(sessions_.claim(resume(1, 101), "a", false, TransportKind::kTcp));
  EXPECT_FALSE(sessions_.claim(resume(1, 101), "a", false, TransportKind::kTcp)) << "again";
}

TEST_F(RestoredSessionsTest, ProvenClientShowsNoSecret) {
  KeptSession proven = session(1);
  proven.proven = true;
  sessions_.add({proven}, Deadline::max());
  EXPECT_TRUE(sessions_.claim(resume(1, 0), "a", true, TransportKind::kTcp));
}

TEST_F(RestoredSessionsTest, SessionThatIsNotResumableIsNotClaimed) {
  KeptSession once = session(1);
  once.resumable = false;
  sessions_.add({once}, Deadline::max());
  EXPECT_FALSE(sessions_.claim(resume(1, 101), "a", false, TransportKind::kTcp));
}

TEST_F(RestoredSessionsTest, LapsesWhenItsTimeIsOver) {
  const Clock::time_point now = Clock::now();
  sessions_.add({session(1), session(2)}, now + seconds{10});
  EXPECT_TRUE(sessions_.take_lapsed(now + seconds{9}).sessions.empty());
  sessions_.renew(now + seconds{20});
  EXPECT_TRUE(sessions_.take_lapsed(now + seconds{19}).sessions.empty());
  EXPECT_EQ(sessions_.awaited(), 2U);
  const auto lapsed = sessions_.take_lapsed(now + seconds{20});
  EXPECT_EQ(sessions_.size(), 0U);
  EXPECT_EQ(sessions_.awaited(), 2U) << "a process that follows now would let the clients return";
  sessions_.gave_up();
  sessions_.gave_up();
  EXPECT_EQ(sessions_.awaited(), 0U);
  EXPECT_EQ(lapsed.sessions.size(), 2U);
  EXPECT_EQ(lapsed.ended.size(), 2U) << "no memory was mapped";
  EXPECT_FALSE(sessions_.claim(resume(1, 101), "a", false, TransportKind::kTcp));
}

/// A process that maps memory counts while it may still write.
TEST_F(RestoredSessionsTest, StoppedProcessCountsUntilItIsGone) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    while (true) ::pause();
  }
  const auto process = static_cast<std::uint64_t>(child);
  KeptSession mapping = session(1, TransportKind::kShm);
  mapping.process_id = process;
  mapping.process_began = process_began(process);
  EXPECT_NE(mapping.process_began, 0U);
  KeptSession earlier = session(2, TransportKind::kShm);
  earlier.process_id = process;  // the number is another process's by now
  earlier.process_began = mapping.process_began + 1;
  const Clock::time_point now = Clock::now();
  sessions_.add({mapping, earlier, session(3)}, now + seconds{10});
  EXPECT_EQ(sessions_.mapping_processes(), 1U);

  ASSERT_EQ(::kill(child, SIGSTOP), 0);
  ASSERT_TRUE(test::eventually(
      [&] { return state_of_process(process, mapping.process_began) == ProcessState::kStopped; }));
  const auto lapsed = sessions_.take_lapsed(now + seconds{10});
  EXPECT_EQ(lapsed.sessions.size(), 3U);
  EXPECT_EQ(std::set<std::uint64_t>(lapsed.ended.begin(), lapsed.ended.end()),
            (std::set<std::uint64_t>{2, 3}))
      << "the next process has to know of the one that is stopped";
  EXPECT_EQ(sessions_.mapping_processes(), 1U) << "it may go on at any time";
  ASSERT_EQ(::kill(child, SIGCONT), 0);
  ASSERT_TRUE(test::eventually(
      [&] { return state_of_process(process, mapping.process_began) == ProcessState::kRunning; }));
  EXPECT_TRUE(sessions_.take_lapsed(now + seconds{10}).ended.empty());
  EXPECT_EQ(sessions_.mapping_processes(), 1U) << "it may not have read the hang-up yet";
  EXPECT_EQ(sessions_.take_lapsed(now + seconds{12}).ended, std::vector<std::uint64_t>{1});
  EXPECT_EQ(sessions_.mapping_processes(), 0U) << "it has found its connection ended";

  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(state_of_process(process, mapping.process_began), ProcessState::kGone);
}

TEST_F(RestoredSessionsTest, ProcessThatIsBackCountsUntilItHasReturned) {
  const auto self = static_cast<std::uint64_t>(::getpid());
  KeptSession mapping = session(1, TransportKind::kShm);
  mapping.process_id = self;
  mapping.process_began = process_began(self);
  const Clock::time_point now = Clock::now();
  sessions_.add({mapping}, now + seconds{10});
  const auto claimed = sessions_.claim(resume(1, 101), "a", false, TransportKind::kShm);
  ASSERT_TRUE(claimed);
  sessions_.await_return(*claimed, self, now + seconds{20});
  EXPECT_EQ(sessions_.mapping_processes(), 1U);
  EXPECT_TRUE(sessions_.take_lapsed(now + seconds{19}).sessions.empty());
  EXPECT_EQ(sessions_.mapping_processes(), 1U);
  sessions_.returned(1);
  EXPECT_EQ(sessions_.mapping_processes(), 0U);
}

TEST_F(RestoredSessionsTest, AnotherProcessDoesNotReturnForTheOneThatHadTheMemory) {
  const auto self = static_cast<std::uint64_t>(::getpid());
  KeptSession mapping = session(1, TransportKind::kShm);
  mapping.process_id = self;
  mapping.process_began = process_began(self);
  const Clock::time_point now = Clock::now();
  sessions_.await_return(mapping, self + 1, now + seconds{20});
  sessions_.returned(1);
  EXPECT_EQ(sessions_.mapping_processes(), 1U);
  EXPECT_TRUE(sessions_.take_lapsed(now + seconds{20}).ended.empty()) << "the session goes on";
}

/// A main thread that ends by itself leaves the other threads of its process running.
TEST(KeptProcessTest, ProcessWithoutItsMainThreadIsNotGone) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::thread{[] {
      while (true) ::pause();
    }}.detach();
    ::syscall(SYS_exit, 0);
  }
  const auto process = static_cast<std::uint64_t>(child);
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  ASSERT_TRUE(test::eventually(
      [&] { return read_file(stat.c_str()).value_or("").find(") Z ") != std::string::npos; }));
  const std::uint64_t began = process_began(process);
  EXPECT_EQ(state_of_process(process, began), ProcessState::kRunning);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_TRUE(test::eventually([&] {
    return state_of_process(process, began) == ProcessState::kGone;
  })) << "before its parent has asked for its status";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(KeptProcessTest, NoProcessIsGone) {
  EXPECT_EQ(process_began(0), 0U);
  EXPECT_EQ(state_of_process(0, 0), ProcessState::kGone);
  const auto self = static_cast<std::uint64_t>(::getpid());
  EXPECT_NE(state_of_process(self, process_began(self)), ProcessState::kGone);
}

}  // namespace
}  // namespace remora::detail
