// What may follow a URI on a command line.

#include "cli/complete.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <remora/volume/management.h>

#include "cli/cluster_uri.h"
#include "unit/volume/management_fixture.h"

namespace remora::apps {
namespace {

using Words = std::vector<std::string>;

class Complete : public volume::test::Management {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Management::SetUp());
    for (const char* const name : {"disk", "disk2", "other"}) {
      volume::VolumeSpec one = spec(1 << 20);
      one.name = name;
      ASSERT_TRUE(volume::create_volume(cluster(), engine(), one));
    }
    add_store_uri(app_.add_subcommand("stat"), value_);
    add_uri(app_.add_subcommand("rm"), value_);
    add_uri(app_.add_subcommand("ls"), value_, true);
    add_cluster_uri(app_.add_subcommand("status"), value_, false);
    add_cluster_uri(app_.add_subcommand("resize"), value_, true);
  }
  /// The candidates for the URI of a command, sorted.
  [[nodiscard]] Words candidates(const std::string& command, const std::string& word) const {
    Words found;
    for (const LineCandidate& each : complete(app_, {command, word}).candidates)
      found.push_back(each.word);
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  CLI::App app_;
  std::string value_;
};

TEST_F(Complete, SchemesAreThoseOfTheCommand) {
  EXPECT_EQ(candidates("stat", ""), (Words{"remora+etcd://", "remora+file://", "remora://"}));
  EXPECT_EQ(candidates("stat", "remora:"), Words{"remora://"});
  EXPECT_EQ(candidates("stat", "remora+f"), Words{"remora+file://"});
  EXPECT_EQ(candidates("rm", ""), Words{"remora://"});
  EXPECT_EQ(candidates("ls", "r"), Words{"remora://"});
  EXPECT_EQ(candidates("status", ""), (Words{"remora+etcd://", "remora+file://"}));
}

TEST_F(Complete, VolumesAreThoseOfTheCluster) {
  const std::string uri = cluster_uri();
  for (const char* const command : {"stat", "resize"}) {
    EXPECT_EQ(candidates(command, uri + "/d"), (Words{uri + "/disk", uri + "/disk2"})) << command;
    EXPECT_EQ(candidates(command, uri + "/").size(), 3U) << command;
    EXPECT_EQ(candidates(command, uri + "/x"), Words{}) << command;
  }
}

TEST_F(Complete, NoVolumeWhereNoneIsWanted) {
  EXPECT_EQ(candidates("status", cluster_uri() + "/"), Words{});
  EXPECT_EQ(candidates("rm", cluster_uri() + "/"), Words{});
  EXPECT_EQ(candidates("ls", cluster_uri() + "/"), Words{});
}

TEST_F(Complete, NothingOfAClusterThatIsNotThere) {
  EXPECT_EQ(candidates("stat", cluster_uri() + ".json/"), Words{});
  EXPECT_EQ(candidates("stat", "remora+file:///nowhere/"), Words{});
  EXPECT_EQ(candidates("stat", "remora+etcd://127.0.0.1:1/lab/"), Words{});
  EXPECT_EQ(candidates("stat", "remora+etcd://127.0.0.1:1/"), Words{});
}

}  // namespace
}  // namespace remora::apps
