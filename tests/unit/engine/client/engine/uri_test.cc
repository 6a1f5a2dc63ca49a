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
                           "remora://127.0.0.1/r?transport=shm", "remora://[fe80::1%25eth0]/r",
                           "remora://[fe80::1%25br0.7]:80/r"})
    EXPECT_EQ(Uri::parse(text).value().text(), text);
  EXPECT_EQ(Uri::parse("remora://h/").value().region, "");
}

TEST(Uri, SchemeIsCaseInsensitive) {
  for (const char* text : {"REMORA://h/r", "Remora://h/r", "remorA://h/r"})
    EXPECT_EQ(Uri::parse(text).value().text(), "remora://h/r") << text;
  EXPECT_FALSE(Uri::parse("remoras://h/r"));
}

TEST(Uri, ZoneOfAnAddressIsWrittenAsRfc6874SaysOrPlain) {
  for (const char* text : {"remora://[fe80::1%25eth0]/r", "remora://[fe80::1%eth0]/r"}) {
    const Uri uri = Uri::parse(text).value();
    EXPECT_EQ(uri.host, "fe80::1%eth0") << text;
    EXPECT_EQ(uri.text(), "remora://[fe80::1%25eth0]/r");
  }
  EXPECT_EQ(Uri::parse("remora://[fe80::1%252]").value().host, "fe80::1%2");
  EXPECT_EQ(Uri::parse("remora://[fe80::1%25a%2Db]").value().host, "fe80::1%a-b");
  // A zone that begins with 25 survives the way there and back.
  Uri odd;
  odd.host = "fe80::1%25th0";
  EXPECT_EQ(odd.text(), "remora://[fe80::1%2525th0]");
  EXPECT_EQ(Uri::parse(odd.text()).value().host, odd.host);
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
  EXPECT_EQ(fault("remora://[fe80::1%25]/r"), "URI host: fe80::1%25");
  EXPECT_EQ(fault("remora://[fe80::1%]/r"), "URI host: fe80::1%");
  EXPECT_EQ(fault("remora://[fe80::1%25a%2]/r"), "URI host: fe80::1%25a%2");
  EXPECT_EQ(fault("remora://[fe80::1%25a%0Ab]/r"), "URI host: fe80::1%25a%0Ab");
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
  EXPECT_EQ(fault("remora://h/r?mtu=1000"), "URI setting of rdma: mtu=1000");
  EXPECT_EQ(fault("remora://h/r?timeout"), "URI setting of rdma: timeout");
  EXPECT_EQ(fault("remora://h/r?pkey=0"), "URI setting of rdma: pkey=0");
  EXPECT_EQ(fault("remora://h/r?mtu=1024&mtu=512"), "URI option: a second mtu=512");
  EXPECT_EQ(fault("remora://h/r?mtu=1024&transport=tcp"), "URI option: mtu=1024");
  EXPECT_EQ(fault("remora://h/r?transport=shm&mtu=1024"), "URI option: mtu=1024");
  EXPECT_EQ(fault("remora://h/r?transport=tcp&transport=shm"),
            "URI option: a second transport=shm");
  EXPECT_EQ(fault("remora://h/r?transport=tcp&transport=tcp"),
            "URI option: a second transport=tcp");
  EXPECT_EQ(fault("remora://h/r?transport=auto&transport=tcp"),
            "URI option: a second transport=tcp");
  EXPECT_EQ(fault("remora://h/r?transport=tcp&crc=payload&crc=payload"),
            "URI option: a second crc=payload");
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

TEST(Uri, SettingsOfRdmaStandThereAndBack) {
  const std::string text =
      "remora://h/r?transport=rdma&traffic_class=106&service_level=3&pkey=0x8001&gid_index=2&"
      "mtu=1024&timeout=20&retry_count=0&rnr_retry=7";
  const Uri uri = Uri::parse(text).value();
  EXPECT_EQ(uri.rdma, (config::RdmaSettings{106, 3, 0x8001, 2, 1024, 20, 0, 7}));
  EXPECT_EQ(uri.text(), text);
  const Uri any = Uri::parse("remora://h/r?traffic_class=0").value();
  EXPECT_EQ(any.rdma.traffic_class, 0);
  EXPECT_EQ(any.text(), "remora://h/r?traffic_class=0");
}

TEST(Uri, RailsAreOfRdma) {
  for (const char* const text : {"remora://h/r?transport=rdma&rails=auto", "remora://h/r?rails=2",
                                 "remora://h/r?transport=rdma&mtu=1024&rails=mlx5_0,mlx5_1"})
    EXPECT_EQ(Uri::parse(text).value().text(), text);
  EXPECT_EQ(Uri::parse("remora://h/r?rails=2").value().rails, "2");
  for (const char* const text :
       {"remora://h/r?rails=9", "remora://h/r?rails=", "remora://h/r?rails=2&rails=2",
        "remora://h/r?transport=tcp&rails=2"})
    EXPECT_FALSE(Uri::parse(text)) << text;
}

TEST(Rights, TextListsThem) {
  EXPECT_EQ(to_string(Rights::kNone), "none");
  EXPECT_EQ(to_string(Rights::kAll), "read,write,atomic");
}

}  // namespace
}  // namespace remora
