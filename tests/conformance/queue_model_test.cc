/// Random calls of a queue against a model: in any order of calls, each operation that the queue
/// has taken ends once, with its own tag, and the queue knows how much room it has.

#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

class QueueModelTest : public ConformanceTest {
 protected:
  /// An operation that the queue has taken and not yet returned. `sound`: it is within the region.
  struct Taken {
    Ticket ticket;
    bool sound = true;
  };
  void take_all(Completions completions) {
    for (Completion& completion : completions) {
      const auto at = out_.find(completion.tag());
      ASSERT_NE(at, out_.end()) << "a tag that was not taken, or twice: " << completion.tag();
      EXPECT_EQ(completion.ticket(), at->second.ticket);
      if (!completion.ok()) {
        EXPECT_EQ(completion.error().code(),
                  at->second.sound ? Code::kCancelled : Code::kOutOfRange)
            << completion.error();
      } else {
        EXPECT_TRUE(at->second.sound);
      }
      stale_.push_back(at->second.ticket);
      out_.erase(at);
    }
  }
  std::map<std::uint64_t, Taken> out_;
  std::vector<Ticket> stale_;
};

TEST_P(QueueModelTest, RandomCallsEndEachOperationOnce) {
  const Region region = make_region({.size_bytes = 64_KiB});
  std::vector<std::byte> local(64_KiB);
  const RegisteredMemory memory = engine().register_memory(local).value();
  std::mt19937_64 random{20261122};
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  std::uint64_t tag = 0;
  for (std::size_t depth = 1; depth <= 4; ++depth) {
    Queue queue = region.queue({.depth = depth}).value();
    for (std::uint64_t step = 0; step < steps(1500); ++step) {
      const std::uint64_t choice = below(16);
      if (choice < 8) {  // one of several kinds
        const bool sound = below(6) != 0;
        const ByteOffset at{sound ? 64 * below(1024) : 64_KiB};
        const Target into{memory, 64 * below(1024), 64};
        const Ticket ticket = below(5) == 0 ? queue.fetch_add(at, 1, tag)
                              : below(3) == 0
                                  ? queue.write(at, Source{memory, 64 * below(1024), 64}, tag)
                                  : queue.read(at, into, tag);
        EXPECT_EQ(static_cast<bool>(ticket), out_.size() < depth);
        if (ticket) {
          const bool added = out_.emplace(tag, Taken{ticket, sound}).second;
          EXPECT_TRUE(added);
        }
        ++tag;
      } else if (choice < 10) {
        ASSERT_TRUE(ok(queue.submit()));
      } else if (choice == 10) {
        queue.barrier();
      } else if (choice == 11 && !out_.empty()) {
        const auto which = std::next(out_.begin(), static_cast<std::ptrdiff_t>(below(out_.size())));
        const Status cancelled = queue.cancel(which->second.ticket);
        EXPECT_TRUE(cancelled || cancelled.error().code() == Code::kBusy);
      } else if (choice == 12 && !stale_.empty()) {
        const Status cancelled = queue.cancel(stale_[below(stale_.size())]);
        ASSERT_FALSE(cancelled);
        EXPECT_EQ(cancelled.error().code(), Code::kNotFound);
      } else if (choice == 13) {
        // The caller holds completions while it fills and submits the queue.
        Completions held = queue.poll();
        const Ticket ticket = queue.read(ByteOffset{0}, Target{memory, 0, 64}, tag);
        EXPECT_EQ(static_cast<bool>(ticket), out_.size() - held.size() < depth);
        if (ticket) out_.emplace(tag, Taken{ticket, true});
        ++tag;
        if (below(2) == 0) (void)queue.submit();
        for (Completion& completion : held) {
          ASSERT_EQ(out_.count(completion.tag()), 1U);
          stale_.push_back(completion.ticket());
          out_.erase(completion.tag());
        }
      } else {
        take_all(queue.wait(below(2)));
      }
      ASSERT_EQ(queue.size(), out_.size()) << "depth " << depth << ", step " << step;
      if (stale_.size() > 64) stale_.erase(stale_.begin(), stale_.begin() + 32);
    }
    ASSERT_TRUE(ok(queue.submit()));
    while (queue.size() != 0) take_all(queue.wait(1));
    EXPECT_TRUE(out_.empty());
    stale_.clear();
  }
}

REMORA_CONFORMANCE(QueueModelTest);

}  // namespace
}  // namespace remora::test
