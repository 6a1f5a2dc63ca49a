#include "linearizability.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

namespace remora::fault {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

std::uint64_t mixed(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111eb;
  return value ^ (value >> 31U);
}

/// A set of operations by two sums of random numbers, and the word's value.
struct Configuration {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t value = 0;
  friend bool operator==(const Configuration&, const Configuration&) = default;
};
struct HashConfiguration {
  std::size_t operator()(const Configuration& one) const noexcept {
    return one.first ^ mixed(one.value);
  }
};

class Search {
 public:
  Search(std::vector<WordOperation> history, std::uint64_t initial, std::uint64_t steps_max);
  Linearizability run();

 private:
  /// A call or an answer, in a list by time.
  struct Entry {
    std::size_t operation = 0;
    bool answer = false;
    std::size_t before = kNone;
    std::size_t after = kNone;
  };
  struct Step {
    std::size_t operation = 0;
    std::uint64_t value = 0;  ///< before it
    bool unknown = false;     ///< made while those of unknown outcome were tried
    bool forced = false;      ///< changed nothing: what it led to is all that there is
  };

  void link();
  void find_twins();
  void unlink(std::size_t entry) noexcept;
  void relink(std::size_t entry) noexcept;
  void take(std::size_t operation, std::uint64_t next, bool unknown);
  void give_back() noexcept;
  bool back(std::size_t& entry, bool& unknown);
  [[nodiscard]] bool may_be_next(std::size_t operation, std::uint64_t& next) const noexcept;
  bool walk();
  void find_goals();
  [[nodiscard]] bool leads_somewhere(std::uint64_t value) const noexcept;
  void remember_where(std::size_t entry);
  [[nodiscard]] std::string window() const;
  [[nodiscard]] std::string text_of(const WordOperation& one) const;

  std::vector<WordOperation> operations_;
  std::uint64_t value_;
  std::uint64_t steps_max_;
  std::uint64_t steps_ = 0;
  std::vector<Entry> entries_;  ///< [0] is the head
  std::vector<std::size_t> call_;
  std::vector<std::size_t> answer_;  ///< kNone: unknown
  std::vector<std::size_t> twin_;    ///< an earlier unknown one that does the same
  std::vector<bool> taken_;
  std::vector<Step> steps_taken_;
  Configuration now_;
  std::unordered_set<Configuration, HashConfiguration> known_;
  std::size_t to_explain_ = 0;
  std::uint64_t unknown_sum_ = 0;  ///< of the unknown additions that are not taken
  std::vector<std::uint64_t>
      goals_;                ///< sorted: values that let something happen before the next answer
  std::size_t deepest_ = 0;  ///< the latest answer that nothing got past
  std::vector<std::uint64_t> values_at_deepest_;  ///< what the word may have held there
};

Search::Search(std::vector<WordOperation> history, std::uint64_t initial, std::uint64_t steps_max)
    : value_{initial}, steps_max_{steps_max} {
  for (WordOperation& one : history) {
    if (one.end == WordOperation::End::kVoid) continue;
    // One that changes nothing and returned nothing explains nothing.
    if (one.end == WordOperation::End::kUnknown && one.kind == WordOperation::Kind::kAdd &&
        one.expected == 0)
      continue;
    operations_.push_back(one);
  }
  std::stable_sort(operations_.begin(), operations_.end(),
                   [](const auto& a, const auto& b) { return a.invoked_ns < b.invoked_ns; });
  now_.value = initial;
  link();
  find_twins();
}

void Search::link() {
  struct Event {
    std::int64_t at;
    bool answer;
    std::size_t operation;
  };
  std::vector<Event> events;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    events.push_back({operations_[i].invoked_ns, false, i});
    if (operations_[i].end != WordOperation::End::kDone) continue;
    events.push_back({operations_[i].responded_ns, true, i});
    ++to_explain_;
  }
  // Calls before answers of the same moment: they overlap.
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.answer < b.answer;
  });
  entries_.resize(events.size() + 1);
  call_.assign(operations_.size(), kNone);
  answer_.assign(operations_.size(), kNone);
  taken_.assign(operations_.size(), false);
  for (std::size_t i = 0; i < events.size(); ++i) {
    Entry& entry = entries_[i + 1];
    entry.operation = events[i].operation;
    entry.answer = events[i].answer;
    entry.before = i;
    entries_[i].after = i + 1;
    (entry.answer ? answer_ : call_)[entry.operation] = i + 1;
  }
}

