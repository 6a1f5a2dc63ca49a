// `auth: keys`: clients, their keys and the files of these, and what they may do with regions.

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include <remora/config/describe.h>
#include <remora/config/secret_key.h>

#include "config_testing.h"

namespace remora::config {
namespace {

using testing::faults;
using ::testing::HasSubstr;
using testing::kKeyA;
using testing::kKeyB;
using ::testing::Not;
using testing::parsed;
using testing::with_pool;

std::string with_clients(const std::string& clients, const std::string& regions = "") {
  return with_pool("auth: keys\nclients: [" + clients + "]\n" + regions);
}
std::string client(const std::string& name, const std::string& key, const std::string& more = "") {
  return "{name: " + name + ", key: '" + key + "'" + (more.empty() ? "" : ", " + more) + "}";
}

TEST(SecretKeys, AreSixtyFourHexadecimalDigits) {
  const std::string text = kKeyA;
  EXPECT_EQ(SecretKey::parse(text).value().to_hex(), text);
  EXPECT_EQ(SecretKey::parse(kKeyB).value().to_hex(), "a" + text.substr(1));
  for (const std::string& wrong :
       {std::string{}, text.substr(1), text + "0", "0x" + text.substr(2), " " + text.substr(1),
        text.substr(1) + "\n", text.substr(1) + "g", std::string(64, '\0')}) {
    const auto key = SecretKey::parse(wrong);
    ASSERT_FALSE(key) << wrong;
    EXPECT_EQ(key.error().code(), Code::kInvalidArgument);
    EXPECT_TRUE(key.error().subject().empty());
  }
}

TEST(SecretKeys, TypedOnesAreRefused) {
  EXPECT_FALSE(SecretKey::parse(std::string(64, '0')));
  std::string pattern;
  for (int i = 0; i < 4; ++i) pattern += "0123456789abcdef";
  EXPECT_FALSE(SecretKey::parse(pattern));
  std::string fifteen;
  for (int i = 0; i < 32; ++i) fifteen += std::string{"0"} + "0123456789abcde"[i % 15];
  EXPECT_FALSE(SecretKey::parse(fifteen));
  EXPECT_TRUE(SecretKey::parse(fifteen.substr(0, 62) + "ff"));
}

TEST(SecretKeys, GeneratedOnesDifferAndParse) {
  const SecretKey a = SecretKey::generate().value();
  const SecretKey b = SecretKey::generate().value();
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(SecretKey::parse(a.to_hex()).value() == a);
}

TEST(Clients, EveryKey) {
  const ServerConfig config =
      parsed(with_clients(client("a", kKeyA, "create: true, admin: true, quota: 1MiB") + ", " +
                              client("b.c-D_9", kKeyB),
                          "regions:\n  - {name: r, size: 4KiB, access: [{client: a, rights: [read, "
                          "write, atomic, admin]}, {client: '*', rights: [read]}]}\n"));
  EXPECT_EQ(config.auth, Auth::kKeys);
  ASSERT_EQ(config.clients.size(), 2U);
  EXPECT_EQ(config.clients[0].name, "a");
  EXPECT_EQ(config.clients[0].key->to_hex(), kKeyA);
  EXPECT_FALSE(config.clients[0].previous_key);
  EXPECT_TRUE(config.clients[0].create);
  EXPECT_TRUE(config.clients[0].admin);
  EXPECT_EQ(config.clients[0].quota_bytes, 1U << 20U);
  EXPECT_FALSE(config.clients[1].create);
  EXPECT_FALSE(config.clients[1].admin);
  EXPECT_EQ(config.clients[1].quota_bytes, 0U);
  ASSERT_EQ(config.regions[0].access.size(), 2U);
  EXPECT_EQ(config.regions[0].access[0], (RegionAccess{"a", true, true, true, true}));
  EXPECT_EQ(config.regions[0].access[1], (RegionAccess{"*", true, false, false, false}));
  EXPECT_TRUE(validate(config).empty()) << validate(config);
}

TEST(Clients, FaultsStandWhereTheyAre) {
  EXPECT_EQ(
      faults(with_pool("auth: keys\n")),
      "f.yaml:1:1: clients: required with 'auth: keys': without them no client could connect\n");
  EXPECT_EQ(faults(with_pool("auth: keys\nclients: []\n")),
            "f.yaml:3:10: clients: 1 to 4096, found 0\n");
  EXPECT_EQ(faults(with_clients("{name: a}")),
            "f.yaml:3:11: clients[0].key: required: 64 hexadecimal digits, or key_file ('remora "
            "key generate FILE' makes one)\n");
  EXPECT_EQ(faults(with_clients("{key: '" + std::string{kKeyA} + "'}")),
            "f.yaml:3:11: clients[0].name: required: 1 to 64 of A-Z a-z 0-9 . _ -, not . or ..\n");
  EXPECT_EQ(faults(with_clients(client("'*'", kKeyA))),
            "f.yaml:3:18: clients[0].name: must be 1 to 64 of A-Z a-z 0-9 . _ -, not . or .., "
            "found '*'\n");
  EXPECT_EQ(faults(with_pool("auth: none\nclients: [" + client("a", kKeyA) + "]\n")),
            "f.yaml:3:10: clients: have no use without 'auth: keys'\n");
  EXPECT_EQ(faults(with_clients(client("a", kKeyA, "previous_key: '" + std::string{kKeyA} + "'"))),
            "f.yaml:3:108: clients[0].previous_key: is the same as key: remove it, or make a new "
            "key\n");
}

TEST(Clients, NamesAndKeysAreOnesOwn) {
  EXPECT_EQ(faults(with_clients(client("a", kKeyA) + ",\n  " + client("a", kKeyB))),
            "f.yaml:4:10: clients[1].name: the name 'a' is taken by clients[0] in line 3\n");
  EXPECT_EQ(faults(with_clients(client("a", kKeyA) + ",\n  " + client("b", kKeyA))),
            "f.yaml:4:3: clients[1]: has a key that is also one of clients[0]: a client has a key "
            "of its own\n");
  EXPECT_EQ(
      faults(with_clients(client("a", kKeyA) + ",\n  " +
                          client("b", kKeyB, "previous_key: '" + std::string{kKeyA} + "'"))),
      "f.yaml:4:3: clients[1]: has a key that is also one of clients[0]: a client has a key of its "
      "own\n");
}

TEST(Clients, AWrongKeyIsNotShown) {
  const std::string nearly = std::string{kKeyA}.substr(1);
  const std::string text = faults(with_clients(client("a", nearly)));
  EXPECT_EQ(text, "f.yaml:3:26: clients[0].key: must be 64 hexadecimal digits, drawn at random\n");
}

TEST(Access, FaultsStandWhereTheyAre) {
  const auto region = [](const std::string& access) {
    return "regions:\n  - {name: r, size: 4KiB, access: " + access + "}\n";
  };
  EXPECT_EQ(faults(with_clients(client("backup", kKeyA), region("[]"))),
            "f.yaml:5:35: regions[0].access: 1 to 128, found 0\n");
  EXPECT_EQ(
      faults(with_clients(client("backup", kKeyA), region("[{client: bakcup, rights: [read]}]"))),
      "f.yaml:5:45: regions[0].access[0].client: no client 'bakcup' in clients: did you mean "
      "'backup'?\n");
  EXPECT_EQ(
      faults(with_clients(client("backup", kKeyA), region("[{client: '*', rights: [read, own]}]"))),
      "f.yaml:5:58: regions[0].access[0].rights: must be one or more of read, write, atomic "
      "and admin, found 'own'\n");
  EXPECT_EQ(faults(with_clients(client("backup", kKeyA),
                                region("[{client: '*', rights: [read]}, {client: '*', rights: "
                                       "[write]}]"))),
            "f.yaml:5:76: regions[0].access[1].client: '*' stands there twice\n");
  EXPECT_EQ(faults(with_pool(region("[{client: '*', rights: [read]}]"))),
            "f.yaml:3:35: regions[0].access: needs 'auth: keys': without it no client proves "
            "its name\n");
  EXPECT_EQ(faults(with_clients(client("backup", kKeyA), region("[{client: backup}]"))),
            "f.yaml:5:36: regions[0].access[0].rights: required: one or more of read, write, "
            "atomic and admin\n");
}

TEST(Clients, ShowHidesKeysAndPrintsTheRest) {
  const ServerConfig config = parsed(
      with_clients(client("a", kKeyA, "quota: 1MiB"),
                   "regions:\n  - {name: r, size: 4KiB, access: [{client: a, rights: [read]}]}\n"));
  const std::string text = show(config);
  EXPECT_THAT(text, Not(HasSubstr(std::string{kKeyA}.substr(0, 16))));
  EXPECT_THAT(text, HasSubstr("    access:\n      - client: a "));
  EXPECT_THAT(text, HasSubstr("        rights: [read] "));
  EXPECT_THAT(text, HasSubstr("clients:\n  - name: a "));
  EXPECT_THAT(text, HasSubstr("    key: ${HIDDEN} "));
  EXPECT_THAT(text, HasSubstr("    quota: 1MiB "));
  const ServerConfig again = parsed(text, {{"HIDDEN", kKeyA}});
  EXPECT_EQ(again.clients, config.clients);
  EXPECT_EQ(again.regions, config.regions);
}

TEST(Validate, ClientsOfAStruct) {
  ServerConfig config;
  config.pool.size_bytes = 1U << 20U;
  config.auth = Auth::kKeys;
  EXPECT_THAT(validate(config).to_string(), HasSubstr("clients: required with 'auth: keys'"));
  config.clients.resize(1);
  config.clients[0].name = "a b";
  EXPECT_THAT(validate(config).to_string(), HasSubstr("clients[0].name: must be 1 to 64"));
  EXPECT_THAT(validate(config).to_string(), HasSubstr("clients[0].key: required"));
  config.clients[0].name = "a";
  config.clients[0].key_file = "/etc/key";
  EXPECT_THAT(validate(config).to_string(), HasSubstr("clients[0].key_file: has not been read"));
  config.clients[0].key = SecretKey::parse(kKeyA).value();
  EXPECT_TRUE(validate(config).empty()) << validate(config);
  config.clients[0].quota_bytes = 1;
  EXPECT_THAT(validate(config).to_string(), HasSubstr("clients[0].quota: must be 4KiB to 64TiB"));
}

/// A folder with key files.
class KeyFiles : public ::testing::Test {
 public:
  KeyFiles() { std::filesystem::create_directories(folder_); }
  ~KeyFiles() override { std::filesystem::remove_all(folder_); }
  KeyFiles(const KeyFiles&) = delete;
  KeyFiles& operator=(const KeyFiles&) = delete;

