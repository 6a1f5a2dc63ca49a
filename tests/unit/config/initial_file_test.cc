// The file that `remora config init` writes: it loads, and it has every key.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>

#include <remora/config/describe.h>
#include <remora/config/initial_file.h>
#include <remora/config/load.h>
#include <remora/config/secret_key.h>

namespace remora::config {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kGibibyte = 1ULL << 30U;
constexpr std::uint64_t kMebibyte = 1ULL << 20U;

Machine machine_of(std::uint64_t available_bytes) {
  return {.name = "storage7", .available_bytes = available_bytes, .rdma_devices = {"mlx5_0"}};
}

TEST(InitialFile, LoadsAndServesThisHost) {
  const auto config = parse_server(initial_file(machine_of(19 * kGibibyte), {}), "new.yaml");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->listen.address, "127.0.0.1");
  EXPECT_EQ(config->auth, Auth::kNone);
  EXPECT_EQ(config->pool.size_bytes, 4 * kGibibyte);
  EXPECT_EQ(config->metrics.address, "127.0.0.1:9471");
  EXPECT_TRUE(config->regions.empty());
}

TEST(InitialFile, PoolOfASmallMachineHasTheLeastSize) {
  const auto config = parse_server(initial_file(machine_of(0), {}), "new.yaml");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->pool.size_bytes, 64 * kMebibyte);
}

TEST(InitialFile, PoolThatTheUserHasChosenIsTaken) {
  const InitialChoices choices{.pool_bytes = 100 * kMebibyte};
  const auto config = parse_server(initial_file(machine_of(kGibibyte), choices), "new.yaml");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->pool.size_bytes, 100 * kMebibyte);
}

TEST(InitialFile, SaysWhatTheMachineHas) {
  const std::string text = initial_file(machine_of(19 * kGibibyte), {});
  EXPECT_THAT(text, HasSubstr("storage7"));
  EXPECT_THAT(text, HasSubstr("mlx5_0"));
}

TEST(InitialFile, NameOfTheMachineEndsNoComment) {
  Machine machine = machine_of(kGibibyte);
  machine.name = "a\npool: {}";
  EXPECT_TRUE(parse_server(initial_file(machine, {}), "new.yaml"));
}

TEST(InitialFile, HasEveryKey) {
  const std::string text = initial_file(machine_of(kGibibyte), {});
  for (const KeyDescription& key : server_keys())
    EXPECT_THAT(text, HasSubstr(key.path.substr(key.path.rfind('.') + 1) + ":")) << key.path;
}

TEST(InitialFile, AddressOfTheNetworkAsksForKeys) {
  const InitialChoices choices{.listen_address = "::"};
  std::string text = initial_file(machine_of(kGibibyte), choices);
  const auto unread = parse_server(text, "new.yaml");  // parse_server() opens no file of a secret
  ASSERT_FALSE(unread);
  EXPECT_EQ(unread.error().size(), 1U) << unread.error();
  const std::string key_file = std::string{"key_file: "} + kInitialKeyFile;
  const std::size_t at = text.find(key_file);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, key_file.size(), "key: " + SecretKey::generate().value().to_hex());
  const auto config = parse_server(text, "new.yaml");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->listen.address, "::");
  EXPECT_EQ(config->auth, Auth::kKeys);
  ASSERT_EQ(config->clients.size(), 1U);
  EXPECT_TRUE(config->clients[0].admin);
}

// The block without the `# ` in front of its lines.
std::string with_block(const std::string& text, const std::string& name) {
  std::istringstream lines{text};
  std::string result;
  bool within = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "# " + name + ":") within = true;
    if (line.empty()) within = false;
    result.append(within && line.starts_with("# ") ? line.substr(2) : line).append("\n");
  }
  return result;
}

TEST(InitialFile, BlockThatIsNoCommentAnyMoreLoads) {
  const std::string text = initial_file(machine_of(19 * kGibibyte), {});
  for (const char* const name : {"transports", "regions", "limits", "log"}) {
    const std::string changed = with_block(text, name);
    EXPECT_NE(changed, text) << name;
    const auto config = parse_server(changed, "new.yaml");
    EXPECT_TRUE(config) << name << ": " << config.error();
  }
}

}  // namespace
}  // namespace remora::config
