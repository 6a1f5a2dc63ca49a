#include <atomic>
#include <chrono>
#include <netdb.h>
#include <sstream>
#include <stop_token>
#include <thread>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::Address;

verbs::Deadline in_time() { return verbs::deadline_in(std::chrono::seconds{30}); }

// The resolver of a host whose name server does not answer, until told otherwise.
std::atomic<bool> g_silent{false};
int silent_getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) {
  while (g_silent) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  return EAI_AGAIN;
}
int two_answers(const char*, const char*, const addrinfo*, addrinfo** list) {
  static sockaddr_in addresses[2];
  static addrinfo entries[2];
  for (int i = 0; i < 2; ++i) {
    addresses[i].sin_family = AF_INET;
    addresses[i].sin_addr.s_addr = htonl(0x0a000001U + static_cast<unsigned>(i));
    entries[i].ai_family = AF_INET;
    entries[i].ai_addrlen = sizeof(sockaddr_in);
    entries[i].ai_addr = reinterpret_cast<sockaddr*>(&addresses[i]);
    entries[i].ai_next = i == 0 ? &entries[1] : nullptr;
  }
  *list = entries;
  return 0;
}

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
  EXPECT_EQ(Address::resolve("127.0.0.1", 5, in_time()).value().to_string(), "127.0.0.1:5");
  ASSERT_OK(Address::resolve("localhost", 5, in_time()));
}

TEST(Address, UnknownNameIsNotFound) {
  const auto address = Address::resolve("no-such-host.invalid", 1, in_time());
  EXPECT_CODE(address, kNotFound);
  EXPECT_EQ(address.error().subject(), "no-such-host.invalid");
  EXPECT_CODE(Address::resolve("", 1, in_time()), kInvalidArgument);
}

TEST(Address, LinkLocalWithoutAZoneIsToldToNameIt) {
  EXPECT_FALSE(Address::parse("fe80::1%lo", 1).value().lacks_zone());
  EXPECT_FALSE(Address::parse("::1", 1).value().lacks_zone());
  EXPECT_TRUE(Address::parse("fe80::1", 1).value().lacks_zone());
  const auto address = Address::resolve("fe80::1", 1, in_time());
  EXPECT_CODE(address, kInvalidArgument);
  EXPECT_EQ(address.error().subject(), "fe80::1");
  EXPECT_NE(address.error().message().find("fe80::1%eth0"), std::string::npos) << address.error();
  ASSERT_OK(Address::resolve("fe80::1%lo", 1, in_time()));
}

TEST(Address, EveryAnswerIsGiven) {
  verbs::Provider provider = verbs::Provider::system();
  provider.getaddrinfo = two_answers;
  provider.freeaddrinfo = [](addrinfo*) {};
  const auto found = Address::resolve_all("storage7", 9, in_time(), provider);
  ASSERT_OK(found);
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ((*found)[0].to_string(), "10.0.0.1:9");
  EXPECT_EQ((*found)[1].to_string(), "10.0.0.2:9");
}

TEST(Address, SilentNameServerIsGivenUpAtTheDeadline) {
  static verbs::Provider provider = verbs::Provider::system();
  provider.getaddrinfo = silent_getaddrinfo;
  g_silent = true;
  const auto deadline = verbs::deadline_in(std::chrono::milliseconds{50});
  const auto address = Address::resolve("storage7", 1, deadline, provider);
  EXPECT_CODE(address, kTimedOut);
  EXPECT_EQ(address.error().subject(), "storage7");
  // Each that is given up goes on in the background; there is a limit to them.
  for (std::size_t i = 1; i < Address::kLookupsMax; ++i)
    EXPECT_CODE(Address::resolve("storage7", 1, {}, provider), kTimedOut);
  EXPECT_CODE(Address::resolve("storage7", 1, in_time(), provider), kLimitExceeded);
  EXPECT_EQ(Address::resolve("127.0.0.1", 5, {}, provider).value().port(), 5);  // needs none
  g_silent = false;
  Result<Address> after = Address::resolve("storage7", 1, in_time(), provider);
  while (!after && after.error().code() == Code::kLimitExceeded)
    after = Address::resolve("storage7", 1, in_time(), provider);
  EXPECT_CODE(after, kNotFound);
}

TEST(Address, StopEndsTheWaitForASilentNameServer) {
  // Never destroyed: the call below may return when the test, or the program, is over.
  static const std::stop_source& stop = *new std::stop_source;
  static verbs::Provider provider = verbs::Provider::system();
  provider.getaddrinfo = [](const char*, const char*, const addrinfo* hints, addrinfo**) {
    // A number is asked for first, without a thread of its own.
    if ((hints->ai_flags & AI_NUMERICHOST) != 0) return EAI_NONAME;
    std::stop_source{stop}.request_stop();
    while (g_silent) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    return EAI_AGAIN;
  };
  g_silent = true;
  const auto found = Address::resolve_all("storage7", 1, verbs::deadline_in(std::chrono::hours{1}),
                                          provider, stop.get_token());
  g_silent = false;
  EXPECT_CODE(found, kCancelled);
  EXPECT_EQ(found.error().subject(), "storage7");
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
