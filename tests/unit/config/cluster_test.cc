// Keys by which a server registers itself in a cluster.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "config_testing.h"

namespace remora::config {
namespace {

using testing::faults;
using ::testing::HasSubstr;
using testing::parsed;
using testing::with_pool;

std::string with_cluster(const std::string& keys) { return with_pool("cluster: {" + keys + "}\n"); }

TEST(Cluster, EveryKeyReachesItsField) {
  const config::Cluster cluster =
      parsed(with_cluster("server: s1, name: lab, etcd: [\"http://a:2379\", \"https://[::1]:1\"], "
                          "failure_domain: rack1, advertise: [\"192.0.2.7:7471\", \"b:1\"], "
                          "tls_ca_file: /ca, tls_certificate_file: /cert, tls_key_file: /key, "
                          "user: remora, password_file: /password"))
          .cluster;
  config::Cluster wanted;
  wanted.server = "s1";
  wanted.name = "lab";
  wanted.etcd = {"http://a:2379", "https://[::1]:1"};
  wanted.failure_domain = "rack1";
  wanted.advertise = {"192.0.2.7:7471", "b:1"};
  wanted.tls_ca_file = "/ca";
  wanted.tls_certificate_file = "/cert";
  wanted.tls_key_file = "/key";
  wanted.user = "remora";
  wanted.password_file = "/password";
  EXPECT_EQ(cluster, wanted);
  EXPECT_EQ(parsed(with_cluster("server: s1, file: /var/c.json")).cluster.file, "/var/c.json");
  EXPECT_EQ(parsed(with_pool("")).cluster, config::Cluster{});
}

TEST(Cluster, OneStoreIsNeeded) {
  EXPECT_THAT(faults(with_cluster("server: s1")), HasSubstr("names no store"));
  EXPECT_THAT(faults(with_cluster("server: s1, name: lab, etcd: \"http://a:1\", file: /c.json")),
              HasSubstr("names two stores"));
  EXPECT_THAT(faults(with_cluster("server: s1, etcd: \"http://a:1\"")),
              HasSubstr("cluster.name: required"));
  EXPECT_THAT(faults(with_cluster("server: s1, name: lab, file: /c.json")),
              HasSubstr("has no use with cluster.file"));
  EXPECT_THAT(faults(with_cluster("file: /c.json")), HasSubstr("cluster.server: required"));
}

TEST(Cluster, CredentialsComeInPairs) {
  const std::string store = "server: s1, name: lab, etcd: \"https://a:1\", ";
  EXPECT_THAT(faults(with_cluster(store + "tls_key_file: /k")),
              HasSubstr("cluster.tls_certificate_file"));
  EXPECT_THAT(faults(with_cluster(store + "tls_certificate_file: /c")),
              HasSubstr("cluster.tls_key_file"));
  EXPECT_THAT(faults(with_cluster(store + "user: u")), HasSubstr("cluster.password_file"));
  EXPECT_THAT(faults(with_cluster(store + "password_file: /p")), HasSubstr("cluster.user"));
}

TEST(Cluster, EveryAddressIsNoneToConnectTo) {
  const std::string listen = "listen: {address: 0.0.0.0}\nauth: none\n";
  EXPECT_THAT(faults(listen + with_cluster("server: s1, file: /c.json")),
              HasSubstr("cluster.advertise: required"));
  EXPECT_EQ(faults(listen + with_cluster("server: s1, file: /c.json, advertise: \"a:7471\"")),
            "no fault");
  EXPECT_NE(faults(with_cluster("server: s1, file: /c.json, advertise: \"0.0.0.0:7471\"")),
            "no fault");
}

TEST(Cluster, WrongValuesAreRefused) {
  for (const char* const wrong : {"etcd: \"a:2379\"", "etcd: \"http://a\"",
                                  "etcd: \"http://a:1/x\"", "etcd: []", "etcd: \"http://u@a:1\""})
    EXPECT_NE(faults(with_cluster(std::string{"server: s1, name: lab, "} + wrong)), "no fault")
        << wrong;
  for (const char* const wrong : {"file: c.json", "file: /c.txt", "file: /.json"})
    EXPECT_NE(faults(with_cluster(std::string{"server: s1, "} + wrong)), "no fault") << wrong;
  EXPECT_NE(faults(with_cluster("server: \"a/b\", file: /c.json")), "no fault");
}

}  // namespace
}  // namespace remora::config
