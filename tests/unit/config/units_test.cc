#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>

#include <remora/config/units.h>

namespace remora::config {
namespace {

using std::chrono::nanoseconds;

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
constexpr std::int64_t kMaxNs = std::numeric_limits<std::int64_t>::max();

TEST(ParseSize, EveryUnit) {
  EXPECT_EQ(parse_size("0").value(), 0U);
  EXPECT_EQ(parse_size("4096").value(), 4096U);
  EXPECT_EQ(parse_size("7B").value(), 7U);
  EXPECT_EQ(parse_size("3KiB").value(), 3U << 10U);
  EXPECT_EQ(parse_size("3MiB").value(), 3U << 20U);
  EXPECT_EQ(parse_size("64GiB").value(), 64ULL << 30U);
  EXPECT_EQ(parse_size("2TiB").value(), 2ULL << 40U);
}

TEST(ParseSize, LargestThatFits) {
  EXPECT_EQ(parse_size("18446744073709551615").value(), kMax);
  EXPECT_EQ(parse_size("16777215TiB").value(), 16777215ULL << 40U);
}

TEST(ParseSize, OverflowIsOutOfRange) {
  for (const char* const text :
       {"18446744073709551616", "16777216TiB", "99999999999999999999999GiB"}) {
    EXPECT_EQ(parse_size(text).error().code(), Code::kOutOfRange) << text;
    EXPECT_EQ(parse_size(text).error().subject(), text);
  }
  EXPECT_EQ(explain_size("16777216TiB"), "'16777216TiB' is too large: at most 16777215TiB");
}

TEST(ParseSize, EverythingElseIsInvalid) {
  for (const char* const text :
       {"",      " ",    "KiB",    "-1",     "+1",       "010",         "00",
        "0x10",  "1e3",  "1.5GiB", "1,5GiB", "1_000",    "4 KiB",       "4KiB ",
        " 4KiB", "4KB",  "4MB",    "4GB",    "4K",       "4k",          "4kib",
        "4KIB",  "4PiB", "4KiBB",  "four",   "\xd9\xa3", "4\xc2\xa0KiB"}) {
    const auto size_bytes = parse_size(text);
    ASSERT_FALSE(size_bytes) << text;
    EXPECT_EQ(size_bytes.error().code(), Code::kInvalidArgument) << text;
    EXPECT_EQ(size_bytes.error().operation(), "parse_size");
    EXPECT_FALSE(explain_size(text).empty()) << text;
  }
}

TEST(ParseSize, AnEmbeddedNulIsInvalid) {
  EXPECT_FALSE(parse_size(std::string_view{"4\0KiB", 5}));
  EXPECT_FALSE(parse_size(std::string_view{"4KiB\0", 5}));
}

TEST(ExplainSize, SaysWhatWouldBeRight) {
  EXPECT_EQ(explain_size("64GiB"), "");
  EXPECT_EQ(explain_size(""), "expected a size such as 64GiB, found nothing");
  EXPECT_EQ(explain_size("-1"), "expected a size such as 64GiB, found '-1'");
  EXPECT_EQ(explain_size("64MB"), "unknown unit 'MB': write 64MiB");
  EXPECT_EQ(explain_size("64GB"), "unknown unit 'GB': write 64GiB");
  EXPECT_EQ(explain_size("64kb"), "unknown unit 'kb': write 64KiB");
  EXPECT_EQ(explain_size("64 MB"), "unknown unit 'MB': write 64MiB");
  EXPECT_EQ(explain_size("64G"), "unknown unit 'G': write 64GiB");
  EXPECT_EQ(explain_size("4 KiB"), "no space between number and unit: write 4KiB");
  EXPECT_EQ(explain_size("4PiB"), "unknown unit 'PiB': the units are B, KiB, MiB, GiB and TiB");
  EXPECT_EQ(explain_size("010"), "'010' has a leading zero: numbers are decimal, write it without");
  EXPECT_EQ(explain_size("1.5GiB"), "'1.5GiB' is not a whole number: use the next smaller unit");
}

TEST(ParseDuration, EveryUnit) {
  using namespace std::chrono_literals;
  EXPECT_EQ(parse_duration("5ns").value(), 5ns);
  EXPECT_EQ(parse_duration("5us").value(), 5us);
  EXPECT_EQ(parse_duration("250ms").value(), 250ms);
  EXPECT_EQ(parse_duration("5s").value(), 5s);
  EXPECT_EQ(parse_duration("5m").value(), 5min);
  EXPECT_EQ(parse_duration("5h").value(), 5h);
  EXPECT_EQ(parse_duration("0s").value(), 0s);
}

TEST(ParseDuration, UnitIsRequired) {
  EXPECT_EQ(parse_duration("5").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(parse_duration("0").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(explain_duration("5"), "'5' has no unit: the units are ns, us, ms, s, m and h");
}

TEST(ParseDuration, OverflowIsOutOfRange) {
  EXPECT_EQ(parse_duration("9223372036854775807ns").value(), nanoseconds{kMaxNs});
  for (const char* const text : {"9223372036854775808ns", "2562048h", "99999999999999999999s"})
    EXPECT_EQ(parse_duration(text).error().code(), Code::kOutOfRange) << text;
  EXPECT_TRUE(parse_duration("2562047h"));
}

TEST(ParseDuration, EverythingElseIsInvalid) {
  for (const char* const text : {"", "s", "-5s", "05s", "1.5s", "5 s", "5S", "5sec", "5min", "5d",
                                 "1h30m", "5\xc2\xb5s", "forever"}) {
    EXPECT_FALSE(parse_duration(text)) << text;
    EXPECT_FALSE(explain_duration(text).empty()) << text;
  }
  EXPECT_EQ(explain_duration("5min"), "unknown unit 'min': write 5m");
  EXPECT_EQ(explain_duration("5sec"), "unknown unit 'sec': write 5s");
  EXPECT_EQ(explain_duration("5d"), "unknown unit 'd': the units are ns, us, ms, s, m and h");
}

TEST(ParseNumber, DecimalOnly) {
  EXPECT_EQ(parse_number("0").value(), 0U);
  EXPECT_EQ(parse_number("7471").value(), 7471U);
  EXPECT_EQ(parse_number("18446744073709551616").error().code(), Code::kOutOfRange);
  for (const char* const text : {"", "010", "0x1f", "0o17", "1e3", "1.0", "-1", "+1", "1 ", "1B"})
    EXPECT_EQ(parse_number(text).error().code(), Code::kInvalidArgument) << text;
  EXPECT_EQ(explain_number("12"), "");
  EXPECT_EQ(explain_number("1KiB"), "expected a whole number without a unit");
  EXPECT_EQ(explain_number("1.5"), "'1.5' is not a whole number");
}

TEST(FormatSize, LargestUnitThatDivides) {
  EXPECT_EQ(format_size(0), "0B");
  EXPECT_EQ(format_size(1), "1B");
  EXPECT_EQ(format_size(1025), "1025B");
  EXPECT_EQ(format_size(4096), "4KiB");
  EXPECT_EQ(format_size(64ULL << 30U), "64GiB");
  EXPECT_EQ(format_size(1536ULL << 40U), "1536TiB");
}

TEST(FormatDuration, LargestUnitThatDivides) {
  using namespace std::chrono_literals;
  EXPECT_EQ(format_duration(0ns), "0s");
  EXPECT_EQ(format_duration(1ns), "1ns");
  EXPECT_EQ(format_duration(250ms), "250ms");
  EXPECT_EQ(format_duration(90s), "90s");
  EXPECT_EQ(format_duration(120s), "2m");
  EXPECT_EQ(format_duration(-5s), "-5s");
  EXPECT_EQ(format_duration(nanoseconds::min()), "-9223372036854775808ns");
}

// Properties, over values of every magnitude: random 64 bits, shifted by a random amount.
class UnitsProperty : public ::testing::Test {
 protected:
  std::uint64_t next() { return random_() >> (random_() % 64); }
  std::mt19937_64 random_{20240607};  // fixed, so that a failure can be repeated
  static constexpr int kRounds = 20'000;
};

TEST_F(UnitsProperty, ParseSizeInvertsFormatSize) {
  for (int i = 0; i < kRounds; ++i) {
    const std::uint64_t size_bytes = next() << (next() % 41);
    const std::string text = format_size(size_bytes);
    ASSERT_EQ(parse_size(text).value(), size_bytes) << text;
    ASSERT_EQ(explain_size(text), "") << text;
  }
}

TEST_F(UnitsProperty, ParseDurationInvertsFormatDuration) {
  for (int i = 0; i < kRounds; ++i) {
    const nanoseconds duration{static_cast<std::int64_t>(next() >> 1U)};
    const std::string text = format_duration(duration);
    ASSERT_EQ(parse_duration(text).value(), duration) << text;
  }
}

TEST_F(UnitsProperty, SizeEqualsNumberTimesUnitOrOverflows) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  for (int i = 0; i < kRounds; ++i) {
    const std::uint64_t number = next();
    const auto unit = static_cast<unsigned>(next() % 5);
    const auto size_bytes = parse_size(std::to_string(number) + kUnits[unit]);
    const bool fits = number <= (kMax >> (10 * unit));
    ASSERT_EQ(size_bytes.ok(), fits) << number << kUnits[unit];
    if (fits) {
      ASSERT_EQ(*size_bytes, number << (10 * unit));
    }
  }
}

TEST_F(UnitsProperty, ExplainIsEmptyExactlyWhenParseSucceeds) {
  constexpr std::string_view kLetters = "0123456789KMGTiBbnumsh .-+e";
  for (int i = 0; i < kRounds; ++i) {
    std::string text;
    for (std::size_t n = next() % 8; n > 0; --n)
      text.push_back(kLetters[random_() % kLetters.size()]);
    ASSERT_EQ(parse_size(text).ok(), explain_size(text).empty()) << text;
    ASSERT_EQ(parse_duration(text).ok(), explain_duration(text).empty()) << text;
    ASSERT_EQ(parse_number(text).ok(), explain_number(text).empty()) << text;
  }
}

}  // namespace
}  // namespace remora::config
