#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "config_testing.h"

namespace remora::config {
namespace {

using testing::faults;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::parsed;
using testing::with_pool;

/// A folder with a configuration in it.
class SecretFiles : public ::testing::Test {
 public:
  SecretFiles() { std::filesystem::create_directories(folder_); }
  ~SecretFiles() override { std::filesystem::remove_all(folder_); }
  SecretFiles(const SecretFiles&) = delete;
  SecretFiles& operator=(const SecretFiles&) = delete;

 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream{folder_ / name, std::ios::binary} << text;
  }
  [[nodiscard]] auto load(const std::string& metrics) const {
    write("server.yaml", with_pool("metrics: {address: '127.0.0.1:1', " + metrics + "}\n"));
    return load_server((folder_ / "server.yaml").string());
  }
  [[nodiscard]] std::string faults_of(const std::string& metrics) const {
    const auto config = load(metrics);
    return config ? "no fault" : config.error().to_string();
  }

  const std::filesystem::path folder_ = std::filesystem::path{::testing::TempDir()} /
                                        ("remora-secrets-" + std::to_string(::getpid()));
};

TEST_F(SecretFiles, AreReadFromTheFolderOfTheConfiguration) {
  write("token", "abc~123\n");
  write("password", "with spaces, \xc3\xa9\r\n");
  const auto config = load("token_file: token, user: sre, password_file: ./password");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->metrics.token, "abc~123");
  EXPECT_EQ(config->metrics.user, "sre");
  EXPECT_EQ(config->metrics.password, "with spaces, \xc3\xa9");
  EXPECT_TRUE(validate(*config).empty());
}

TEST_F(SecretFiles, AbsoluteNamesStayWhatTheyAre) {
  write("token", "abc");
  const auto config = load("token_file: '" + (folder_ / "token").string() + "'");
  ASSERT_TRUE(config) << config.error();
  EXPECT_EQ(config->metrics.token, "abc");
}

TEST_F(SecretFiles, MissingFileIsAFaultOfItsKey) {
  EXPECT_THAT(faults_of("token_file: nowhere"),
              HasSubstr("server.yaml:2:47: metrics.token_file: 'nowhere': cannot open the file: "
                        "No such file or directory\n"));
}

TEST_F(SecretFiles, EmptyOrUnusableContentIsAFaultThatDoesNotShowIt) {
  write("token", "\n");
  EXPECT_THAT(faults_of("token_file: token"),
              HasSubstr("metrics.token_file: 'token': must be printable ASCII without spaces"));
  write("token", "two words");
  EXPECT_THAT(faults_of("token_file: token"), Not(HasSubstr("two words")));
  write("token", std::string(1'025, 'x'));
  EXPECT_THAT(faults_of("token_file: token"), HasSubstr("at most 1024 bytes"));
}

TEST_F(SecretFiles, AndTheKeyItselfIsOneTooMany) {
  write("token", "abc");
  EXPECT_THAT(faults_of("token: def, token_file: token"),
              HasSubstr("metrics.token_file: stands beside metrics.token: remove one of them\n"));
}

TEST(Secrets, AreNotShownByFaults) {
  EXPECT_EQ(
      faults(with_pool("metrics: {token: 'se cret'}\n")),
      "f.yaml:2:18: metrics.token: must be printable ASCII without spaces and %, at most 1024 "
      "bytes\n");
}

TEST(Secrets, UserAndPasswordComeTogether) {
  EXPECT_EQ(faults(with_pool("metrics: {user: sre}\n")),
            "f.yaml:2:17: metrics.user: has no password: give metrics.password or "
            "metrics.password_file\n");
  EXPECT_EQ(faults(with_pool("metrics: {password: x}\n")),
            "f.yaml:2:21: metrics.password: of no user: give metrics.user too\n");
  EXPECT_THAT(faults(with_pool("metrics: {user: 'a:b', password: x}\n")),
              HasSubstr("metrics.user: must be text without colons"));
}

TEST(Secrets, UserThatHoldsAPasswordIsNotShown) {
  EXPECT_THAT(faults(with_pool("metrics: {user: 'sre:hunter2', password: x}\n")),
              Not(HasSubstr("hunter2")));
}

// cpp-httplib would decode it in a request.
TEST(Secrets, TokenHasNoPercentSign) {
  EXPECT_THAT(faults(with_pool("metrics: {token: 'ab%41c'}\n")), HasSubstr("without spaces and %"));
}

// Only load_server() reads these files: left unread they would let every reader in.
TEST(Secrets, FileNamedByHandMustHaveBeenRead) {
  ServerConfig config;
  config.pool.size_bytes = 1U << 20U;
  config.metrics.token_file = "/etc/token";
  EXPECT_THAT(validate(config).to_string(), HasSubstr("metrics.token_file: has not been read"));
  config.metrics.token = "abc";
  EXPECT_TRUE(validate(config).empty());
  config.metrics.password_file = "/etc/password";
  EXPECT_THAT(validate(config).to_string(), HasSubstr("metrics.password_file: has not been read"));
}

TEST(Secrets, TextInMemoryOpensNoFile) {
  EXPECT_THAT(faults(with_pool("metrics: {token_file: /proc/self/cmdline}\n")),
              HasSubstr("metrics.token_file: has not been read"));
}

TEST(Secrets, MayComeFromTheEnvironment) {
  EXPECT_EQ(parsed(with_pool("metrics: {token: '${T}'}\n"), {{"T", "abc"}}).metrics.token, "abc");
}

}  // namespace
}  // namespace remora::config