/// Of unknown operations that do the same, the one that was called first may always go first.
void Search::find_twins() {
  twin_.assign(operations_.size(), kNone);
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const WordOperation& one = operations_[i];
    if (one.end != WordOperation::End::kUnknown) continue;
    if (one.kind == WordOperation::Kind::kAdd) unknown_sum_ += one.expected;
    for (std::size_t j = i; j-- > 0;) {
      const WordOperation& other = operations_[j];
      if (other.end != WordOperation::End::kUnknown || other.kind != one.kind ||
          other.expected != one.expected || other.desired != one.desired)
        continue;
      twin_[i] = j;
      break;
    }
  }
}

void Search::unlink(std::size_t entry) noexcept {
  const Entry& one = entries_[entry];
  entries_[one.before].after = one.after;
  if (one.after != kNone) entries_[one.after].before = one.before;
}

void Search::relink(std::size_t entry) noexcept {
  const Entry& one = entries_[entry];
  entries_[one.before].after = entry;
  if (one.after != kNone) entries_[one.after].before = entry;
}

bool Search::may_be_next(std::size_t operation, std::uint64_t& next) const noexcept {
  const WordOperation& one = operations_[operation];
  const bool known = one.end == WordOperation::End::kDone;
  if (known && one.result != value_) return false;
  if (one.kind == WordOperation::Kind::kAdd) {
    next = value_ + one.expected;
  } else {
    next = value_ == one.expected ? one.desired : value_;
  }
  if (known) return true;
  const std::size_t twin = twin_[operation];
  return next != value_ && (twin == kNone || taken_[twin]);
}

void Search::take(std::size_t operation, std::uint64_t next, bool unknown) {
  steps_taken_.push_back({operation, value_, unknown, !unknown && next == value_});
  taken_[operation] = true;
  now_.first ^= mixed(operation * 2 + 1);
  now_.second ^= mixed(operation * 2 + 2);
  now_.value = value_ = next;
  unlink(call_[operation]);
  if (answer_[operation] == kNone) {
    if (operations_[operation].kind == WordOperation::Kind::kAdd)
      unknown_sum_ -= operations_[operation].expected;
    return;
  }
  unlink(answer_[operation]);
  --to_explain_;
}

void Search::give_back() noexcept {
  const Step step = steps_taken_.back();
  steps_taken_.pop_back();
  const std::size_t operation = step.operation;
  if (answer_[operation] != kNone) {
    relink(answer_[operation]);
    ++to_explain_;
  } else if (operations_[operation].kind == WordOperation::Kind::kAdd) {
    unknown_sum_ += operations_[operation].expected;
  }
  relink(call_[operation]);
  taken_[operation] = false;
  now_.first ^= mixed(operation * 2 + 1);
  now_.second ^= mixed(operation * 2 + 2);
  now_.value = value_ = step.value;
}

void Search::remember_where(std::size_t entry) {
  if (entry < deepest_) return;
  if (entry > deepest_) values_at_deepest_.clear();
  deepest_ = entry;
  if (values_at_deepest_.size() < 8 &&
      std::find(values_at_deepest_.begin(), values_at_deepest_.end(), value_) ==
          values_at_deepest_.end())
    values_at_deepest_.push_back(value_);
}

void Search::find_goals() {
  goals_.clear();
  for (std::size_t entry = entries_[0].after; entry != kNone && !entries_[entry].answer;
       entry = entries_[entry].after) {
    const WordOperation& one = operations_[entries_[entry].operation];
    if (one.end == WordOperation::End::kDone)
      goals_.push_back(one.result);
    else if (one.kind == WordOperation::Kind::kSwap)
      goals_.push_back(one.expected);
  }
  std::sort(goals_.begin(), goals_.end());
}

/// Whether unknown additions may make a goal of `value`: else nothing could follow it in time.
bool Search::leads_somewhere(std::uint64_t value) const noexcept {
  if (goals_.empty()) return false;
  // The one that is met first, counting up from `value`: the smallest, where counting wraps.
  auto goal = std::lower_bound(goals_.begin(), goals_.end(), value);
  if (goal == goals_.end()) goal = goals_.begin();
  return *goal - value <= unknown_sum_;
}

/// Goes back to the latest step that another one could replace, and to where to look for that.
/// False: there is none.
bool Search::back(std::size_t& entry, bool& unknown) {
  while (!steps_taken_.empty()) {
    const Step last = steps_taken_.back();
    give_back();
    if (last.forced) continue;
    unknown = last.unknown;
    if (unknown) find_goals();
    entry = entries_[call_[last.operation]].after;
    return true;
  }
  return false;
}

