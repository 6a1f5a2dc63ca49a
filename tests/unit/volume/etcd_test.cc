// An etcd that is absent, slow, another one, or does not know the client.

#include <algorithm>
#include <arpa/inet.h>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/volume/cluster.h>
#include <remora/volume/open_store.h>
#include <remora/volume/remedy.h>

#include "support/assert_ok.h"
#include "unit/volume/etcd_process.h"

namespace remora::volume::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

std::shared_ptr<MetadataStore> store_at(std::vector<std::string> endpoints,
                                        const StoreOptions& options = {}) {
  VolumeUri uri;
  uri.endpoints = std::move(endpoints);
  return open_store(uri, options).value();
}

/// A socket that listens, and does with connections what a test wants.
class Listening {
 public:
  Listening() : fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(fd_, 8), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Listening() {
    ::shutdown(fd_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::close(fd_);
  }
  /// Answers each request with `answer`, and closes the connection.
  void serve(const std::string& answer) { serve_all({answer}); }
  /// Answers the requests with `answers`, in this order; those after them as the last.
  void serve_all(std::vector<std::string> answers) {
    thread_ = std::thread{[this, answers = std::move(answers)] {
      std::size_t next = 0;
      for (int one = 0; (one = ::accept(fd_, nullptr, nullptr)) >= 0; ::close(one)) {
        std::string request(65536, '\0');
        EXPECT_GT(::recv(one, request.data(), request.size(), 0), 0);
        const std::string& answer = answers[std::min(next++, answers.size() - 1)];
        EXPECT_GT(::send(one, answer.data(), answer.size(), MSG_NOSIGNAL), 0);
      }
    }};
  }
  [[nodiscard]] std::string endpoint(const std::string& scheme = "http") const {
    return scheme + "://127.0.0.1:" + std::to_string(port_);
  }

 private:
  int fd_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

std::string http_answer(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status +
         "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         body;
}

std::string nowhere() { return "http://127.0.0.1:" + std::to_string(free_port()); }

TEST(Etcd, AbsentIsUnreachable) {
  const auto store = store_at({nowhere(), nowhere()});
  const auto read = store->range("/a", 5s);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kUnreachable);
  EXPECT_THAT(remedy(read.error()), HasSubstr("check that etcd runs"));
  // Nothing was sent, so it can never apply.
  const auto committed = store->commit({{}, {{"/a", "1"}}}, 5s);
  ASSERT_FALSE(committed);
  EXPECT_EQ(committed.error().code(), Code::kUnreachable);
}

TEST(Etcd, SilentEndsAtTheLimit) {
  const Listening silent;
  const auto store = store_at({silent.endpoint()});
  EXPECT_EQ(store->range("/a", 200ms).error().code(), Code::kTimedOut);
}

TEST(Etcd, TransactionWithoutAnswerIsUnknown) {
  const Listening silent;
  const auto committed = store_at({silent.endpoint()})->commit({{}, {{"/a", "1"}}}, 200ms);
  ASSERT_OK(committed);
  EXPECT_EQ(committed->outcome, Outcome::kUnknown);
  ASSERT_TRUE(committed->cause);
  EXPECT_EQ(committed->cause->code(), Code::kTimedOut);
}

TEST(Etcd, TransactionWithoutAnswerIsNotSentAgainAndTheNextGoesElsewhere) {
  const Listening silent;
  Listening other;
  const std::string applied = R"({"header":{"revision":"5"},"succeeded":true})";
  other.serve("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(applied.size()) + "\r\n\r\n" +
              applied);
  ASSERT_EQ(store_at({other.endpoint()})->commit({{}, {{"/a", "1"}}}, 5s).value().outcome,
            Outcome::kApplied);
  const auto store = store_at({silent.endpoint(), other.endpoint()});
  EXPECT_EQ(store->commit({{}, {{"/a", "1"}}}, 400ms).value().outcome, Outcome::kUnknown);
  // The next one is not given to the endpoint that stands still.
  EXPECT_EQ(store->commit({{}, {{"/a", "1"}}}, 5s).value().outcome, Outcome::kApplied);
}

TEST(Etcd, TransactionThatAProxyAnswersIsUnknown) {
  Listening proxy;
  proxy.serve("HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 7\r\n\r\n<html/>");
  const auto committed = store_at({proxy.endpoint()})->commit({{}, {{"/a", "1"}}}, 5s);
  ASSERT_OK(committed);
  EXPECT_EQ(committed->outcome, Outcome::kUnknown);
}

TEST(Etcd, AnotherServerIsNamed) {
  Listening http;
  http.serve("HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found");
  EXPECT_EQ(store_at({http.endpoint()})->range("/a", 5s).error().code(), Code::kUnsupported);
  Listening json;
  json.serve("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(store_at({json.endpoint()})->range("/a", 5s).error().code(), Code::kProtocol);
  Listening text;
  text.serve("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_EQ(store_at({text.endpoint()})->range("/a", 5s).error().code(), Code::kProtocol);
}

/// A proxy without its etcd, and a handshake that fails: the other members have the same keys.
TEST(Etcd, AnotherEndpointAnswersForOneBehindAProxyOrWithoutTls) {
  Listening proxy;
  proxy.serve(http_answer("503 Service Unavailable", "<html/>"));
  Listening good;
  good.serve(http_answer("200 OK", R"({"header":{"revision":"5"}})"));
  EXPECT_EQ(store_at({proxy.endpoint(), good.endpoint()})->range("/a", 5s).value().revision, 5U);
  const std::string no_tls = proxy.endpoint("https");
  EXPECT_EQ(store_at({no_tls, good.endpoint()})->range("/a", 5s).value().revision, 5U);
  // If no endpoint answers, the handshake says more than the others.
  EXPECT_EQ(store_at({no_tls, nowhere()})->range("/a", 5s).error().code(), Code::kPermissionDenied);
}

TEST(Etcd, RangeThatWasCompactedBetweenItsPagesBeginsAgain) {
  Listening etcd;
  etcd.serve_all(
      {http_answer("200 OK", R"({"header":{"revision":"5"},"more":true,
                                 "kvs":[{"key":"L2E=","value":"MQ==","mod_revision":"5"}]})"),
       http_answer("400 Bad Request", R"({"code":11,"error":"etcdserver: mvcc: required revision )"
                                      R"(has been compacted"})"),
       http_answer("200 OK", R"({"header":{"revision":"7"},
                                 "kvs":[{"key":"L2E=","value":"Mg==","mod_revision":"7"}]})")});
  const auto found = store_at({etcd.endpoint()})->range("/a", 5s);
  ASSERT_OK(found);
  EXPECT_EQ(found->revision, 7U);
  ASSERT_EQ(found->entries.size(), 1U);
  EXPECT_EQ(found->entries[0].value, "2");
}

TEST(Etcd, ErrorOfARenewalHasItsText) {
  Listening etcd;
  etcd.serve(http_answer("503 Service Unavailable",
                         R"({"error":{"grpc_code":14,"message":"etcdserver: no leader"}})"));
  const Status renewed = store_at({etcd.endpoint()})->keep_alive(1, 5s);
  ASSERT_FALSE(renewed);
  EXPECT_EQ(renewed.error().code(), Code::kUnreachable);
  EXPECT_THAT(std::string{renewed.error().subject()}, HasSubstr("no leader"));
}

class RealEtcd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_etcd()) GTEST_SKIP() << "etcd is not installed: ci/setup.sh cluster";
  }
};

