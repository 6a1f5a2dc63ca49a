// What programs say that are built without volumes: no program of this tree is one.

#include "common/without_volumes.h"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include <remora/config/server_config.h>

#include "cli/commands.h"
#include "cli/volumes.h"
#include "server/cluster.h"

namespace remora::apps {
namespace {

const std::string kRefusal{kWithoutVolumes};
const std::string kVolume = "remora+file:///tmp/c.json/disk";

/// The program's command line, as far as it has to do with volumes.
struct CommandLine {
  CommandLine() {
    app.require_subcommand(1);
    app.add_flag("--json", commands.globals().json);
    commands.add("create", "Create a region");
    add_cluster_commands(commands);
    add_volume_commands(commands);
  }

  CLI::App app{"", "remora"};
  Commands commands{app};
};

TEST(WithoutVolumes, CommandsRefuseAnyWords) {
  for (const std::string& line :
       {std::string{"volume"}, "volume create --size 4GiB --kind mirror:2 " + kVolume,
        std::string{"volume ls --json remora+etcd://host/lab"}, std::string{"--json volume create"},
        std::string{"cluster status"}, std::string{"cluster drain --undo a b c"}}) {
    CommandLine remora;
    ASSERT_NO_THROW(remora.app.parse(line)) << line;
    const Outcome outcome = chosen_action()();
    ASSERT_FALSE(outcome) << line;
    EXPECT_EQ(outcome.error().exit_code, ExitCode::kUsage) << line;
    const std::string command = line.find("volume") < line.find("cluster") ? "volume" : "cluster";
    EXPECT_EQ(outcome.error().text, command + ": " + kRefusal) << line;
  }
}

TEST(WithoutVolumes, HelpDoesNotShowTheCommands) {
  const CommandLine remora;
  const std::string help = remora.app.help();
  EXPECT_NE(help.find("create"), std::string::npos) << help;
  EXPECT_EQ(help.find("volume"), std::string::npos) << help;
  EXPECT_EQ(help.find("cluster"), std::string::npos) << help;
  EXPECT_EQ(help_of_volume_uris(), "");
}

TEST(WithoutVolumes, UrisAreRecognisedAndRefused) {
  for (const char* const uri : {"remora+etcd://host/lab", "REMORA+FILE:///c.json/disk", "remora+"})
    EXPECT_TRUE(is_cluster_uri(uri)) << uri;
  for (const char* const uri : {"remora://host/disk", "remora", "http://host", ""})
    EXPECT_FALSE(is_cluster_uri(uri)) << uri;

  const std::string wanted = kVolume + ": " + kRefusal;
  const auto checked = check_volume_uri(kVolume);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().text, wanted);
  EXPECT_EQ(checked.error().exit_code, ExitCode::kUsage);
  const auto opened = open_volume(nullptr, {}, kVolume, Rights::kRead, "put disk.img");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().text, wanted);
  const Outcome shown = stat_in_cluster({}, kVolume);
  ASSERT_FALSE(shown);
  EXPECT_EQ(shown.error().text, wanted);
  EXPECT_TRUE(volumes_in("remora+file:///tmp/c.json", std::chrono::seconds{1}).empty());
}

TEST(WithoutVolumes, ServerRefusesACluster) {
  config::ServerConfig configuration;
  EXPECT_EQ(cluster_fault(configuration), "");
  configuration.cluster.server = "a";
  EXPECT_EQ(cluster_fault(configuration), kWithoutVolumes);
}

}  // namespace
}  // namespace remora::apps
