#include <sstream>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::Address;

TEST(Address, ParsesAndPrintsBothFamilies) {
  EXPECT_EQ(Address::parse("192.0.2.1", 7471).value().to_string(), "192.0.2.1:7471");
  EXPECT_EQ(Address::parse("2001:db8::1", 80).value().to_string(), "[2001:db8::1]:80");
}

TEST(Address, NameIsNoNumericAddress) {
  const auto address = Address::parse("localhost", 1);
  EXPECT_CODE(address, kInvalidArgument);
  EXPECT_EQ(address.error().subject(), "localhost");
  EXPECT_CODE(Address::parse("", 1), kInvalidArgument);
}

TEST(Address, ResolveTakesNumbersAndNames) {
  EXPECT_EQ(Address::resolve("127.0.0.1", 5).value().to_string(), "127.0.0.1:5");
  ASSERT_OK(Address::resolve("localhost", 5));
}

TEST(Address, UnknownNameIsNotFound) {
  const auto address = Address::resolve("no-such-host.invalid", 1);
  EXPECT_CODE(address, kNotFound);
  EXPECT_EQ(address.error().subject(), "no-such-host.invalid");
  EXPECT_CODE(Address::resolve("", 1), kInvalidArgument);
}

TEST(Address, AnyIsAny) {
  EXPECT_TRUE(Address::any_ipv4(1).is_any());
  EXPECT_TRUE(Address::any_ipv6(1).is_any());
  EXPECT_FALSE(Address::parse("::1", 1).value().is_any());
  EXPECT_EQ(Address::any_ipv6(9).port(), 9);
}

TEST(Address, EqualityLooksAtAllOfIt) {
  const auto one = Address::parse("10.0.0.1", 1).value();
  EXPECT_EQ(one, Address::parse("10.0.0.1", 1).value());
  EXPECT_FALSE(one == one.with_port(2));
  EXPECT_FALSE(one == Address::parse("10.0.0.2", 1).value());
  EXPECT_FALSE(one == Address::parse("::ffff:10.0.0.1", 1).value());
  EXPECT_EQ(Address::from(one.raw()), one);
}

TEST(Address, StrangeFamilyBecomesNothing) {
  sockaddr unknown{};
  unknown.sa_family = AF_UNIX;
  EXPECT_EQ(Address::from(&unknown), Address{});
  EXPECT_EQ(Address::from(nullptr), Address{});
}

}  // namespace
}  // namespace remora::test