 protected:
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }
  void write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    std::ofstream{folder_ / name, std::ios::binary} << text;
    ASSERT_EQ(::chmod(path(name).c_str(), mode), 0);
  }
  [[nodiscard]] auto load(const std::string& client) const {
    std::ofstream{folder_ / "server.yaml"} << with_clients(client);
    return load_server(path("server.yaml"));
  }
  [[nodiscard]] std::string faults_of(const std::string& client) const {
    const auto config = load(client);
    return config ? "no fault" : config.error().to_string();
  }

  const std::filesystem::path folder_ =
      std::filesystem::path{::testing::TempDir()} / ("remora-keys-" + std::to_string(::getpid()));
};

TEST_F(KeyFiles, AreReadFromTheFolderOfTheConfiguration) {
  write("a", std::string{kKeyA} + "\n");
  write("b", std::string{kKeyB} + "\r\n", 0440);
  const auto config = load("{name: a, key_file: a, previous_key_file: b}");
  ASSERT_TRUE(config) << config.error();
  EXPECT_TRUE(*config->clients[0].key == SecretKey::parse(kKeyA).value());
  EXPECT_TRUE(*config->clients[0].previous_key == SecretKey::parse(kKeyB).value());
  EXPECT_TRUE(validate(*config).empty());
  EXPECT_THAT(show(*config),
              HasSubstr("    # key:                                # from key_file"));
}

