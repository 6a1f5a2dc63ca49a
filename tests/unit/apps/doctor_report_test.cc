// Findings as text, as JSON, and as a bundle without secrets.

#include <nlohmann/json.hpp>
#include <sstream>

#include "doctor/report.h"
#include "doctor_machine.h"

namespace remora::apps::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DoctorReportTest : public DoctorTest {
 protected:
  [[nodiscard]] static Findings two() {
    return {Finding{.id = "clock", .found = "clock source tsc"},
            Finding{.id = "memlock",
                    .colour = Colour::kRed,
                    .found = "8MiB",
                    .why = "too small",
                    .command = "ulimit -l unlimited",
                    .details = {"a line"},
                    .root_adds = "the rest"}};
  }
};

TEST_F(DoctorReportTest, EachFindingSaysWhatWhyAndWhatMendsIt) {
  std::ostringstream out;
  print_findings(out, two());
  EXPECT_EQ(out.str(),
            "green       clock: clock source tsc\n"
            "red         memlock: 8MiB\n"
            "              a line\n"
            "            why: too small\n"
            "            do:  ulimit -l unlimited\n"
            "1 green, 1 red\n"
            "as root, it also checks the rest\n");
}

TEST_F(DoctorReportTest, ControlCharactersAreEscaped) {
  std::ostringstream out;
  print_findings(out, {Finding{.id = "x", .found = "a\x1b[2Jb"}});
  EXPECT_THAT(out.str(), HasSubstr("a\\x1b[2Jb"));
}

TEST_F(DoctorReportTest, JsonHasTheSameAndTheWorstColour) {
  const nlohmann::ordered_json json = findings_json(two());
  EXPECT_EQ(json["colour"], "red");
  EXPECT_EQ(json["counts"]["green"], 1);
  EXPECT_EQ(json["counts"]["red"], 1);
  EXPECT_EQ(json["findings"][1]["command"], "ulimit -l unlimited");
  EXPECT_EQ(json["findings"][1]["details"][0], "a line");
  EXPECT_EQ(json["root_adds"][0], "the rest");
}

TEST_F(DoctorReportTest, WorstColourDecides) {
  EXPECT_EQ(worst({}), Colour::kGreen);
  EXPECT_EQ(worst({Finding{.colour = Colour::kNotChecked}}), Colour::kGreen);
  EXPECT_EQ(worst({Finding{.colour = Colour::kYellow}, Finding{}}), Colour::kYellow);
}

TEST_F(DoctorReportTest, BundleHasNoSecrets) {
  auto config = server(64);
  config.metrics.token = "a-token-of-metrics";
  config.metrics.password = "a-password";
  config.metrics.token_file = "/etc/remora/token";
  config.clients.push_back({.name = "client7"});
  put("/proc/version", "Linux version 6.1.0-18-amd64\n");
  add_rxe();
  const std::string bundle = bundle_text(machine(), {.server = &config}, devices(), two(), "1.2.3");
  EXPECT_THAT(bundle, HasSubstr("remora 1.2.3"));
  EXPECT_THAT(bundle, HasSubstr("pool: size 64MiB"));
  EXPECT_THAT(bundle, HasSubstr("rxe0: software"));
  EXPECT_THAT(bundle, HasSubstr("Linux version 6.1.0-18-amd64"));
  EXPECT_THAT(bundle, HasSubstr("memlock: 8MiB"));
  for (const char* const secret :
       {"a-token-of-metrics", "a-password", "/etc/remora/token", "client7"})
    EXPECT_THAT(bundle, Not(HasSubstr(secret)));
}

}  // namespace
}  // namespace remora::apps::doctor
