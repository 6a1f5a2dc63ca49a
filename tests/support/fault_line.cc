#include "support/fault_line.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>

namespace remora::test {

bool long_rounds() {
  const char* const given = std::getenv("REMORA_FAULT_ROUNDS");
  if (given == nullptr || std::string_view{given} == "short" || std::string_view{given} == "least")
    return false;
  if (std::string_view{given} == "long") return true;
  std::fprintf(stderr, "REMORA_FAULT_ROUNDS is '%s': use least, short or long\n", given);
  std::exit(2);
}

std::uint64_t rounds_of(std::uint64_t few, std::uint64_t many) {
  if (long_rounds()) return many;
  const char* const given = std::getenv("REMORA_FAULT_ROUNDS");
  if (given == nullptr || std::string_view{given} != "least") return few;
  return std::max(std::min<std::uint64_t>(few, 2), few / 5);
}

void FaultLine::ended(std::string_view how, std::chrono::nanoseconds took) {
  ++operations;
  if (how.empty()) {
    ++ok;
    return;
  }
  ++failed[std::string{how}];
  longest_verdict =
      std::max(longest_verdict, std::chrono::duration_cast<std::chrono::milliseconds>(took));
}

void FaultLine::print(std::string_view transport, const std::string& more) const {
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::string suite = test->test_suite_name();
  suite.erase(0, suite.find('/') + 1);
  const std::string_view whole = test->name();
  const std::string name{whole.substr(0, whole.find('/'))};
  std::string ends;
  for (const auto& [how, count] : failed) {
    std::string word = how;
    std::replace(word.begin(), word.end(), ' ', '_');
    ends += (ends.empty() ? "" : ",") + word + "=" + std::to_string(count);
  }
  std::printf(
      "fault: %s.%s transport=%s rounds=%llu operations=%llu ok=%llu failed{%s} "
      "longest_verdict_ms=%llu%s%s\n",
      suite.c_str(), name.c_str(), std::string{transport}.c_str(),
      static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(operations),
      static_cast<unsigned long long>(ok), ends.c_str(),
      static_cast<unsigned long long>(longest_verdict.count()), more.empty() ? "" : " ",
      more.c_str());
}

}  // namespace remora::test