/// False: every order was tried, or the bound was reached.
///
/// In each configuration those whose answers are known are tried first: one of unknown outcome is
/// taken only where an answer of another needs it. One that can be next, has an answer and
/// changes nothing is next: whatever order there is, there is one in which it stands here.
bool Search::walk() {
  std::size_t entry = entries_[0].after;
  bool unknown = false;
  while (to_explain_ != 0) {
    if (steps_ >= steps_max_) return false;
    if (entry != kNone && !entries_[entry].answer) {
      const std::size_t operation = entries_[entry].operation;
      std::uint64_t next = 0;
      if (unknown != (answer_[operation] == kNone) || !may_be_next(operation, next) ||
          (unknown && !leads_somewhere(next))) {
        entry = entries_[entry].after;
        continue;
      }
      take(operation, next, unknown);
      if (known_.insert(now_).second) {
        ++steps_;
        entry = entries_[0].after;
        unknown = false;
      } else if (!back(entry, unknown)) {
        return false;
      }
      continue;
    }
    // An answer that came before its operation could be explained: another order, if there is one.
    if (entry != kNone) remember_where(entry);
    if (!unknown) {
      unknown = true;
      find_goals();
      entry = entries_[0].after;
      continue;
    }
    if (!back(entry, unknown)) return false;
  }
  return true;
}

std::string Search::text_of(const WordOperation& one) const {
  std::string text = "thread " + std::to_string(one.thread) + ": ";
  if (one.kind == WordOperation::Kind::kAdd)
    text += "add " + std::to_string(one.expected);
  else
    text += "swap " + std::to_string(one.expected) + " for " + std::to_string(one.desired);
  const std::int64_t start = operations_.front().invoked_ns;
  text += ", called at " + std::to_string((one.invoked_ns - start) / 1000) + " us, ";
  if (one.end == WordOperation::End::kUnknown) return text + "outcome unknown";
  return text + "found " + std::to_string(one.result) + " at " +
         std::to_string((one.responded_ns - start) / 1000) + " us";
}

std::string Search::window() const {
  constexpr std::size_t kShown = 12;
  const std::size_t failing = entries_[deepest_].operation;
  const WordOperation& one = operations_[failing];
  std::string text = "no order explains " + text_of(one) + "; the word could hold";
  for (const std::uint64_t value : values_at_deepest_) text += " " + std::to_string(value);
  std::vector<std::size_t> around;
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    const WordOperation& other = operations_[i];
    const std::int64_t answered =
        other.end == WordOperation::End::kDone ? other.responded_ns : kNever;
    if (i != failing && other.invoked_ns <= one.responded_ns && answered >= one.invoked_ns)
      around.push_back(i);
  }
  text += "\n  at the same time: " + std::to_string(around.size());
  if (around.size() > kShown) around.erase(around.begin(), around.end() - kShown);
  for (const std::size_t i : around) text += "\n  " + text_of(operations_[i]);
  std::vector<std::size_t> before;
  for (std::size_t i = 0; i < operations_.size(); ++i)
    if (operations_[i].end == WordOperation::End::kDone &&
        operations_[i].responded_ns < one.invoked_ns)
      before.push_back(i);
  std::sort(before.begin(), before.end(), [&](std::size_t a, std::size_t b) {
    return operations_[a].responded_ns > operations_[b].responded_ns;
  });
  text += "\n  just before:";
  for (std::size_t i = 0; i < std::min<std::size_t>(4, before.size()); ++i)
    text += "\n  " + text_of(operations_[before[i]]);
  return text;
}

Linearizability Search::run() {
  Linearizability found;
  found.operation_count = operations_.size();
  known_.insert(now_);
  const bool explained = walk();
  found.steps = steps_;
  if (explained) return found;
  if (steps_ >= steps_max_) {
    found.verdict = Linearizability::Verdict::kUndecided;
    found.text = "not decided within " + std::to_string(steps_max_) + " configurations, " +
                 std::to_string(to_explain_) + " of " + std::to_string(operations_.size()) +
                 " operations left";
    return found;
  }
  found.verdict = Linearizability::Verdict::kViolated;
  found.text = window();
  return found;
}

}  // namespace

Linearizability check_linearizable(std::vector<WordOperation> history, std::uint64_t initial,
                                   std::uint64_t steps_max) {
  return Search{std::move(history), initial, steps_max}.run();
}

}  // namespace remora::fault
