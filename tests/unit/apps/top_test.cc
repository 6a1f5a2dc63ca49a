#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/top_series.h"
#include "cli/top_view.h"

namespace remora::apps {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// An answer of /history with one counter and one histogram.
Json history(const std::string& process, std::uint64_t first, std::vector<double> times_s,
             std::vector<double> reads, std::vector<double> p99 = {}) {
  Json times = Json::array();
  for (const double time : times_s) times.push_back(time * 1e3);
  if (p99.empty()) p99.resize(reads.size(), 1e-5);
  const Json labels{{"op", "read"}, {"transport", "tcp"}};
  Json with_status = labels;
  with_status["status"] = "ok";
  return Json{{"process", process},
              {"period_ms", 2000},
              {"kept", 1800},
              {"first", first},
              {"next", first + times_s.size()},
              {"times_ms", times},
              {"series",
               {{{"name", "remora_client_operations_total"},
                 {"kind", "counter"},
                 {"labels", with_status},
                 {"values", reads}},
                {{"name", "remora_client_operation_latency_seconds"},
                 {"kind", "histogram"},
                 {"labels", labels},
                 {"count", reads},
                 {"sum", reads},
                 {"p99", p99}}}}};
}

constexpr std::string_view kName = "remora_client_operations_total";

TEST(TopSeries, RatesAreOfTheLatestTwoSamples) {
  TopSeries series;
  ASSERT_TRUE(series.take(history("a", 0, {0, 2, 4}, {0, 10, 50})));
  EXPECT_EQ(series.next(), 3U);
  EXPECT_EQ(series.last(kName), 50);
  EXPECT_EQ(series.rate(kName), 20);
  EXPECT_EQ(series.rate(kName, {{"op", "read"}}, "values", 1), 5);
  EXPECT_TRUE(std::isnan(series.rate(kName, {{"op", "write"}})));
  EXPECT_TRUE(std::isnan(series.rate(kName, {}, "values", 2)));
}

TEST(TopSeries, AnswersFollowEachOther) {
  TopSeries series;
  ASSERT_TRUE(series.take(history("a", 0, {0}, {0})));
  EXPECT_TRUE(std::isnan(series.rate(kName)));
  ASSERT_TRUE(series.take(history("a", 1, {2}, {8})));
  EXPECT_EQ(series.rate(kName), 4);
  ASSERT_TRUE(series.take(history("a", 2, {}, {})));
  EXPECT_EQ(series.rate(kName), 4);
  EXPECT_EQ(series.samples(), 2U);
}

TEST(TopSeries, AnotherProcessBeginsAnew) {
  TopSeries series;
  ASSERT_TRUE(series.take(history("a", 0, {0, 2}, {0, 1'000})));
  ASSERT_TRUE(series.take(history("b", 0, {4}, {1})));
  EXPECT_EQ(series.samples(), 1U);
  EXPECT_EQ(series.last(kName), 1);
}

TEST(TopSeries, KeepsTheLatestSamples) {
  TopSeries series;
  for (std::uint64_t n = 0; n < 200; ++n) {
    const auto value = static_cast<double>(n);
    ASSERT_TRUE(series.take(history("a", n, {2 * value}, {value})));
  }
  EXPECT_EQ(series.samples(), TopSeries::kSamplesMax);
  EXPECT_EQ(series.last(kName), 199);
  EXPECT_EQ(series.rate(kName), 0.5);
}

TEST(TopSeries, SeriesThatBeginLaterCountFromZero) {
  TopSeries series;
  Json without = history("a", 0, {0}, {0});
  without["series"] = Json::array();
  ASSERT_TRUE(series.take(without));
  ASSERT_TRUE(series.take(history("a", 1, {2}, {6})));
  EXPECT_EQ(series.rate(kName), 3);
}

TEST(TopSeries, WhatIsNoAnswerChangesNothing) {
  TopSeries series;
  ASSERT_TRUE(series.take(history("a", 0, {0, 2}, {0, 10})));
  Json short_column = history("a", 2, {4}, {11});
  short_column["series"][0]["values"] = Json::array();
  for (const Json& wrong :
       {Json{}, Json::array(), Json{{"process", "a"}}, Json{{"process", 1}}, short_column})
    EXPECT_FALSE(series.take(wrong)) << wrong;
  EXPECT_EQ(series.last(kName), 10);
  EXPECT_EQ(series.next(), 2U);
}

TEST(TopSeries, NullsAreNoNumbers) {
  TopSeries series;
  Json answer = history("a", 0, {0, 2}, {0, 10});
  answer["series"][1]["p99"] = {1e-5, nullptr};
  ASSERT_TRUE(series.take(answer));
  EXPECT_TRUE(std::isnan(series.latest_max("remora_client_operation_latency_seconds", {}, "p99")));
}

TopTarget client() {
  TopTarget target{.address = "127.0.0.1:9472"};
  EXPECT_TRUE(target.series.take(history("a", 0, {0, 2, 4}, {0, 10, 2'010}, {1e-5, 1e-5, 2e-3})));
  target.status = Json{{"kind", "client"},
                       {"version", "1.2.3"},
                       {"uptime_seconds", 4.0},
                       {"ready", true},
                       {"reasons", Json::array()},
                       {"sessions",
                        {{{"server", "10.0.0.1:7471"},
                          {"transport", "tcp"},
                          {"lanes", 2},
                          {"regions", {"cache", "logs"}},
                          {"reason", "no RDMA device"}}}}};
  return target;
}

TEST(TopView, ClientShowsItsOperationsAndServers) {
  const std::vector<std::string> lines = top_lines(client(), 200, 100);
  EXPECT_THAT(lines[0], HasSubstr("127.0.0.1:9472  client 1.2.3  up 4.00 s  ready"));
  EXPECT_THAT(lines, Contains(HasSubstr("tcp read")));
  EXPECT_THAT(lines, Contains(HasSubstr("1.00 kops/s")));
  EXPECT_THAT(lines, Contains(HasSubstr("2.00 ms")));
  EXPECT_THAT(lines, Contains(HasSubstr("cache,logs  no RDMA device")));
}

TEST(TopView, ServerShowsItsBusiestSessionFirst) {
  TopTarget target{.address = "127.0.0.1:9471"};
  const auto session = [](const char* id, const char* peer, int reads) {
    return Json{{"id", id},
                {"peer", peer},
                {"transport", "tcp"},
                {"age_seconds", 2.0},
                {"regions", 1},
                {"operations", {{"read", reads}, {"add", 0}}},
                {"read_bytes", reads * 100},
                {"written_bytes", 0}};
  };
  Json over_shm = session("c", "pid 7", 0);
  over_shm["operations"] = nullptr;
  target.status =
      Json{{"kind", "server"},
           {"version", "1.2.3"},
           {"ready", false},
           {"reasons", {"full: 2 sessions"}},
           {"pool", {{"size_bytes", 1'024}, {"used_bytes", 256}, {"freeing_bytes", 0}}},
           {"regions_total", 1},
           {"sessions_total", 3},
           {"sessions", {over_shm, session("a", "idle", 100), session("b", "busy", 900)}}};
  target.status_before = target.status;
  target.status_before["sessions"][2]["operations"]["read"] = 100;
  target.seconds_between = 2;
  const std::vector<std::string> lines = top_lines(target, 200, 100);
  EXPECT_THAT(lines[0], HasSubstr("NOT READY: full: 2 sessions"));
  EXPECT_THAT(lines, Contains(HasSubstr("25%")));
  const auto line_of = [&](const char* text) {
    std::size_t at = 0;
    while (at < lines.size() && lines[at].find(text) == std::string::npos) ++at;
    return at;
  };
  EXPECT_LT(line_of("busy"), line_of("idle"));
  EXPECT_LT(line_of("idle"), line_of("pid 7"));
  EXPECT_THAT(lines[line_of("busy")], HasSubstr("400 ops/s"));
  EXPECT_THAT(lines[line_of("pid 7")], HasSubstr(" - "));
}

/// Series without histograms, as the last sample of an answer of /history.
void add_gauges(TopTarget& target, const std::vector<std::pair<Json, double>>& gauges) {
  Json answer = history("b", 0, {0, 2}, {0, 0});
  for (const auto& [described, value] : gauges) {
    Json one = described;
    one["kind"] = "gauge";
    if (!one.contains("labels")) one["labels"] = Json::object();
    one["values"] = {value, value};
    answer["series"].push_back(one);
  }
  ASSERT_TRUE(target.series.take(answer));
}

TEST(TopView, ServerShowsItsRegistration) {
  TopTarget target{.address = "127.0.0.1:9471"};
  target.status = Json{{"kind", "server"}, {"ready", true}};
  EXPECT_THAT(top_lines(target, 200, 100), Not(Contains(HasSubstr("CLUSTER"))));
  add_gauges(target, {{Json{{"name", "remora_server_cluster_registered"}}, 1},
                      {Json{{"name", "remora_server_cluster_keep_alive_age_seconds"}}, 2},
                      {Json{{"name", "remora_server_cluster_errors_total"}}, 4}});
  EXPECT_THAT(top_lines(target, 200, 100), Contains(HasSubstr("registered  ")));
  EXPECT_THAT(top_lines(target, 200, 100), Contains(HasSubstr("2.00 s ago")));
  TopTarget lost{.address = "127.0.0.1:9471"};
  lost.status = target.status;
  add_gauges(lost, {{Json{{"name", "remora_server_cluster_registered"}}, 0},
                    {Json{{"name", "remora_server_cluster_keep_alive_age_seconds"}}, 60}});
  EXPECT_THAT(top_lines(lost, 200, 100), Contains(HasSubstr("NOT REGISTERED")));
}

TEST(TopView, ClientShowsItsVolumes) {
  EXPECT_THAT(top_lines(client(), 200, 100), Not(Contains(HasSubstr("VOLUMES"))));
  TopTarget target = client();
  const auto groups = [](const char* state) {
    return Json{{"name", "remora_client_volume_groups"}, {"labels", {{"state", state}}}};
  };
  add_gauges(target, {{Json{{"name", "remora_client_volumes"}}, 1},
                      {groups("ok"), 5},
                      {groups("unreachable"), 0},
                      {groups("lost"), 3},
                      {groups("revoked"), 0},
                      {Json{{"name", "remora_client_volume_metadata_revision"}}, 77}});
  const std::vector<std::string> lines = top_lines(target, 200, 100);
  EXPECT_THAT(lines, Contains(HasSubstr("VOLUMES  open  groups ok")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr(" 5 "), HasSubstr(" 3 "), HasSubstr("77"))));
}

TEST(TopView, ClientShowsItsMirrors) {
  EXPECT_THAT(top_lines(client(), 200, 100), Not(Contains(HasSubstr("MIRRORS"))));
  TopTarget target = client();
  const auto groups = [](const char* state) {
    return Json{{"name", "remora_client_mirror_groups"}, {"labels", {{"state", state}}}};
  };
  add_gauges(target, {{Json{{"name", "remora_client_mirror_writers"}}, 1},
                      {groups("in_sync"), 14},
                      {groups("degraded"), 23},
                      {groups("promoting"), 0},
                      {groups("lost"), 0},
                      {groups("unadopted"), 0}});
  const std::vector<std::string> lines = top_lines(target, 200, 100);
  EXPECT_THAT(lines, Contains(HasSubstr("MIRRORS  claimed  in sync  degraded")));
  EXPECT_THAT(lines, Contains(AllOf(HasSubstr(" 14 "), HasSubstr(" 23 "))));
}

TEST(TopView, SilenceIsToldWithItsReason) {
  TopTarget target = client();
  target.trouble = "Connection refused";
  target.silent_seconds = 12.4;
  EXPECT_THAT(top_lines(target, 200, 100)[0], HasSubstr("NO ANSWER for 12 s: Connection refused"));
}

TEST(TopView, FitsTheTerminal) {
  for (const std::size_t width : {1U, 20U, 79U})
    for (const std::string& line : top_lines(client(), width, 100))
      EXPECT_LE(columns_of(line), width) << line;
  const std::vector<std::string> lines = top_lines(client(), 200, 4);
  EXPECT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines.back(), HasSubstr("more lines"));
  EXPECT_EQ(top_lines(client(), 200, 0).size(), 0U);
}

// Names come from other machines.
TEST(TopView, NothingThatATerminalObeysGetsThrough) {
  TopTarget target = client();
  target.status["sessions"][0]["server"] = "evil\x1b[2J\nhost\x07\xc2\x9b";
  for (const std::string& line : top_lines(target, 200, 100)) {
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_EQ(line.find('\xc2'), std::string::npos);
  }
  EXPECT_THAT(top_lines(target, 200, 100), Contains(HasSubstr("evil?[2J?host???")));
}

TEST(TopView, OddStatusesAreShownAsFarAsTheyGo) {
  TopTarget target{.address = "x"};
  for (const Json& status :
       {Json::object(), Json{{"kind", 5}}, Json{{"sessions", "none"}},
        Json{{"kind", "server"},
             {"sessions", {1, nullptr, Json::array()}},
             {"regions", {{{"name", nullptr}}}}},
        Json{{"kind", "client"}, {"sessions", {{{"regions", {1}}}}}, {"reasons", {1}}}}) {
    target.status = status;
    EXPECT_FALSE(top_lines(target, 80, 24).empty()) << status;
  }
}

// The latency of compare-and-swap and of fetch-and-add is one series.
TEST(TopView, AtomicsShowTheLatencyTheyShare) {
  TopTarget target{.address = "x"};
  Json answer = history("a", 0, {0, 2}, {0, 10}, {1e-5, 3e-3});
  answer["series"][0]["labels"]["op"] = "add";
  answer["series"][1]["labels"]["op"] = "atomic";
  ASSERT_TRUE(target.series.take(answer));
  EXPECT_THAT(top_lines(target, 200, 100), Contains(HasSubstr("3.00 ms")));
  EXPECT_EQ(top_json(target)["operations"][0]["p99_seconds"], 3e-3);
}

TEST(TopView, JsonHasTheSameFigures) {
  const Json document = top_json(client());
  EXPECT_EQ(document["address"], "127.0.0.1:9472");
  ASSERT_EQ(document["operations"].size(), 1U);
  EXPECT_EQ(document["operations"][0]["per_second"], 1'000.0);
  EXPECT_EQ(document["operations"][0]["p99_seconds"], 2e-3);
  EXPECT_EQ(document["operations"][0]["p50_seconds"], nullptr);
}

TEST(Sparkline, ScalesToTheLargest) {
  EXPECT_EQ(sparkline({}), "");
  EXPECT_EQ(sparkline({0, 0}), "▁▁");
  EXPECT_EQ(sparkline({std::nan(""), 0, 1, 2}), " ▁▅█");
  EXPECT_EQ(columns_of(sparkline({1, 2, 3})), 3U);
}

}  // namespace
}  // namespace remora::apps
