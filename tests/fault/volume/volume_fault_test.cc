#include "volume_fault_test.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>

#include "mirror_layout.h"
#include "support/fault_line.h"
#include "support/runtime_dir.h"
#include "support/transport.h"

namespace remora::fault {
namespace {

using volume::GroupRecord;
using volume::Member;
using volume::MemberState;
using volume::detail::MirrorGroup;
using volume::detail::MirrorWriter;

test::RuntimeDir& page_folder() {
  static test::RuntimeDir folder;
  return folder;
}

std::uint64_t seed_of_run() {
  const char* const given = std::getenv("REMORA_FAULT_SEED");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return std::random_device{}() % 1'000'000;
}

MirrorGroup::Time in_a_minute() {
  return std::chrono::steady_clock::now() + std::chrono::minutes{1};
}

template <typename T>
::testing::AssertionResult managed(const volume::Managed<T>& done) {
  if (done) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << done.error().error.message() << "; " << done.error().detail;
}

}  // namespace

TransportKind VolumeFaultTest::transport() {
  const char* const asked = std::getenv("REMORA_TEST_TRANSPORT");
  return asked != nullptr && std::string{asked} == "rdma" ? TransportKind::kRdma
                                                          : TransportKind::kTcp;
}

std::string VolumeFaultTest::start_store() {
  etcd_.emplace();
  return etcd_->endpoint();
}

void VolumeFaultTest::SetUp() {
  if (!volume::test::has_etcd()) GTEST_SKIP() << "etcd is not installed: ci/setup.sh cluster";
  if (test::is_left_out(transport())) return;
  page_folder();
  seed_ = seed_of_run();
  random_ = test::Random{seed_};
  SCOPED_TRACE("REMORA_FAULT_SEED=" + std::to_string(seed_));
  endpoints_ = start_store();
  cluster_.emplace(mirror_cluster(endpoints_));
  nodes_.resize(server_count());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    start_server(i, 0);
    warm_up(i);
  }
  ASSERT_FALSE(HasFatalFailure());
  ready_ = true;
  make_mirror();
}

void VolumeFaultTest::start_server(std::size_t index, std::uint16_t port) {
  Node& node = nodes_[index];
  FaultServerOptions options;
  options.port = port;
  options.regions = 0;
  options.keep = std::chrono::milliseconds{200};
  node.process.reset();
  node.process = std::make_unique<FaultServer>(transport(), options);
  node.port = node.process->port();
  if (proxied() && node.proxy == nullptr) node.proxy = std::make_unique<TcpProxy>(node.port);
  register_server(index);
}

std::string VolumeFaultTest::address_of(std::size_t index) const {
  return test::listen_address(transport()) + ":" + std::to_string(nodes_[index].port);
}

std::size_t VolumeFaultTest::index_of(const std::string& name) {
  return std::stoul(name.substr(1));
}

/// As the server program does, without a lease: what leases do is not the matter of these tests.
void VolumeFaultTest::register_server(std::size_t index) {
  const Engine engine = mirror_engine();
  const ServerInfo info = engine
                              .connect("remora://" + address_of(index) +
                                       "?transport=" + std::string{to_string(transport())})
                              .value()
                              .server();
  volume::ServerRecord record;
  record.name = "s" + std::to_string(index);
  record.addresses = {proxied() ? "127.0.0.1:" + std::to_string(proxy(index).port())
                                : address_of(index)};
  record.boot_id = info.boot_id;
  record.memory_id = info.memory_id;
  record.pool_bytes = record.pool_free_bytes = 64_MiB;
  const auto done = cluster().store().commit(
      {{}, {{cluster().keys().server(record.name), to_json(record), volume::kNoLease}}},
      std::chrono::seconds{20});
  ASSERT_TRUE(ok(done));
  ASSERT_EQ(done->outcome, volume::Outcome::kApplied);
}

/// What libraries make once and keep is made before the baseline is taken.
void VolumeFaultTest::warm_up(std::size_t index) {
  {
    const Engine engine = mirror_engine();
    const std::string uri = "remora://" + address_of(index);
    const std::string option = "?transport=" + std::string{to_string(transport())};
    const Session session = engine.connect(uri + option).value();
    RegionSpec spec;
    spec.name = "warm";
    spec.size_bytes = 4_MiB;
    ASSERT_TRUE(ok(session.create_region(spec)));
    {
      const Region region = engine.open_region(uri + "/warm" + option, Rights::kAll).value();
      std::vector<std::byte> bytes(1_MiB);
      ASSERT_TRUE(ok(region.write(ByteOffset{0}, bytes)));
      ASSERT_TRUE(ok(region.read(ByteOffset{0}, bytes)));
    }
    EXPECT_TRUE(test::eventually([&] { return session.remove_region("warm").ok(); }));
  }
  ASSERT_TRUE(server(index).soon_sessions(0));
  nodes_[index].baseline = server(index).ask("counts");
}

