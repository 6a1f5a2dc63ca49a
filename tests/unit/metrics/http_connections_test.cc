/// Clients that are silent, slow or many, and endpoints that end beside them.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "http_endpoint_fixture.h"
#include "raw_client.h"
#include "support/eventually.h"
#include "support/timed.h"

namespace remora::metrics {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(HttpEndpointTest, SilentClientsNeitherDisturbNorStay) {
  const HttpEndpoint endpoint = start({.connections_max = 4, .request_timeout = milliseconds{800}});
  const test::Timed timed;
  std::vector<RawClient> silent;
  silent.reserve(3);
  for (int i = 0; i < 3; ++i) silent.emplace_back(endpoint.port());
  silent.front().send("GET /metrics HT");
  EXPECT_THAT(get(endpoint.port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
  for (const RawClient& client : silent) (void)client.receive_all();
  // Less than a client of this test waits for by itself.
  EXPECT_TRUE(timed.took_at_most(milliseconds{15'000}));
}

TEST_F(HttpEndpointTest, TricklingClientIsCutAtTheDeadline) {
  const HttpEndpoint endpoint = start({.request_timeout = milliseconds{500}});
  const RawClient client{endpoint.port()};
  client.send("GET /metrics HTTP/1.1\r\n");
  // Each of them would begin the time anew; together they are less than a request may have.
  bool cut = false;
  for (test::Patience patience{std::chrono::seconds{20}}; !cut && !patience.over();) {
    std::this_thread::sleep_for(milliseconds{50});
    cut = !client.send("A: b\r\n");
  }
  EXPECT_TRUE(cut);
}

TEST_F(HttpEndpointTest, SilentClientMakesRoomForOneThatAsks) {
  // Far longer than get() waits for an answer.
  const HttpEndpoint endpoint =
      start({.connections_max = 2, .request_timeout = milliseconds{60'000}});
  std::vector<RawClient> silent;
  silent.reserve(2);
  for (int i = 0; i < 2; ++i) silent.emplace_back(endpoint.port());
  silent.front().send("GET /healthz HT");
  for (int i = 0; i < 4; ++i)
    EXPECT_THAT(get(endpoint.port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
}

/// Both ends of some hundred connections are in this process.
void raise_open_files() {
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8'192);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_cur < 2'400) GTEST_SKIP() << "only " << files.rlim_cur << " open files";
}

TEST_F(HttpEndpointTest, SilentClientsTakeNoPlaceOfThoseThatAsk) {
  raise_open_files();
  if (IsSkipped()) return;
  const HttpEndpoint endpoint = start({.request_timeout = milliseconds{600'000}});
  std::vector<RawClient> silent;
  for (int i = 0; i < 300; ++i) {
    silent.emplace_back(endpoint.port());
    ASSERT_TRUE(silent.back().connected());
    if (i % 2 == 0) silent.back().send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n");
  }
  for (int i = 0; i < 20; ++i)
    ASSERT_THAT(get(endpoint.port(), "/metrics"), StartsWith("HTTP/1.1 200 "));
  for (const RawClient& client : silent) EXPECT_FALSE(client.readable()) << "it was cut";
  silent.front().send("\r\n");
  EXPECT_THAT(silent.front().receive_all(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpEndpointTest, OldestSilentClientMakesRoomForOneMore) {
  raise_open_files();
  if (IsSkipped()) return;
  constexpr int kWaitingMax = 512;
  const HttpEndpoint endpoint = start({.request_timeout = milliseconds{600'000}});
  std::vector<RawClient> silent;
  for (int i = 0; i < kWaitingMax + 2; ++i) silent.emplace_back(endpoint.port());
  // The answer comes after all that connected before have been taken.
  EXPECT_THAT(get(endpoint.port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(silent[static_cast<std::size_t>(i)].receive_all(), "") << i;
  for (std::size_t i = 3; i < silent.size(); ++i) EXPECT_FALSE(silent[i].readable()) << i;
}

TEST_F(HttpEndpointTest, OneConnectionTooManyIsRefusedAndLaterServed) {
  std::atomic<int> asked{0};
  std::atomic<bool> answer{false};
  const HttpEndpoint endpoint = start({.health =
                                           [&] {
                                             ++asked;
                                             while (!answer) std::this_thread::yield();
                                             return Health{};
                                           },
                                       .connections_max = 2});
  std::vector<RawClient> busy;
  busy.reserve(2);
  for (int i = 0; i < 2; ++i) {
    busy.emplace_back(endpoint.port());
    busy.back().send("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  }
  while (asked < 2) std::this_thread::yield();
  EXPECT_THAT(get(endpoint.port(), "/metrics"), StartsWith("HTTP/1.1 503 "));
  answer = true;
  for (const RawClient& client : busy)
    EXPECT_THAT(client.receive_all(), StartsWith("HTTP/1.1 200 "));
  std::string response;
  EXPECT_TRUE(test::eventually([&] {
    response = get(endpoint.port(), "/healthz");
    return response.starts_with("HTTP/1.1 200");
  }));
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpEndpointTest, DestructorDoesNotWaitForClients) {
  auto endpoint = std::make_unique<HttpEndpoint>(start({.request_timeout = milliseconds{60'000}}));
  const RawClient silent{endpoint->port()};
  const RawClient half{endpoint->port()};
  half.send("GET /metrics HT");
  std::this_thread::sleep_for(milliseconds{50});
  const test::Timed timed;
  endpoint.reset();
  EXPECT_TRUE(timed.took_at_most(milliseconds{30'000})) << "it waited for request_timeout";
  EXPECT_EQ(silent.receive_all(), "");
}

TEST_F(HttpEndpointTest, StopsRightAfterStarting) {
  for (int i = 0; i < 100; ++i) {
    const HttpEndpoint endpoint = start();
    EXPECT_NE(endpoint.port(), 0);
  }
}

TEST_F(HttpEndpointTest, ScrapesInParallelWithRecording) {
  const Counter counter = registry_->counter("test_total", "Help.").value();
  const HttpEndpoint endpoint = start();
  std::atomic<bool> done{false};
  std::thread recording{[&] {
    while (!done) registry_->recorder().add(counter);
  }};
  std::vector<std::thread> scrapers;
  scrapers.reserve(4);
  for (int i = 0; i < 4; ++i)
    scrapers.emplace_back([&] {
      for (int n = 0; n < 20; ++n)
        EXPECT_THAT(get(endpoint.port(), "/metrics"), HasSubstr("\ntest_total "));
    });
  for (std::thread& scraper : scrapers) scraper.join();
  done = true;
  recording.join();
}

}  // namespace
}  // namespace remora::metrics
