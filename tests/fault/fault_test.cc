#include "fault_test.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>
#include <thread>

#include "history.h"
#include "stamp.h"
#include "support/callgrind.h"

namespace remora::fault {
namespace {

std::uint64_t chosen_seed() {
  const char* const given = std::getenv("REMORA_FAULT_SEED");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return std::random_device{}() % 1'000'000;
}

}  // namespace

test::RuntimeDir& runtime_dir() {
  static test::RuntimeDir folder;
  return folder;
}

std::string transport_name(const testing::TestParamInfo<TransportKind>& info) {
  return std::string{to_string(info.param)};
}

Engine FaultTest::plain_engine() {
  EngineOptions options;
  options.client_name = "fault-test";
  options.reconnect_for = 0s;
  options.operation_deadline = options.control_deadline = 30s;
  return Engine::open(options).value();
}

void FaultTest::SetUp() {
  if (test::is_left_out(transport())) return;
  runtime_dir();
  seed_ = chosen_seed();
  random_ = test::Random{seed_};
  // Once for each transport: what libraries make and keep in this process.
  static std::vector<TransportKind> warm;
  if (std::find(warm.begin(), warm.end(), transport()) == warm.end()) {
    warm.push_back(transport());
    server_.emplace(transport(), server_options());
    port_ = server_->port();
    warm_up();
    server_.reset();
  }
  baseline_ = test::Resources::settled();
  server_.emplace(transport(), server_options());
  port_ = server_->port();
  server_alive_ = true;
  warm_up();
}

/// What libraries make once and keep is made in both processes before their baselines are taken.
void FaultTest::warm_up() {
  {
    const Engine engine = plain_engine();
    const Region region = engine.open_region(uri("t0"), Rights::kAll).value();
    std::vector<std::byte> bytes(64_KiB);
    region.read(ByteOffset{0}, bytes).value();
    region.write(ByteOffset{0}, bytes).value();
    region.fetch_add(ByteOffset{0}, 0).value();
  }
  ASSERT_TRUE(server_->soon_sessions(0));
  server_baseline_ = server_->ask("counts");
}

/// A session whose client went while it was away is kept for a time first: up to 20 s here.
void FaultTest::expect_server_back() {
  std::string now;
  for (int i = 0; i < 500; ++i, std::this_thread::sleep_for(50ms))
    if (now = server_->ask("counts"); now == server_baseline_) return;
  ADD_FAILURE() << "I8: the server held " << server_baseline_ << "\n   and now holds " << now;
}

void FaultTest::TearDown() {
  if (!server_) return;
  for (LoadProcess& load : load_processes_) load.kill();
  load_processes_.clear();
  if (server_alive_) {
    EXPECT_TRUE(server_->soon_sessions(0)) << "sessions are left: " << server_->ask("status");
    expect_server_back();
    EXPECT_EQ(server_->stop(), 0) << "the server did not end well";
  }
  server_.reset();
  if (baseline_) {
    EXPECT_TRUE(test::back_at(*baseline_)) << "I8: this process";
  }
  runtime_dir().clear();
  print();
}

void FaultTest::print() const {
  // One that was skipped, or that only lies to the load, has shown nothing of a fault.
  if (IsSkipped() || rounds_ == 0) return;
  test::FaultLine line{.rounds = rounds_, .operations = total_.operations, .ok = total_.ok};
  line.failed.insert(total_.failed.begin(), total_.failed.end());
  line.longest_verdict = std::chrono::milliseconds{total_.longest_verdict_ms};
  line.print(transport_name({transport(), 0}),
             "longest_overrun_ms=" + std::to_string(total_.longest_overrun_ms) +
                 " longest_silence_ms=" + std::to_string(total_.longest_silence_ms) +
                 " seed=" + std::to_string(seed_));
}

std::uint64_t FaultTest::rounds(std::uint64_t few, std::uint64_t many) {
  rounds_ = test::rounds_of(few, many);
  if (over_rdma())
    rounds_ = std::max<std::uint64_t>(std::min<std::uint64_t>(rounds_, 2), rounds_ / 5);
  return rounds_;
}

std::uint64_t FaultTest::exactly_rounds(std::uint64_t few, std::uint64_t many) {
  return rounds_ = test::rounds_of(few, many);
}

void FaultTest::pause_for_a_while(std::chrono::milliseconds least, std::chrono::milliseconds most) {
  const auto range = static_cast<std::uint64_t>((most - least).count()) + 1;
  std::this_thread::sleep_for(least + std::chrono::milliseconds{random_.below(range)});
}

void FaultTest::kill_server() {
  server_->kill();
  server_alive_ = false;
}

void FaultTest::restart_server() {
  FaultServerOptions options = server_options();
  options.port = port_;
  server_.reset();
  server_.emplace(transport(), options);
  server_alive_ = true;
}

std::string FaultTest::uri(const std::string& region, std::uint16_t port) const {
  return "remora://" + test::listen_address(transport()) + ":" +
         std::to_string(port == 0 ? port_ : port) + (region.empty() ? "" : "/" + region) +
         "?transport=" + std::string{to_string(transport())};
}

LoadProcess& FaultTest::start_load(const std::string& region, std::vector<std::string> words) {
  return start_load_by(uri(region), std::move(words));
}

LoadProcess& FaultTest::start_load_by(const std::string& uri, std::vector<std::string> words,
                                      const std::string& faketime) {
  // The last word of a kind counts: what the test says goes before what is usual.
  std::vector<std::string> all{"uri=" + uri, "seed=" + std::to_string(seed_ * 100 + loads_++)};
  const bool emulated = over_rdma();
  all.emplace_back(test::kSanitized ? "rate=1000" : "rate=8000");
  all.push_back(emulated ? "deadline=8000" : "deadline=2000");
  all.insert(all.end(), words.begin(), words.end());
  if (emulated) all.emplace_back("rate=600");
  return load_processes_.emplace_back(all, faketime);
}

LoadReport FaultTest::finish(LoadProcess& load) {
  const std::optional<LoadReport> report = load.finish();
  EXPECT_TRUE(report.has_value()) << "a load did not say what became of it";
  if (!report) return {};
  count(*report);
  EXPECT_EQ(report->violations_total, 0U);
  for (const std::string& text : report->violations) ADD_FAILURE() << text;
  EXPECT_GT(report->ok, 0U) << "nothing was done";
  if (server_alive_) {
    EXPECT_TRUE(report->looked_around)
        << "I1: not every block was read once more: " << report->look_error;
  }
  return *report;
}

void FaultTest::count(const LoadReport& report) {
  total_.operations += report.operations;
  total_.ok += report.ok;
  for (const auto& [code, count] : report.failed) total_.failed[code] += count;
  total_.longest_verdict_ms = std::max(total_.longest_verdict_ms, report.longest_verdict_ms);
  total_.longest_overrun_ms = std::max(total_.longest_overrun_ms, report.longest_overrun_ms);
  total_.longest_silence_ms = std::max(total_.longest_silence_ms, report.longest_silence_ms);
}

void FaultTest::count_one(const Status& ended, std::chrono::nanoseconds took) {
  LoadReport one;
  one.operations = 1;
  if (ended) {
    one.ok = 1;
  } else {
    one.failed[std::string{to_string(ended.error().code())}] = 1;
    one.longest_verdict_ms = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  }
  const std::lock_guard lock{counted_};
  count(one);
}

FaultTest::Killed& FaultTest::Killed::operator+=(const Killed& other) {
  for (const auto& [kind, number] : other.ended) ended[kind] += number;
  for (const auto& [kind, number] : other.in_flight) in_flight[kind] += number;
  uncertain += other.uncertain;
  return *this;
}

FaultTest::Killed FaultTest::judge(const Region& region, const std::string& page_path) {
  LoadPage page = LoadPage::open(page_path);
  Killed killed;
  LoadReport done;
  for (const LoadKind kind : kLoadKinds) {
    const KindCell& cell = page.kind(static_cast<std::size_t>(kind));
    killed.ended[kind] = cell.ended;
    // It may have died between the two.
    killed.in_flight[kind] = cell.begun - std::min<std::uint64_t>(cell.begun, cell.ended);
    done.ok += killed.ended[kind];
    done.operations += killed.ended[kind] + killed.in_flight[kind];
    if (const std::uint64_t open = killed.in_flight[kind]; open != 0)
      done.failed["in flight when killed"] += open;
  }
  count(done);
  std::vector<std::byte> block(kLoadBlockBytes);
  const std::span<BlockCell> cells = page.blocks();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const BlockCell& cell = cells[i];
    if (cell.session == 0) continue;  // none of its blocks
    BlockModel model{cell.session, i * kLoadBlockBytes, cell.acknowledged, cell.issued,
                     page.zeroes_each()};
    if (cell.issued > cell.acknowledged) ++killed.uncertain;
    const Status read = region.read(ByteOffset{model.offset()}, block);
    EXPECT_TRUE(ok(read));
    if (!read) return killed;
    const BlockVerdict verdict = model.check(block);
    EXPECT_EQ(verdict, BlockVerdict::kIntact)
        << "I1: " << to_string(verdict) << ": " << model.describe(block);
  }
  for (const auto& [memory, word] : page.words()) {
    for (const WordOperation& operation : page.of(memory, word))
      if (operation.end == WordOperation::End::kUnknown) ++killed.uncertain;
    AtomicRecord* const last = page.begin(memory, word, {}, 9999, LoadPage::Room::kLast);
    const auto found = region.fetch_add(ByteOffset{word}, 0);
    EXPECT_TRUE(ok(found));
    if (last == nullptr || !found) {
      ADD_FAILURE() << "its words were not looked at";
      return killed;
    }
    LoadPage::end(*last, Effect::kDone, *found);
  }
  const Linearizability found = check_words(page);
  EXPECT_TRUE(found.ok()) << "I10: " << found.text;
  return killed;
}

}  // namespace remora::fault