TEST_F(RealEtcd, AnotherEndpointAnswersForOneThatDoesNot) {
  const EtcdProcess etcd;
  const Listening silent;
  for (const std::string& dead : {nowhere(), silent.endpoint()}) {
    const auto store = store_at({dead, etcd.endpoint()});
    ASSERT_OK(store->range("/a", 4s));
    // Now the one that has answered is first, so that a transaction is sent there.
    EXPECT_EQ(store->commit({{}, {{"/a", "1"}}}, 4s).value().outcome, Outcome::kApplied);
  }
}

TEST_F(RealEtcd, StoppedOneAnswersAgain) {
  const EtcdProcess etcd;
  const auto store = store_at({etcd.endpoint()});
  ASSERT_EQ(store->commit({{}, {{"/a", "1"}}}, 10s).value().outcome, Outcome::kApplied);
  etcd.pause();
  EXPECT_EQ(store->range("/a", 200ms).error().code(), Code::kTimedOut);
  EXPECT_EQ(store->commit({{{"/a", "1"}}, {{"/a", "2"}}}, 200ms).value().outcome,
            Outcome::kUnknown);
  etcd.resume();
  // The lost transaction applies now or never: after one of ours, it cannot.
  const auto after = store->commit({{{"/a", "1"}}, {{"/a", "3"}}}, 10s).value();
  const std::string value = get_one(*store, "/a", 10s).value()->value;
  EXPECT_EQ(value, after.outcome == Outcome::kApplied ? "3" : "2");
}

