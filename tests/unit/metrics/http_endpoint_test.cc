/// What the endpoint answers.

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/process.h>

#include "http_endpoint_fixture.h"
#include "raw_client.h"
#include "support/eventually.h"
#include "support/forked.h"

namespace remora::metrics {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(HttpEndpointTest, ChildOfForkLeavesItServing) {
  if (!test::kChildrenOfFork) GTEST_SKIP() << "ThreadSanitizer reports its threads in a child";
  std::optional<HttpEndpoint> endpoint{start()};
  test::Forked child{[&] {
    const bool empty = endpoint->port() == 0 && endpoint->address().empty();
    endpoint.reset();
    return std::string{empty ? "" : "it answers"};
  }};
  EXPECT_EQ(child.found(), "");
  EXPECT_THAT(get(endpoint->port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpEndpointTest, MetricsAreServedWithTheirContentType) {
  registry_->recorder().add(registry_->counter("test_total", "Help.").value(), 42);
  const HttpEndpoint endpoint = start();
  const std::string response = get(endpoint.port(), "/metrics");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(response, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(response, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(body_of(response), HasSubstr("test_total 42\n"));
}

TEST_F(HttpEndpointTest, HeadHasNoBody) {
  ASSERT_TRUE(registry_->counter("test_total", "Help."));
  const HttpEndpoint endpoint = start();
  const std::string response = get(endpoint.port(), "/metrics", "HEAD");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(body_of(response), "");
}

TEST_F(HttpEndpointTest, GzipWhereTheClientAcceptsIt) {
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(registry_->counter("test_total", "Help.", {{"i", std::to_string(i)}}));
  const HttpEndpoint endpoint = start();
  const std::string response = get(endpoint.port(), "/metrics", "GET", "Accept-Encoding: gzip\r\n");
  EXPECT_THAT(response, HasSubstr("Content-Encoding: gzip\r\n"));
  EXPECT_THAT(body_of(response), StartsWith("\x1f\x8b"));
}

TEST_F(HttpEndpointTest, GzipAsTheWeightsOfAcceptEncodingSay) {
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(registry_->counter("test_total", "Help.", {{"i", std::to_string(i)}}));
  const HttpEndpoint endpoint = start();
  const auto is_gzip = [&](const std::string& value) {
    const std::string response =
        get(endpoint.port(), "/metrics", "GET", "Accept-Encoding: " + value + "\r\n");
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 ")) << value;
    return response.find("Content-Encoding: gzip") != std::string::npos;
  };
  for (const char* yes : {"gzip", "GZIP", "x-gzip", "br, gzip", "gzip;q=1.0", "gzip ; q=0.001", "*",
                          "deflate, *;q=0.5", "identity;q=0.5, gzip", "br;q=0,gzip"})
    EXPECT_TRUE(is_gzip(yes)) << yes;
  for (const char* no :
       {"gzip;q=0", "gzip; q=0.000", "gzip;Q=0", "xgzip", "gzipped", "deflate;x=gzip", "identity",
        "gzip;q=0, *", "*;q=0", "identity, gzip;q=0.5", "gzip;q=much", ""})
    EXPECT_FALSE(is_gzip(no)) << no;
  // A list may be spread over several headers.
  EXPECT_THAT(
      get(endpoint.port(), "/metrics", "GET", "Accept-Encoding: br\r\nAccept-Encoding: gzip\r\n"),
      HasSubstr("Content-Encoding: gzip\r\n"));
}

TEST_F(HttpEndpointTest, HealthAnswers200Or503WithTheReason) {
  std::atomic<bool> well{true};
  const HttpEndpoint endpoint = start({.health = [&] {
    return well ? Health{true, "serving"} : Health{false, "draining: 3 sessions left"};
  }});
  std::string response = get(endpoint.port(), "/healthz");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(body_of(response), "serving\n");
  well = false;
  response = get(endpoint.port(), "/healthz");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(body_of(response), "draining: 3 sessions left\n");
}

TEST_F(HttpEndpointTest, HealthThatThrowsIsUnhealthy) {
  const HttpEndpoint endpoint =
      start({.health = []() -> Health { throw std::runtime_error{"lost the pool"}; }});
  const std::string response = get(endpoint.port(), "/healthz");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(body_of(response), HasSubstr("lost the pool"));
}

TEST_F(HttpEndpointTest, HealthIsOkWithoutACallback) {
  const HttpEndpoint endpoint = start();
  EXPECT_THAT(get(endpoint.port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpEndpointTest, ReadinessNamesEveryReason) {
  std::atomic<bool> ready{false};
  const HttpEndpoint endpoint = start({.unready = [&] {
    return ready ? std::vector<std::string>{} : std::vector<std::string>{"no pool", "no port"};
  }});
  std::string response = get(endpoint.port(), "/readyz");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(body_of(response), "no pool\nno port\n");
  ready = true;
  response = get(endpoint.port(), "/readyz");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(body_of(response), "ready\n");
}

TEST_F(HttpEndpointTest, ReadinessThatThrowsIsNotReady) {
  const HttpEndpoint endpoint =
      start({.unready = []() -> std::vector<std::string> { throw std::runtime_error{"no pool"}; }});
  EXPECT_THAT(get(endpoint.port(), "/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(get(endpoint.port(), "/readyz"), HasSubstr("no pool"));
}

TEST_F(HttpEndpointTest, StatusIsWhatTheProcessSaysAndWhetherItIsReady) {
  const HttpEndpoint endpoint =
      start({.unready = [] { return std::vector<std::string>{"full"}; },
             .status = [] { return std::string{R"({"kind":"server","pool":{"size_bytes":5}})"}; }});
  const std::string response = get(endpoint.port(), "/status");
  EXPECT_THAT(response, HasSubstr("Content-Type: application/json\r\n"));
  const auto status = nlohmann::json::parse(body_of(response));
  EXPECT_EQ(status["kind"], "server");
  EXPECT_EQ(status["pool"]["size_bytes"], 5);
  EXPECT_EQ(status["ready"], false);
  EXPECT_EQ(status["reasons"], nlohmann::json{"full"});
  EXPECT_GE(status["uptime_seconds"], 0.0);
}

TEST_F(HttpEndpointTest, StatusIsAskedForTheWantedPartOfItsLists) {
  const HttpEndpoint endpoint = start({.status_page = [](const StatusQuery& query) {
    return nlohmann::json{{"limit", query.limit},
                          {"sessions", query.sessions_after},
                          {"regions", query.regions_after}}
        .dump();
  }});
  const auto asked = [&](const std::string& parameters) {
    return nlohmann::json::parse(body_of(get(endpoint.port(), "/status" + parameters)));
  };
  EXPECT_EQ(asked("")["limit"], 1'000);
  EXPECT_EQ(asked("")["sessions"], "");
  EXPECT_EQ(asked("?limit=10000&sessions_after=a%7Cb&regions_after=c")["limit"], 10'000);
  EXPECT_EQ(asked("?sessions_after=a%7Cb")["sessions"], "a|b");
  EXPECT_EQ(asked("?regions_after=c")["regions"], "c");
  for (const char* const limit : {"0", "-1", "10001", "1x", "99999999999999999999"})
    EXPECT_THAT(get(endpoint.port(), std::string{"/status?limit="} + limit),
                StartsWith("HTTP/1.1 400 "))
        << limit;
}

TEST_F(HttpEndpointTest, StatusWithoutACallbackIsThatOfAnyProcess) {
  const HttpEndpoint endpoint = start();
  const auto status = nlohmann::json::parse(body_of(get(endpoint.port(), "/status")));
  EXPECT_EQ(status["kind"], "process");
  EXPECT_EQ(status["ready"], true);
}

TEST_F(HttpEndpointTest, StatusThatCannotBeMadeIs500) {
  const HttpEndpoint throws =
      start({.status = []() -> std::string { throw std::runtime_error{"lost the pool"}; }});
  EXPECT_THAT(get(throws.port(), "/status"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(get(throws.port(), "/status"), HasSubstr("lost the pool"));
  const HttpEndpoint malformed = start({.status = [] { return std::string{"{"}; }});
  EXPECT_THAT(get(malformed.port(), "/status"), StartsWith("HTTP/1.1 500 "));
}

TEST_F(HttpEndpointTest, HistoryBeginsAtOnce) {
  registry_->recorder().add(registry_->counter("test_total", "Help.").value(), 42);
  const HttpEndpoint endpoint = start();
  nlohmann::json history;
  EXPECT_TRUE(test::eventually([&] {
    history = nlohmann::json::parse(body_of(get(endpoint.port(), "/history")));
    return history["next"] >= 1;
  }));
  EXPECT_EQ(history["series"][0]["values"][0], 42);
  EXPECT_EQ(history["kept"], 1'800);
  EXPECT_THAT(get(endpoint.port(), "/history?since=1"), StartsWith("HTTP/1.1 200 "));
  for (const char* const since : {"x", "-1", "1x", "99999999999999999999"})
    EXPECT_THAT(get(endpoint.port(), std::string{"/history?since="} + since),
                StartsWith("HTTP/1.1 400 "))
        << since;
}

TEST_F(HttpEndpointTest, HistoryMayBeTurnedOff) {
  const HttpEndpoint endpoint = start({.history = std::chrono::minutes{0}});
  EXPECT_THAT(get(endpoint.port(), "/history"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(HttpEndpointTest, OtherPathsAre404) {
  const HttpEndpoint endpoint = start();
  for (const char* path :
       {"/page", "/page/", "/metrics/", "/metricsx", "/../etc/passwd", "/%2e%2e/etc/passwd"}) {
    const std::string response = get(endpoint.port(), path);
    EXPECT_THAT(response, StartsWith("HTTP/1.1 404 ")) << path;
    EXPECT_THAT(body_of(response), HasSubstr("/metrics")) << path;
  }
}

TEST_F(HttpEndpointTest, ThePageIsServedWithWhatItMayDo) {
  const HttpEndpoint endpoint = start();
  const std::string page = get(endpoint.port(), "/");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(page, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'self'; "));
  EXPECT_THAT(page, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(body_of(page), StartsWith("<!doctype html>"));
  const std::string script = get(endpoint.port(), "/page/dashboard.js");
  EXPECT_THAT(script, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(script, HasSubstr("Content-Type: text/javascript; charset=utf-8\r\n"));
}

TEST_F(HttpEndpointTest, OtherMethodsAre405) {
  const HttpEndpoint endpoint = start();
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const std::string response =
        get(endpoint.port(), "/metrics", method, "Content-Length: 5\r\n\r\nhello");
    EXPECT_THAT(response, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(response, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
}

TEST_F(HttpEndpointTest, NonsenseEndsOnlyItsConnection) {
  const HttpEndpoint endpoint = start();
  std::string noise(20'000, '\0');
  for (std::size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<char>(i * 131 >> 3);
  std::string ranges = "Range: bytes=0-1";
  while (ranges.size() < 8'000) ranges += ",0-1";
  for (const std::string& bytes :
       {noise, std::string{"\r\n\r\n"}, std::string{"GET\r\n\r\n"},
        "GET /" + std::string(10'000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET /metrics HTTP/1.1\r\n" + ranges + "\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nA: " + std::string(60'000, 'b') + "\r\n\r\n"}) {
    const RawClient client{endpoint.port()};
    client.send(bytes);
    (void)client.receive_all();
  }
  EXPECT_THAT(get(endpoint.port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
}

// The beginnings of a Remora client's introduction and of a TLS handshake: both would wait for an
// answer that HTTP does not give before a line has ended.
TEST_F(HttpEndpointTest, AnotherProtocolIsToldAtOnceThatThisIsHttp) {
  HttpOptions patient;
  patient.request_timeout = std::chrono::minutes{10};
  const HttpEndpoint endpoint = start(patient);
  for (const std::string& begin :
       {std::string("RMRT\x01\0\0\0", 8), std::string("\x16\x03\x01\x02\0\x01", 6)}) {
    const RawClient client{endpoint.port()};
    ASSERT_TRUE(client.send(begin + std::string(24, '\0')));
    const std::string response = client.receive_all();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(body_of(response), HasSubstr("listen.port"));
  }
}

TEST_F(HttpEndpointTest, RangesAreIgnored) {
  ASSERT_TRUE(registry_->counter("test_total", "Help."));
  const HttpEndpoint endpoint = start();
  const std::string response =
      get(endpoint.port(), "/metrics", "GET", "Range: bytes=0-1,0-1,0-1\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(body_of(response), registry_->text());
}

TEST_F(HttpEndpointTest, AddressInUseNamesTheAddress) {
  const HttpEndpoint first = start();
  const auto second = HttpEndpoint::start(registry_, {.address = first.address()});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAddressInUse);
  EXPECT_EQ(second.error().subject(), first.address());
}

TEST_F(HttpEndpointTest, PortIsFreeAfterwards) {
  std::string address;
  {
    const HttpEndpoint endpoint = start();
    address = endpoint.address();
    EXPECT_THAT(get(endpoint.port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_TRUE(HttpEndpoint::start(registry_, {.address = address}));
}

TEST_F(HttpEndpointTest, MalformedAddressIsInvalid) {
  for (const char* address :
       {"", ":9471", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1: 80",
        "127.0.0.1:80x", "127.0.0.1:0x50", "::1:80", "[::1]", "[::1]80", "[127.0.0.1]:80", "[]:80",
        "host.example:80", "300.0.0.1:80", "127.1:80", "http://127.0.0.1:80"})
    EXPECT_EQ(start_error(address), Code::kInvalidArgument) << address;
}

TEST_F(HttpEndpointTest, AddressOfAnotherHostIsUnreachable) {
  EXPECT_EQ(start_error("192.0.2.1:0"), Code::kUnreachable);
}

TEST_F(HttpEndpointTest, BadOptionsAreInvalid) {
  const auto code = [&](HttpOptions options) {
    options.address = "127.0.0.1:0";
    return HttpEndpoint::start(registry_, std::move(options)).error().code();
  };
  EXPECT_EQ(code({.connections_max = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.connections_max = 1'000'000}), Code::kInvalidArgument);
  EXPECT_EQ(code({.request_timeout = milliseconds{0}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.history = std::chrono::minutes{-1}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.history = std::chrono::hours{25}}), Code::kInvalidArgument);
  EXPECT_EQ(HttpEndpoint::start(nullptr, {.address = "127.0.0.1:0"}).error().code(),
            Code::kInvalidArgument);
}

TEST_F(HttpEndpointTest, Ipv6WildcardServesBothFamilies) {
  auto endpoint = HttpEndpoint::start(registry_, {.address = "[::]:0"});
  if (!endpoint) GTEST_SKIP() << "no IPv6 here: " << endpoint.error();
  EXPECT_THAT(endpoint->address(), StartsWith("[::]:"));
  EXPECT_THAT(get(endpoint->port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
  const RawClient v6{endpoint->port(), true};
  ASSERT_TRUE(v6.connected());
  v6.send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(v6.receive_all(), StartsWith("HTTP/1.1 200 "));
}

std::string get_as(std::uint16_t port, const std::string& path, const std::string& host) {
  const RawClient client{port};
  client.send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  return client.receive_all();
}

TEST_F(HttpEndpointTest, ForeignNamesAreRefused) {
  const HttpEndpoint endpoint = start({.allowed_hosts = {"Metrics.example"}});
  for (const char* path : {"/", "/metrics", "/status", "/history"})
    for (const char* host : {"evil.example", "evil.example:9471", "localhost.evil.example",
                             "127.0.0.1.evil.example", "xmetrics.example", "[::1", "a\x01z"}) {
      const std::string answer = get_as(endpoint.port(), path, host);
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 421 ")) << path << " " << host;
      EXPECT_THAT(answer, HasSubstr("metrics.allowed_hosts"));
    }
  std::string machine(256, '\0');
  ASSERT_EQ(::gethostname(machine.data(), machine.size() - 1), 0);
  machine.resize(std::strlen(machine.c_str()));
  for (const std::string& host :
       {std::string{"127.0.0.1"}, std::string{"192.0.2.7:9471"}, std::string{"[::1]:9471"},
        std::string{"[fe80::1%25eth0]"}, std::string{"localhost"}, std::string{"LOCALHOST.:9471"},
        machine, machine + ":9471", std::string{"metrics.EXAMPLE:1"}})
    EXPECT_THAT(get_as(endpoint.port(), "/status", host), StartsWith("HTTP/1.1 200 ")) << host;
  for (const char* path : {"/healthz", "/readyz"})
    EXPECT_THAT(get_as(endpoint.port(), path, "evil.example"), StartsWith("HTTP/1.1 200 "));
  const RawClient old{endpoint.port()};
  old.send("GET /metrics HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.receive_all(), HasSubstr(" 200 ")) << "without Host it is no browser";
}

TEST_F(HttpEndpointTest, AnyNameMayBeAllowed) {
  const HttpEndpoint endpoint = start({.allowed_hosts = {"*"}});
  EXPECT_THAT(get_as(endpoint.port(), "/metrics", "evil.example"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpEndpointTest, BrotliIsNotOffered) {
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(registry_->counter("test_total", "Help.", {{"i", std::to_string(i)}}));
  const HttpEndpoint endpoint = start();
  EXPECT_THAT(get(endpoint.port(), "/metrics", "GET", "Accept-Encoding: br\r\n"),
              Not(HasSubstr("Content-Encoding")));
  EXPECT_THAT(get(endpoint.port(), "/metrics", "GET", "Accept-Encoding: br, gzip\r\n"),
              HasSubstr("Content-Encoding: gzip\r\n"));
}

TEST_F(HttpEndpointTest, MovedFromIsEmptyAndTheTargetServes) {
  HttpEndpoint first = start();
  const std::uint16_t port = first.port();
  HttpEndpoint second = std::move(first);
  // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move): the contract
  EXPECT_EQ(first.port(), 0);
  EXPECT_EQ(first.address(), "");
  EXPECT_THAT(get(port, "/healthz"), StartsWith("HTTP/1.1 200 "));
  second = start();
  EXPECT_EQ(get(port, "/healthz"), "not connected");
}

TEST_F(HttpEndpointTest, KeepsTheRegistryAlive) {
  ASSERT_TRUE(registry_->counter("test_total", "Help."));
  const HttpEndpoint endpoint = start();
  registry_.reset();
  EXPECT_THAT(get(endpoint.port(), "/metrics"), HasSubstr("test_total 0\n"));
}

TEST_F(HttpEndpointTest, LeavesTheProcessSignalsAlone) {
  struct sigaction before {};
  ::sigaction(SIGPIPE, nullptr, &before);
  const HttpEndpoint endpoint = start();
  struct sigaction after {};
  ::sigaction(SIGPIPE, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST_F(HttpEndpointTest, PromtoolAcceptsTheRealOutput) {
  // NOLINTNEXTLINE(cert-env33-c): fixed commands.
  if (std::system("promtool --version >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "promtool is not installed";
  ASSERT_TRUE(register_process_metrics(*registry_, "0.1.0"));
  const Recorder recorder = registry_->recorder();
  for (const char* op : {"read", "write"}) {
    const Labels labels{{"op", op}, {"transport", "rdma"}};
    recorder.add(registry_->counter("test_operations_total", "Operations.", labels).value(), 3);
    const Histogram latency =
        registry_->histogram("test_latency_seconds", "Latency.", labels, HistogramShape::latency())
            .value();
    for (std::uint64_t value = 1; value < std::uint64_t{1} << 40; value *= 3)
      recorder.observe(latency, value);
    recorder.observe(
        registry_->histogram("test_transfer_bytes", "Size.", labels, HistogramShape::bytes())
            .value(),
        4096);
    recorder.observe(
        registry_->histogram("test_chain_length", "Chain.", labels, HistogramShape::counts())
            .value(),
        0);
  }
  registry_
      ->gauge("test_depth", "A back\\slash.", {{"a", "q\" b\\ n\n \xe2\x82\xac"}},
              HighWater::kExport)
      .value()
      .set(7);
  const HttpEndpoint endpoint = start();
  const std::string text = body_of(get(endpoint.port(), "/metrics"));
  const auto path = std::filesystem::temp_directory_path() /
                    ("remora_metrics_test_" + std::to_string(::getpid()) + ".txt");
  std::ofstream{path} << text;
  const std::string command = "promtool check metrics < '" + path.string() + "' 2>&1";
  std::string said;
  FILE* const pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) said += static_cast<char>(c);
  const int status = ::pclose(pipe);
  std::filesystem::remove(path);
  EXPECT_EQ(status, 0) << said << text;
  EXPECT_EQ(said, "") << text;
}

}  // namespace
}  // namespace remora::metrics
