// What a record costs in instructions: the bound is part of the contract, and unlike time it does
// not depend on the machine's load.

#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::string output_of(const std::string& command) {
  std::string output;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), ::pclose};
  if (pipe == nullptr) return output;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get()))
    output += static_cast<char>(c);
  return output;
}

std::optional<double> instructions(const std::string& what, int times) {
  const std::string output =
      output_of("valgrind --tool=callgrind --callgrind-out-file=/dev/null " METRICS_COST " " +
                what + " " + std::to_string(times) + " 2>&1");
  const std::string label = "Collected : ";
  const std::size_t at = output.find(label);
  if (at == std::string::npos) return std::nullopt;
  return std::strtod(output.c_str() + at + label.size(), nullptr);
}

class RecordCost : public ::testing::TestWithParam<std::pair<std::string, double>> {};

TEST_P(RecordCost, StaysWithinItsBound) {
  if (kSanitized) GTEST_SKIP() << "a sanitized build has other instructions";
  if (output_of("valgrind --version 2>&1").find("valgrind-") == std::string::npos)
    GTEST_SKIP() << "valgrind is not installed";
  const auto [what, bound] = GetParam();
  constexpr int kFew = 10'000;
  constexpr int kMany = 30'000;
  const auto per_round = [](const std::string& kind) -> std::optional<double> {
    const auto few = instructions(kind, kFew);
    const auto many = instructions(kind, kMany);
    if (!few || !many) return std::nullopt;
    return (*many - *few) / (kMany - kFew);
  };
  const auto loop = per_round("none");
  const auto loop_and_record = per_round(what);
  ASSERT_TRUE(loop && loop_and_record) << "callgrind said nothing";
  const double cost = *loop_and_record - *loop;
  RecordProperty("instructions", std::to_string(cost));
  std::printf("%s: %.2f instructions\n", what.c_str(), cost);
  EXPECT_LE(cost, bound);
}

INSTANTIATE_TEST_SUITE_P(All, RecordCost,
                         ::testing::Values(std::pair{std::string{"add"}, 4.0},
                                           std::pair{std::string{"observe"}, 15.0},
                                           std::pair{std::string{"observe_n"}, 17.0},
                                           std::pair{std::string{"recorder"}, 25.0}),
                         [](const auto& test) { return test.param.first; });

}  // namespace