void VolumeFaultTest::make_mirror() {
  volume::VolumeSpec spec;
  spec.name = kMirrorName;
  spec.kind = volume::Kind::kMirror;
  spec.copies = copies();
  spec.group_bytes = group_bytes();
  spec.width = 1;
  spec.size_bytes = group_bytes();
  const Engine engine = mirror_engine();
  ASSERT_TRUE(managed(create_volume(cluster(), engine, spec)));
}

void VolumeFaultTest::kill_server(std::size_t index) { server(index).kill(); }

void VolumeFaultTest::restart_server(std::size_t index) { start_server(index, nodes_[index].port); }

GroupRecord VolumeFaultTest::group() const {
  const auto layout = cluster().layout(kMirrorName);
  EXPECT_TRUE(ok(layout));
  return layout ? layout->groups.front() : GroupRecord{};
}

bool VolumeFaultTest::has_member_on(const std::string& name) const {
  const auto layout = cluster().layout(kMirrorName);
  if (!layout) return true;  // not known: the store may be what the test disturbs
  const std::vector<Member>& members = layout->groups.front().members;
  return std::any_of(members.begin(), members.end(),
                     [&](const Member& each) { return each.server == name; });
}

std::string VolumeFaultTest::server_of(std::size_t index) const {
  return group().members.at(index).server;
}

MirrorRound VolumeFaultTest::begin_round() {
  MirrorRound round;
  round.session = ++sessions_;
  round.path = page_folder().path() + "/page" + std::to_string(round.session);
  round.page = std::make_unique<LoadPage>(make_mirror_page(round.path));
  return round;
}

std::vector<std::string> VolumeFaultTest::words_of(const MirrorRound& round,
                                                   std::vector<std::string> more) {
  std::vector<std::string> words{"store=" + endpoints_,
                                 "transport=" + std::string{to_string(transport())},
                                 "page=" + round.path, "session=" + std::to_string(round.session),
                                 "seed=" + std::to_string(random_.below(1'000'000))};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Result<volume::Volume> VolumeFaultTest::open_disk(const Engine& engine) const {
  volume::VolumeOptions options;
  options.transport = transport();
  return volume::Volume::open(engine, cluster(), kMirrorName, options);
}

std::unique_ptr<WordReader> VolumeFaultTest::read_words(const volume::Volume& disk,
                                                        const MirrorRound& round) {
  return std::make_unique<WordReader>(
      [&disk](std::uint64_t offset_bytes, const Target& into) {
        return disk.read(ByteOffset{offset_bytes}, into, std::chrono::seconds{20});
      },
      *round.page, 99, std::chrono::milliseconds{1});
}

std::uint64_t VolumeFaultTest::acknowledged(const MirrorRound& round) {
  std::uint64_t sum = 0;
  for (const BlockCell& cell : round.page->blocks()) sum += cell.acknowledged;
  return sum;
}

bool VolumeFaultTest::soon_acknowledged(const MirrorRound& round, std::uint64_t more) {
  const std::uint64_t wanted = acknowledged(round) + more;
  return test::eventually([&] { return acknowledged(round) >= wanted; }, std::chrono::minutes{2});
}

Result<std::shared_ptr<MirrorWriter>> VolumeFaultTest::steal(const Engine& engine) {
  volume::detail::MirrorOptions options;
  options.steal = true;
  options.transport = transport();
  options.member_limit = kMemberLimit;
  return MirrorWriter::claim(engine, cluster(), kMirrorName, options);
}

void VolumeFaultTest::judge(MirrorGroup& judged, const MirrorRound& round) {
  std::vector<std::byte> block(kMirrorBlock);
  const std::span<BlockCell> cells = round.page->blocks();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    BlockModel model{round.session, i * kMirrorStride, cells[i].acknowledged, cells[i].issued};
    ASSERT_TRUE(ok(judged.read(model.offset(), block, in_a_minute())));
    const BlockVerdict verdict = model.check(block);
    EXPECT_EQ(verdict, BlockVerdict::kIntact)
        << "V2: " << to_string(verdict) << ": " << model.describe(block);
  }
  for (std::size_t i = 0; i < kMirrorWords; ++i) {
    const std::uint64_t word = mirror_word(i);
    AtomicRecord* const last =
        round.page->begin(kMirrorMemory, word, WordOperation{}, 98, LoadPage::Room::kLast);
    ASSERT_NE(last, nullptr);
    const auto found = judged.fetch_add(word, 0, in_a_minute());
    ASSERT_TRUE(ok(found));
    LoadPage::end(*last, Effect::kDone, *found);
  }
  const Linearizability found = check_words(*round.page);
  EXPECT_TRUE(found.ok()) << found.text;
}