TEST_F(KeyFiles, MayBeReadByTheirGroupOnly) {
  write("key", kKeyA);
  for (const mode_t mode : {0600U, 0400U, 0640U, 0440U, 0700U}) {
    ASSERT_EQ(::chmod(path("key").c_str(), mode), 0);
    EXPECT_TRUE(read_key_file(path("key"))) << mode;
  }
  for (const mode_t mode : {0644U, 0604U, 0602U, 0601U, 0620U, 0610U, 0660U, 0777U}) {
    ASSERT_EQ(::chmod(path("key").c_str(), mode), 0);
    const auto key = read_key_file(path("key"));
    ASSERT_FALSE(key) << mode;
    EXPECT_EQ(key.error().code(), Code::kPermissionDenied);
    EXPECT_EQ(key.error().subject(), path("key"));
    EXPECT_THAT(key.error().message(), HasSubstr("chmod 600"));
  }
  EXPECT_THAT(faults_of("{name: a, key_file: key}"),
              HasSubstr("server.yaml:3:31: clients[0].key_file: 'key': key file that others may "
                        "read or change (chmod 600 it, or 640 for a group)\n"));
}

TEST_F(KeyFiles, SecretsThatEveryUserMayReadAreWarnedOf) {
  write("key", kKeyA);
  write("token", "open-sesame", 0644);
  const std::string text =
      with_clients("{name: a, key_file: key}, {name: b, key: " + std::string{kKeyB} + "}");
  const auto warnings = [&](const std::string& more, mode_t mode) {
    write("server.yaml", text + more, mode);
    return exposed_secrets(load_server(path("server.yaml")).value());
  };
  const std::string metrics = "\nmetrics: {address: \"127.0.0.1:1\", token_file: token}\n";
  EXPECT_THAT(warnings("\n", 0640), ::testing::IsEmpty());
  EXPECT_THAT(warnings("\n", 0644),
              ::testing::ElementsAre("clients[1].key stands in " + path("server.yaml") +
                                     ", which every user may read: chmod o-r it, or use "
                                     "clients[1].key_file"));
  EXPECT_THAT(warnings(metrics, 0600),
              ::testing::ElementsAre("metrics.token_file: every user may read " + path("token") +
                                     ": chmod o-r it"));
  EXPECT_THAT(exposed_secret_files(load_server(path("server.yaml")).value()),
              ::testing::ElementsAre(path("token")));
  // No other user reads a variable.
  ASSERT_EQ(::setenv("REMORA_UNIT_TEST_KEY", kKeyB, 1), 0);
  write("server.yaml", with_clients("{name: b, key: \"${REMORA_UNIT_TEST_KEY}\"}"), 0644);
  EXPECT_THAT(exposed_secrets(load_server(path("server.yaml")).value()), ::testing::IsEmpty());
  ::unsetenv("REMORA_UNIT_TEST_KEY");
}

