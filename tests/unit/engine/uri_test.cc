#include <gtest/gtest.h>

#include <remora/engine/uri.h>

namespace remora {
namespace {

TEST(Uri, DefaultsArePortAndTransport) {
  const Uri uri = Uri::parse("remora://storage7/cache").value();
  EXPECT_EQ(uri.host, "storage7");
  EXPECT_EQ(uri.port, kDefaultPort);
  EXPECT_EQ(uri.region, "cache");
  EXPECT_EQ(uri.transport, TransportKind::kAuto);
}

TEST(Uri, EveryPartAndBack) {
  for (const char* text : {"remora://h", "remora://h:1/r", "remora://[::1]:80/r?transport=rdma",
                           "remora://127.0.0.1/r?transport=shm", "remora://[fe80::1%eth0]/r"})
    EXPECT_EQ(Uri::parse(text).value().text(), text);
  EXPECT_EQ(Uri::parse("remora://h/").value().region, "");
}

TEST(Uri, WrongPartsAreNamed) {
  const auto subject = [](const char* text) {
    const auto parsed = Uri::parse(text);
    EXPECT_FALSE(parsed) << text;
    return parsed ? std::string{} : std::string{parsed.error().subject()};
  };
  EXPECT_EQ(subject(""), "empty");
  EXPECT_EQ(subject("http://h"), "http://h");
  EXPECT_EQ(subject("remora:///r"), "no host");
  EXPECT_EQ(subject("remora://h:0/r"), "h:0");
  EXPECT_EQ(subject("remora://h:65536/r"), "h:65536");
  EXPECT_EQ(subject("remora://h:/r"), "h:");
  EXPECT_EQ(subject("remora://[::1/r"), "[::1");
  EXPECT_EQ(subject("remora://h/a/b"), "a/b");
  EXPECT_EQ(subject("remora://h/r?x=1"), "x=1");
  EXPECT_EQ(subject("remora://h/r?transport=tcp"), "tcp");
}

TEST(Uri, UnknownTransportIsUnsupported) {
  EXPECT_EQ(Uri::parse("remora://h/r?transport=tcp").error().code(), Code::kUnsupported);
}

TEST(Rights, TextListsThem) {
  EXPECT_EQ(to_string(Rights::kNone), "none");
  EXPECT_EQ(to_string(Rights::kAll), "read,write,atomic");
}

}  // namespace
}  // namespace remora
