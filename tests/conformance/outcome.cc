#include "outcome.h"

namespace remora::test {

std::uint64_t Ledger::begin(Kind kind) {
  entries_.push_back({kind, Clock::now(), false});
  ++open_;
  return entries_.size() - 1;
}

void Ledger::end(const Completion& completion) {
  ASSERT_LT(completion.tag(), entries_.size()) << "a tag that was never given";
  Entry& entry = entries_[completion.tag()];
  EXPECT_FALSE(entry.ended) << "operation " << completion.tag() << " ended twice";
  if (entry.ended) return;
  entry.ended = true;
  --open_;
  EXPECT_TRUE(timed_.took_at_most(limit_, entry.began))
      << "operation " << completion.tag() << " ended late";
  if (completion.ok()) {
    ++ends_["ok"];
    return;
  }
  failed_ = true;
  const Error error = completion.error();
  ++ends_[std::string{to_string(error.code())}];
  EXPECT_TRUE(allowed_when_lost(entry.kind, error.code())) << error;
}

bool allowed_when_lost(Kind kind, Code code) {
  return code == Code::kConnectionLost || (kind != Kind::kRead && code == Code::kIndeterminate);
}

}  // namespace remora::test