TEST_F(KeyFiles, OfOneKeyAndNothingElse) {
  for (const std::string& text :
       {std::string{}, std::string{"\n"}, std::string{kKeyA}.substr(1), std::string{kKeyA} + "\n\n",
        std::string{kKeyA} + " ", std::string{kKeyA} + "\n" + kKeyB, "# " + std::string{kKeyA}}) {
    write("key", text);
    const auto key = read_key_file(path("key"));
    ASSERT_FALSE(key) << text;
    EXPECT_EQ(key.error().code(), Code::kInvalidArgument);
  }
  EXPECT_THAT(faults_of("{name: a, key_file: key}"),
              HasSubstr("clients[0].key_file: 'key': key: not 64 hexadecimal digits\n"));
}

TEST_F(KeyFiles, ThatAreNoFiles) {
  EXPECT_EQ(read_key_file(path("nowhere")).error().code(), Code::kNotFound);
  EXPECT_EQ(read_key_file("").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_key_file(path("")).error().code(), Code::kInvalidArgument);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_key_file(path("pipe")).error().code(), Code::kInvalidArgument);
  EXPECT_THAT(faults_of("{name: a, key_file: nowhere}"),
              HasSubstr("clients[0].key_file: 'nowhere': "));
}

TEST_F(KeyFiles, BesideAKeyAreOneTooMany) {
  write("key", kKeyA);
  EXPECT_THAT(faults_of(client("a", kKeyB, "key_file: key")),
              HasSubstr("clients[0].key_file: stands beside clients[0].key: remove one of them\n"));
}

TEST_F(KeyFiles, AreMadeForTheirOwnerAloneAndNotOverwritten) {
  const SecretKey key = SecretKey::generate().value();
  const mode_t before = ::umask(0);
  ASSERT_TRUE(write_key_file(path("new"), key));
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(path("new").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  EXPECT_TRUE(read_key_file(path("new")).value() == key);
  const Status again = write_key_file(path("new"), SecretKey::generate().value());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kAlreadyExists);
  EXPECT_TRUE(read_key_file(path("new")).value() == key);
  EXPECT_EQ(write_key_file(path("no/where"), key).error().code(), Code::kNotFound);
}

TEST(KeyFile, TextInMemoryOpensNone) {
  EXPECT_THAT(faults(with_clients("{name: a, key_file: /etc/key}")),
              HasSubstr("clients[0].key_file: has not been read"));
}

}  // namespace
}  // namespace remora::config