void VolumeFaultTest::expect_next_claim(const MirrorRound& round, bool clear) {
  const Engine engine = mirror_engine();
  const auto writer = steal(engine);
  ASSERT_TRUE(ok(writer));
  expect_equal_members((*writer)->group(0).record().members.size());
  judge((*writer)->group(0), round);
  if (clear) clear_group((*writer)->group(0));
  EXPECT_TRUE(ok((*writer)->release()));
}

void VolumeFaultTest::clear_group(MirrorGroup& cleared) const {
  for (std::uint64_t at = 0; at < group_bytes(); at += 1_MiB)
    ASSERT_TRUE(ok(cleared.write_zeroes(at, 1_MiB, in_a_minute())));
}

std::vector<std::byte> VolumeFaultTest::bytes_of(const Engine& engine, const Member& member) const {
  std::vector<std::byte> bytes(group_bytes());
  const auto region =
      engine.open_region("remora://" + address_of(index_of(member.server)) + "/" + member.region +
                             "?transport=" + std::string{to_string(transport())},
                         Rights::kRead);
  EXPECT_TRUE(ok(region)) << member.server;
  if (!region) return {};
  const std::uint64_t begin = volume::detail::mirror_data_offset(group_bytes());
  for (std::uint64_t at = 0; at < bytes.size(); at += 1_MiB)
    EXPECT_TRUE(ok(region->read(ByteOffset{begin + at}, std::span{bytes}.subspan(at, 1_MiB))));
  return bytes;
}

void VolumeFaultTest::expect_equal_members(std::size_t wanted) {
  const Engine engine = mirror_engine();
  const GroupRecord record = group();
  EXPECT_EQ(record.members.size(), wanted);
  std::vector<std::byte> first;
  for (const Member& member : record.members) {
    EXPECT_EQ(member.state, MemberState::kInSync) << member.server;
    const std::vector<std::byte> bytes = bytes_of(engine, member);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(test::same_bytes(bytes, first))
        << member.server << " is not equal to " << record.members.front().server;
  }
}

/// A server that has just come back may not have noticed yet that its clients are gone.
void VolumeFaultTest::repair() {
  volume::MaintenanceOptions options;
  options.steal = true;
  std::string left;
  EXPECT_TRUE(test::eventually([&] {
    const Engine engine = mirror_engine();
    const auto report = repair_volume(cluster(), engine, kMirrorName, options);
    left = report ? "" : report.error().error.message() + "; " + report.error().detail;
    if (report)
      for (const std::string& each : report->left) left += each + "; ";
    return left.empty();
  })) << "not done: "
      << left;
}

void VolumeFaultTest::count(const MirrorLoadReport& report) {
  EXPECT_EQ(report.violations, 0U) << report.text;
  total_.operations += report.operations;
  total_.ok += report.ok;
  total_.indeterminate += report.indeterminate;
  total_.without_effect += report.without_effect;
  total_.longest_ms = std::max(total_.longest_ms, report.longest_ms);
}

std::uint64_t VolumeFaultTest::rounds(std::uint64_t few, std::uint64_t many) {
  return rounds_ = test::rounds_of(few, many);
}

void VolumeFaultTest::pause_for_a_while(std::chrono::microseconds most) {
  std::this_thread::sleep_for(
      std::chrono::microseconds{random_.below(static_cast<std::uint64_t>(most.count()) + 1)});
}

void VolumeFaultTest::expect_servers_back() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    EXPECT_TRUE(server(i).soon_sessions(0)) << "s" << i << ": " << server(i).ask("status");
    std::string now;
    EXPECT_TRUE(test::eventually([&] {
      return (now = server(i).ask("counts")) == nodes_[i].baseline;
    })) << "I8: s"
        << i << " held " << nodes_[i].baseline << "\n   and now holds " << now;
    EXPECT_EQ(server(i).stop(), 0) << "s" << i << " did not end well";
  }
}

void VolumeFaultTest::TearDown() {
  if (!ready_) return;
  if (!HasFatalFailure() && !IsSkipped()) {
    expect_equal_members(copies());
    {
      const Engine engine = mirror_engine();
      EXPECT_TRUE(managed(remove_volume(cluster(), engine, kMirrorName, {.while_open = true})));
    }
    expect_servers_back();
  }
  nodes_.clear();
  cluster_.reset();
  etcd_.reset();
  page_folder().clear();
  print();
}

void VolumeFaultTest::print() const {
  test::FaultLine line{.rounds = rounds_, .operations = total_.operations, .ok = total_.ok};
  if (total_.indeterminate != 0) line.failed["indeterminate"] = total_.indeterminate;
  if (total_.without_effect != 0) line.failed["without effect"] = total_.without_effect;
  line.print(to_string(transport()),
             "longest_ms=" + std::to_string(total_.longest_ms) + " seed=" + std::to_string(seed_));
}

}  // namespace remora::fault
