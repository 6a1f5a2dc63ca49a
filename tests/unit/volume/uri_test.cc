// URIs of clusters and volumes.

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <remora/volume/remedy.h>
#include <remora/volume/uri.h>

#include "support/assert_ok.h"

namespace remora::volume {
namespace {

using Texts = std::vector<std::string>;

TEST(VolumeUri, EtcdHasEndpointsClusterAndVolume) {
  const auto uri = parse_uri("remora+etcd://a:1,b,[fe80::1]:3/lab/disk");
  ASSERT_OK(uri);
  EXPECT_EQ(uri->store, StoreKind::kEtcd);
  EXPECT_EQ(uri->endpoints, (Texts{"http://a:1", "http://b:2379", "http://[fe80::1]:3"}));
  EXPECT_EQ(uri->cluster, "lab");
  EXPECT_EQ(uri->volume, "disk");
  EXPECT_EQ(uri->text(), "remora+etcd://a:1,b:2379,[fe80::1]:3/lab/disk");
}

TEST(VolumeUri, ClusterAloneNamesNoVolume) {
  const auto uri = parse_uri("remora+etcd://a/lab");
  ASSERT_OK(uri);
  EXPECT_EQ(uri->volume, "");
  EXPECT_EQ(parse_volume_uri("remora+etcd://a/lab").error().operation(), "cluster URI volume");
}

TEST(VolumeUri, TlsIsInTheEndpoints) {
  const auto uri = parse_uri("REMORA+ETCD://a/lab/disk?tls=on");
  ASSERT_OK(uri);
  EXPECT_EQ(uri->endpoints, Texts{"https://a:2379"});
  EXPECT_EQ(uri->text(), "remora+etcd://a:2379/lab/disk?tls=on");
}

TEST(VolumeUri, FileEndsInJson) {
  const auto cluster = parse_uri("remora+file:///var/lib/c.json");
  ASSERT_OK(cluster);
  EXPECT_EQ(cluster->path, "/var/lib/c.json");
  EXPECT_EQ(cluster->cluster, kFileCluster);
  EXPECT_EQ(cluster->volume, "");
  const auto volume = parse_uri("remora+file:///var/lib/c.json/disk");
  ASSERT_OK(volume);
  EXPECT_EQ(volume->path, "/var/lib/c.json");
  EXPECT_EQ(volume->volume, "disk");
  EXPECT_EQ(volume->text(), "remora+file:///var/lib/c.json/disk");
}

TEST(VolumeUri, WrongPartIsNamed) {
  for (const auto& [text, part] : {std::pair{"remora://a/lab", "cluster URI scheme"},
                                   {"remora+etcd://a", "cluster URI cluster"},
                                   {"remora+etcd:///lab", "cluster URI endpoint"},
                                   {"remora+etcd://a:0/lab", "cluster URI endpoint"},
                                   {"remora+etcd://a:65536/lab", "cluster URI endpoint"},
                                   {"remora+etcd://a,/lab", "cluster URI endpoint"},
                                   {"remora+etcd://user@a/lab", "cluster URI endpoint"},
                                   {"remora+etcd://[[a]/lab", "cluster URI endpoint"},
                                   {"remora+etcd://a\n/lab", "cluster URI endpoint"},
                                   {"remora+etcd://a/lab/", "cluster URI volume"},
                                   {"remora+etcd://a/la b", "cluster URI cluster"},
                                   {"remora+etcd://a/lab/x/y", "cluster URI volume"},
                                   {"remora+etcd://a/lab?tls=yes", "cluster URI option"},
                                   {"remora+file://c.json", "cluster URI path"},
                                   {"remora+file:///c/disk", "cluster URI path"},
                                   {"remora+file:///.json/disk", "cluster URI path"},
                                   {"remora+file:///c.json/..", "cluster URI volume"}}) {
    const auto uri = parse_uri(text);
    ASSERT_FALSE(uri) << text;
    EXPECT_EQ(uri.error().operation(), part) << text;
    EXPECT_NE(remedy(uri.error()), "") << text;
  }
}

}  // namespace
}  // namespace remora::volume