TEST_F(RealEtcd, WhatItHadSurvivesItsRestart) {
  EtcdProcess etcd;
  const auto store = store_at({etcd.endpoint()});
  ASSERT_EQ(store->commit({{}, {{"/a", "1"}}}, 10s).value().outcome, Outcome::kApplied);
  etcd.kill();
  EXPECT_EQ(store->range("/a", 1s).error().code(), Code::kUnreachable);
  etcd.start();
  EXPECT_EQ(get_one(*store, "/a", 20s).value()->value, "1");
}

TEST_F(RealEtcd, ItsConnectionsEndInProgramsThatAChildExecutes) {
  const EtcdProcess etcd;
  const auto store = store_at({etcd.endpoint()});
  ASSERT_OK(store->range("/a", 10s));
  int connections = 0;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    const int descriptor = std::stoi(entry.path().filename().string());
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0 ||
        peer.sin_family != AF_INET)
      continue;
    ++connections;
    EXPECT_EQ(::fcntl(descriptor, F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(connections, 1);
}

TEST_F(RealEtcd, GenerationIsMadeOnce) {
  const EtcdProcess etcd;
  const Cluster one{store_at({etcd.endpoint()}), "lab"};
  const Cluster same{store_at({etcd.endpoint()}), "lab"};
  const Cluster other{store_at({etcd.endpoint()}), "lab2"};
  const std::uint64_t made = one.generation().value();
  EXPECT_EQ(same.generation().value(), made);
  EXPECT_NE(other.generation().value(), made);
  EXPECT_TRUE(one.servers().value().empty());
}

TEST_F(RealEtcd, UserNeedsItsPassword) {
  EtcdProcess etcd{{"--auth-token=simple"}};
  ASSERT_EQ(etcd.control({"user", "add", "root:secret"}), 0);
  ASSERT_EQ(etcd.control({"user", "grant-role", "root", "root"}), 0);
  ASSERT_EQ(etcd.control({"auth", "enable"}), 0);
  const auto unnamed = store_at({etcd.endpoint()})->range("/a", 10s);
  ASSERT_FALSE(unnamed);
  EXPECT_EQ(unnamed.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(remedy(unnamed.error()), HasSubstr("REMORA_ETCD_USER"));
  const StoreOptions wrong{.user = "root", .password = "guess"};
  EXPECT_EQ(store_at({etcd.endpoint()}, wrong)->range("/a", 10s).error().code(),
            Code::kPermissionDenied);
  const StoreOptions right{.user = "root", .password = "secret"};
  const auto store = store_at({etcd.endpoint()}, right);
  EXPECT_EQ(store->commit({{}, {{"/a", "1"}}}, 10s).value().outcome, Outcome::kApplied);
  // It forgets its tokens: the client asks for another one by itself.
  etcd.kill();
  etcd.start();
  const auto until = std::chrono::steady_clock::now() + 20s;
  auto again = get_one(*store, "/a", 10s);
  while (!again && again.error().code() != Code::kPermissionDenied &&
         std::chrono::steady_clock::now() < until)
    again = get_one(*store, "/a", 10s);
  EXPECT_EQ(again.value()->value, "1");
}

/// Makes a signer, and certificates of it for the server and a client, by openssl(1).
class TlsEtcd : public RealEtcd {
 protected:
  void SetUp() override {
    RealEtcd::SetUp();
    if (IsSkipped()) return;
    make_signer("ca");
    make_signer("other-ca");
    make_certificate("server", "ca");
    make_certificate("client", "ca");
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return folder_.path() + "/" + name;
  }
  [[nodiscard]] std::vector<std::string> options() const {
    return {"--cert-file=" + file("server.pem"), "--key-file=" + file("server.key"),
            "--client-cert-auth", "--trusted-ca-file=" + file("ca.pem")};
  }
  [[nodiscard]] StoreOptions client(const std::string& signer) const {
    return {.ca_file = file(signer + ".pem"),
            .certificate_file = file("client.pem"),
            .key_file = file("client.key")};
  }

 private:
  void make_signer(const std::string& name) const {
    ASSERT_EQ(run({"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                   "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=" + name,
                   "-keyout", file(name + ".key"), "-out", file(name + ".pem")}),
              0);
  }
  void make_certificate(const std::string& name, const std::string& signer) const {
    ASSERT_EQ(run({"openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                   "-nodes", "-subj", "/CN=" + name, "-keyout", file(name + ".key"), "-out",
                   file(name + ".csr")}),
              0);
    std::ofstream{file(name + ".ext")} << "subjectAltName=IP:127.0.0.1\n";
    ASSERT_EQ(run({"openssl", "x509", "-req", "-in", file(name + ".csr"), "-CA",
                   file(signer + ".pem"), "-CAkey", file(signer + ".key"), "-CAcreateserial",
                   "-days", "2", "-extfile", file(name + ".ext"), "-out", file(name + ".pem")}),
              0);
  }
  TemporaryFolder folder_;
};

TEST_F(TlsEtcd, ClientAndServerProveThemselves) {
  const EtcdProcess etcd{options(), "https"};
  ASSERT_OK(store_at({etcd.endpoint()}, client("ca"))->range("/a", 10s));
  EXPECT_EQ(
      store_at({etcd.endpoint()}, client("ca"))->commit({{}, {{"/a", "1"}}}, 10s).value().outcome,
      Outcome::kApplied);
  const auto forged = store_at({etcd.endpoint()}, client("other-ca"))->range("/a", 10s);
  ASSERT_FALSE(forged);
  EXPECT_EQ(forged.error().code(), Code::kPermissionDenied);
  EXPECT_THAT(remedy(forged.error()), HasSubstr("REMORA_ETCD_CA_FILE"));
  const auto unproven = store_at({etcd.endpoint()}, {.ca_file = file("ca.pem")})->range("/a", 10s);
  ASSERT_FALSE(unproven);
  EXPECT_EQ(unproven.error().code(), Code::kPermissionDenied) << unproven.error();
  const auto plain = store_at({"http://" + etcd.address()})->range("/a", 10s);
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().code(), Code::kUnreachable) << plain.error();
  EXPECT_THAT(remedy(plain.error()), HasSubstr("tls=on"));
}

TEST(StoreFiles, MissingCertificateIsNamedBeforeTheFirstCall) {
  VolumeUri uri;
  uri.endpoints = {nowhere()};
  const auto store = open_store(uri, {.ca_file = "/no/such.pem"});
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), Code::kNotFound);
  EXPECT_EQ(store.error().subject(), "/no/such.pem");
}

TEST(StoreFiles, PasswordIsTheFirstLineWithoutItsEnd) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/password";
  std::ofstream{path} << "secret\r\nof the laboratory\r\n";
  ASSERT_EQ(::setenv("REMORA_ETCD_PASSWORD_FILE", path.c_str(), 1), 0);
  const auto options = store_options_of_environment();
  ::unsetenv("REMORA_ETCD_PASSWORD_FILE");
  ASSERT_OK(options);
  EXPECT_EQ(options->password, "secret");
}

TEST(StoreFiles, PasswordThatNoRequestCanHoldIsRefused) {
  VolumeUri uri;
  uri.endpoints = {nowhere()};
  const auto store = open_store(uri, {.user = "root", .password = "gr\xfc\xdf"});
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(store.error().operation(), "password of etcd");
}

}  // namespace
}  // namespace remora::volume::test
