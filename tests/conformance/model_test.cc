/// Random work of all kinds against a model in memory, with a fixed seed and a bounded length.

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::uint64_t kBlockBytes = 1024;
constexpr std::uint64_t kBlocks = 256;
constexpr std::uint64_t kWords = 16;  // counters, behind the blocks
constexpr std::uint64_t kWordsAt = kBlocks * kBlockBytes;

class ModelTest : public ConformanceTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 4U << 20U, .piece_bytes = 64U << 10U};
  }
};

/// The expected content of the region, and the operations in flight on it. A block or word has one
/// operation at a time, since operations in flight are unordered.
class Model {
 public:
  Model(const Region& region, SlotPool slots, std::uint64_t seed)
      : region_{region}, slots_{std::move(slots)}, random_{seed} {
    for (const std::size_t depth : {1UL, 7UL, 32UL})
      queues_.push_back(region.queue({.depth = depth}).value());
  }

  void step() {
    const std::uint64_t choice = random_.below(100);
    if (choice < 80)
      take_one(queues_[random_.below(queues_.size())]);
    else if (choice < 90)
      collect(queues_[random_.below(queues_.size())], random_.below(3));
    else
      synchronous();
  }

  void finish() {
    for (Queue& queue : queues_)
      while (queue.size() != 0 && !testing::Test::HasFatalFailure()) collect(queue, queue.size());
    ASSERT_TRUE(pending_.empty());
    const std::vector<std::byte> all = read_all(region_);
    for (std::uint64_t block = 0; block < kBlocks; ++block)
      EXPECT_TRUE(good(block, std::span{all}.subspan(block * kBlockBytes, kBlockBytes)));
    for (std::uint64_t word = 0; word < kWords; ++word) {
      EXPECT_EQ(region_.fetch_add(word_at(word), 0).value(), words_[word]);
    }
  }

 private:
  enum class What { kWrite, kRead, kAdd, kSwap };
  struct Pending {
    What what = What::kRead;
    std::uint64_t place = 0;  // block or word
    std::uint64_t value = 0;  // sequence, delta or desired
    std::uint64_t expected = 0;
  };

  static ByteOffset word_at(std::uint64_t word) { return {kWordsAt + word * 8}; }

  testing::AssertionResult good(std::uint64_t block, std::span<const std::byte> bytes) {
    if (sequences_[block] == 0) return same_bytes(bytes, std::vector<std::byte>(bytes.size()));
    return stamped(bytes, sequences_[block], block * kBlockBytes);
  }

  void take_one(Queue& queue) {
    if (queue.full()) return collect(queue, 1);
    Pending wanted{.what = static_cast<What>(random_.below(4))};
    const bool on_block = wanted.what == What::kWrite || wanted.what == What::kRead;
    wanted.place = random_.below(on_block ? kBlocks : kWords);
    if (!busy_.insert({on_block, wanted.place}).second) return;
    const std::uint64_t tag = next_tag_++;
    Ticket taken;
    if (on_block) {
      Slot slot = slots_.take();
      ASSERT_TRUE(slot);
      if (wanted.what == What::kWrite) {
        wanted.value = ++sequence_;
        stamp(slot.bytes(), wanted.value, wanted.place * kBlockBytes);
        taken = queue.write(Block{wanted.place}, std::move(slot), tag);
      } else {
        taken = queue.read(Block{wanted.place}, std::move(slot), tag);
      }
    } else if (wanted.what == What::kAdd) {
      wanted.value = random_.next();
      taken = queue.fetch_add(word_at(wanted.place), wanted.value, tag);
    } else {
      wanted.value = random_.next();
      wanted.expected = random_.below(2) == 0 ? words_[wanted.place] : random_.next();
      taken = queue.compare_swap(word_at(wanted.place), wanted.expected, wanted.value, tag);
    }
    ASSERT_TRUE(taken);
    pending_[tag] = wanted;
  }

  void collect(Queue& queue, std::size_t at_least) {
    ASSERT_TRUE(ok(queue.submit()));
    for (Completion& completion : queue.wait(at_least)) {
      ASSERT_TRUE(completion.ok()) << completion.error();
      const auto found = pending_.find(completion.tag());
      ASSERT_NE(found, pending_.end()) << "a completion without an operation";
      apply(found->second, completion);
      pending_.erase(found);
    }
  }

  void apply(const Pending& done, Completion& completion) {
    const bool on_block = done.what == What::kWrite || done.what == What::kRead;
    busy_.erase({on_block, done.place});
    if (done.what == What::kWrite) {
      sequences_[done.place] = done.value;
    } else if (done.what == What::kRead) {
      EXPECT_TRUE(good(done.place, completion.slot().bytes()));
    } else {
      std::uint64_t& word = words_[done.place];
      EXPECT_EQ(completion.old_value(), word);
      if (done.what == What::kAdd)
        word += done.value;
      else if (word == done.expected)
        word = done.value;
    }
  }

  /// Transfers a run of blocks at once, from or to memory that is not registered.
  void synchronous() {
    const std::uint64_t first = random_.below(kBlocks);
    const std::uint64_t count = 1 + random_.below(std::min<std::uint64_t>(80, kBlocks - first));
    for (std::uint64_t block = first; block < first + count; ++block)
      if (busy_.count({true, block}) != 0) return;
    std::vector<std::byte> bytes(count * kBlockBytes);
    const bool writing = random_.below(2) == 0;
    if (!writing) {
      ASSERT_TRUE(ok(region_.read(Block{first}, bytes)));
    }
    for (std::uint64_t block = first; block < first + count; ++block) {
      const auto part = std::span{bytes}.subspan((block - first) * kBlockBytes, kBlockBytes);
      if (writing)
        stamp(part, sequences_[block] = ++sequence_, block * kBlockBytes);
      else
        EXPECT_TRUE(good(block, part));
    }
    if (writing) {
      ASSERT_TRUE(ok(region_.write(Block{first}, bytes)));
    }
  }

  const Region& region_;
  SlotPool slots_;
  Random random_;
  std::vector<Queue> queues_;
  std::map<std::uint64_t, Pending> pending_;
  std::set<std::pair<bool, std::uint64_t>> busy_;
  std::array<std::uint64_t, kBlocks> sequences_{};
  std::array<std::uint64_t, kWords> words_{};
  std::uint64_t sequence_ = 0;
  std::uint64_t next_tag_ = 1;
};

TEST_P(ModelTest, RandomMixedWorkAgreesWithTheModel) {
  const SlotPool slots = engine().allocate_slots(64, kBlockBytes).value();
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Region region =
        make_region({.size_bytes = (kBlocks + 1) * kBlockBytes, .block_bytes = kBlockBytes});
    Model model{region, slots, seed};
    for (std::size_t i = 0; i < steps(20'000) && !HasFailure(); ++i) model.step();
    if (HasFailure()) return;
    model.finish();
  }
}

REMORA_CONFORMANCE(ModelTest);

}  // namespace
}  // namespace remora::test
