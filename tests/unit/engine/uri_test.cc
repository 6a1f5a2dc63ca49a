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

TEST(Uri, WrongPartsAreNamedAndWhatIsExpectedThere) {
  const auto fault = [](std::string_view text) {
    const auto parsed = Uri::parse(text);
    EXPECT_FALSE(parsed) << text;
    if (parsed) return std::string{};
    EXPECT_FALSE(parsed.error().remedy().empty()) << text;
    return std::string{parsed.error().operation()} + ": " + std::string{parsed.error().subject()};
  };
  EXPECT_EQ(fault(""), "URI scheme: (nothing)");
  EXPECT_EQ(fault("http://h"), "URI scheme: http://h");
  EXPECT_EQ(fault("remora:/h/r"), "URI scheme: remora:/h/r");
  EXPECT_EQ(fault("remora:///r"), "URI host: (nothing)");
  EXPECT_EQ(fault("remora://me@h/r"), "URI host: me@h");
  EXPECT_EQ(fault("remora://[::1/r"), "URI host: [::1");
  EXPECT_EQ(fault("remora://[[::1]/r"), "URI host: [::1");
  EXPECT_EQ(fault("remora://h]/r"), "URI host: h]");
  EXPECT_EQ(fault("remora://h\n/r"), "URI host: h?");
  EXPECT_EQ(fault("remora://h:0/r"), "URI port: 0");
  EXPECT_EQ(fault("remora://h:65536/r"), "URI port: 65536");
  EXPECT_EQ(fault("remora://h:/r"), "URI port: (nothing)");
  EXPECT_EQ(fault("remora://h:12x/r"), "URI port: 12x");
  EXPECT_EQ(fault("remora://h/a/b"), "URI region: a/b");
  EXPECT_EQ(fault("remora://h/a b"), "URI region: a b");
  EXPECT_EQ(fault("remora://h//r"), "URI region: /r");
  EXPECT_EQ(fault("remora://h/r?x=1"), "URI option: x=1");
  EXPECT_EQ(fault("remora://h/r?trasport=rdma"), "URI option: trasport=rdma");
  EXPECT_EQ(fault("remora://h/r?transport=pigeon"), "URI transport: pigeon");
  EXPECT_EQ(fault("remora://h/r?transport=tcp&crc=header"), "URI option: crc=header");
  EXPECT_EQ(fault("remora://h/r?transport=rdma&crc=payload"), "URI option: crc=payload");
  EXPECT_EQ(fault("remora://h/r?crc=payload"), "URI option: crc=payload");
}

TEST(Uri, UnknownTransportIsUnsupported) {
  EXPECT_EQ(Uri::parse("remora://h/r?transport=pigeon").error().code(), Code::kUnsupported);
}

TEST(Uri, PayloadChecksumIsOfTcp) {
  for (const std::string text :
       {"remora://h/r?transport=tcp&crc=payload", "remora://h/r?crc=payload&transport=tcp"}) {
    const Uri uri = Uri::parse(text).value();
    EXPECT_EQ(uri.transport, TransportKind::kTcp);
    EXPECT_TRUE(uri.payload_crc);
    EXPECT_EQ(uri.text(), "remora://h/r?transport=tcp&crc=payload");
  }
  EXPECT_FALSE(Uri::parse("remora://h/r?transport=tcp").value().payload_crc);
}

TEST(Rights, TextListsThem) {
  EXPECT_EQ(to_string(Rights::kNone), "none");
  EXPECT_EQ(to_string(Rights::kAll), "read,write,atomic");
}

}  // namespace
}  // namespace remora
