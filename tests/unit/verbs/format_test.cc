// What is printed, exactly: logs are read by people and by programs.
#include <bit>
#include <sstream>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::Access;

template <typename T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

verbs::Gid gid_of_documentation() {
  verbs::Gid gid;
  gid.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
  return gid;
}

struct FormatRow {
  std::string text;
  std::string expected;
};

void expect_rows(std::initializer_list<FormatRow> rows) {
  for (const FormatRow& row : rows) EXPECT_EQ(row.text, row.expected);
}

TEST(FormatOf, EveryEnumerationIsItsText) {
  expect_rows({
      {printed(verbs::AtomicSupport::kDevice), "device"},
      {printed(verbs::NodeType::kChannelAdapter), "channel adapter"},
      {printed(verbs::TransportType::kIwarp), "iWARP"},
      {printed(verbs::PortState::kActive), "active"},
      {printed(verbs::PhysicalState::kLinkUp), "link up"},
      {printed(verbs::LinkLayer::kEthernet), "Ethernet"},
      {printed(verbs::GidType::kRoceV2), "RoCE v2"},
      {printed(verbs::GidVerdict::kZero), "left: empty"},
      {printed(verbs::AsyncEvent::Kind::kGidChange), "GID change"},
      {printed(verbs::ConnectionEvent::Kind::kTimeWaitExit), "time-wait exit"},
      {printed(verbs::QueuePairState::kSqd), "SQD"},
      {printed(verbs::Opcode::kFetchAdd), "fetch-add"},
      {printed(verbs::Access::kNone), "none"},
      {printed(verbs::Advice::kPrefetch), "prefetch"},
      {printed(verbs::Advice::kPrefetchWrite), "prefetch for writing"},
      {printed(verbs::Advice::kPrefetchNoFault), "prefetch without faults"},
      {printed(verbs::Notify::kAll), "all"},
      {printed(verbs::Notify::kSolicited), "solicited"},
      {printed(verbs::Invalidation::kAutomatic), "automatic"},
      {printed(verbs::Invalidation::kExplicit), "explicit"},
      {printed(verbs::Unkept::kRegister), "register"},
      {printed(verbs::Unkept::kRefuse), "refuse"},
      {printed(verbs::CompletionFields::kNone), "none"},
      {printed(verbs::CompletionFields::kStandard),
       "length|immediate|queue-pair|source-queue-pair|source-lid|service-level|path-bits"},
      {printed(verbs::CompletionFields::kTimestamp | verbs::CompletionFields::kWallClock),
       "timestamp|wall-clock"},
  });
}

TEST(FormatOf, ValuesIsOneLine) {
  const verbs::Endpoint endpoint{gid_of_documentation(), 17, 5, 0, IBV_MTU_1024};
  const verbs::DatagramEndpoint datagrams{gid_of_documentation(), 17, 85, 3, IBV_MTU_4096};
  verbs::ConnectionEvent rejected;
  rejected.kind = verbs::ConnectionEvent::Kind::kRejected;
  rejected.status = 28;
  verbs::GidCandidate candidate;
  candidate.entry = {gid_of_documentation(), verbs::GidType::kRoceV2, 1, 3, 0};
  candidate.verdict = verbs::GidVerdict::kTaken;
  candidate.rating = 31;
  // Compared only, never followed.
  const verbs::CompletionQueueEvent event{std::bit_cast<ibv_cq*>(std::uintptr_t{0x10}),
                                          std::bit_cast<void*>(std::uintptr_t{0x20})};
  verbs::MrCacheCounters counters;
  counters.hits = 1;
  counters.misses = 2;
  counters.unkept = 3;
  counters.refused = 4;
  counters.evictions = 5;
  counters.superseded = 6;
  counters.unmapped = 7;
  counters.remapped = 8;
  counters.removed = 9;
  counters.explicitly = 10;
  counters.registrations = 11;
  counters.pinned_bytes = 4096;
  counters.pinned_registrations = 1;
  counters.failures[ENOMEM] = 2;
  expect_rows({
      {printed(endpoint), "qp 17 psn 5 gid 2001:db8::9 lid 0 mtu 1024"},
      {printed(datagrams), "qp 17 qkey 85 gid 2001:db8::9 lid 3 mtu 4096"},
      {printed(rejected), "rejected (status 28)"},
      {printed(candidate), "port 1 gid 3 RoCE v2 2001:db8::9: taken (rating 31)"},
      {printed(event), "queue 0x10 context 0x20"},
      {printed(verbs::SharedReceiveQueueOptions{.depth = 8, .sge = 2}), "receives 8 slices 2"},
      {printed(verbs::SharedReceiveQueueAttributes{8, 2, 3}), "receives 8 slices 2 limit 3"},
      {printed(verbs::MrPiece{0x1000, 64, 5, 6}), "64 bytes at 0x1000 rkey 6 lkey 5"},
      {printed(counters),
       "hits 1 misses 2 unkept 3 refused 4 evicted 5 superseded 6 unmapped 7 remapped 8 removed 9 "
       "explicitly 10 registered 11 pinned 4096 bytes in 1 registrations errno 12 2 times"},
      {printed(verbs::Guid{0x5054'00ff'fe12'3456}), "5054:00ff:fe12:3456"},
  });
}

TEST(FormatOf, QueuePairOptionsShowsWhatIsSet) {
  verbs::QueuePairOptions options;
  const std::string end = "sl 0 class 0 hops 64 flow 0 qkey 286331153";
  EXPECT_EQ(printed(options),
            "sends 64 receives 16 slices 1/1 inline 0 port 1 pkey_index 0 retry_count 7 "
            "rnr_retry_count 6 " +
                end);
  options.batch_requests = 8;
  options.signal_all = true;
  options.gid_index = 3;
  options.access = Access::kLocalWrite | Access::kRemoteRead;
  options.mtu = IBV_MTU_1024;
  options.psn = 5;
  options.timeout = 18;
  options.min_rnr_timer = 12;
  options.initiator_depth = 4;
  options.responder_depth = 0;
  EXPECT_EQ(printed(options),
            "sends 64 receives 16 slices 1/1 inline 0 batch 8 signal-all port 1 pkey_index 0 "
            "gid_index 3 access local-write|remote-read mtu 1024 psn 5 timeout 18 retry_count 7 "
            "rnr_retry_count 6 min_rnr_timer 12 initiator_depth 4 responder_depth 0 " +
                end);
}

class FormatOfHandles : public FakeTest {};

TEST_F(FormatOfHandles, NamesTheDevice) {
  const FakeRig rig{open()};
  rig.domain.raw()->handle = 3;
  rig.queue.raw()->handle = 4;
  const auto shared = verbs::SharedReceiveQueue::create(rig.domain).value();
  shared.raw()->handle = 5;
  auto pair = rig.builder().inline_bytes(32).shared_receive_queue(shared).create().value();
  const auto datagrams =
      verbs::QueuePairBuilder<verbs::Ud>{rig.domain, rig.queue, rig.queue}.create().value();
  auto window = pair.allocate_window().value();
  verbs::DatagramEndpoint endpoint;
  endpoint.qp_number = 9;
  endpoint.qkey = 85;
  const auto peer = verbs::DatagramPeer::create(rig.domain, endpoint, {}).value();
  const std::string channel =
      "completion channel " + std::to_string(rig.queue.event_fd()) + " on fake0";
  verbs::QueuePairOptions options;
  options.shared_receive_queue = shared;
  expect_rows({
      {printed(rig.device), "fake0"},
      {printed(rig.domain), "protection domain 3 on fake0"},
      {printed(rig.queue), "completion queue 4 of 64 entries on fake0"},
      {printed(rig.queue.channel()), channel},
      {printed(shared), "shared receive queue 5 on fake0"},
      {printed(pair), "RC qp 119 on fake0: sends 64 receives 0 slices 1/0 inline 32"},
      {printed(datagrams), "UD qp 119 on fake0: sends 64 receives 16 slices 1/1 inline 0"},
      {printed(peer), "qp 9 qkey 85 over port 1 lid 0 sl 0"},
      {printed(peer.handle()), "port 1 lid 0 sl 0"},
      {printed(window), "window of 0 bytes at 0x0 rkey 1280"},
      {printed(verbs::CompletionQueueOptions{
           .depth = 8, .channel = rig.queue.channel(), .fields = verbs::CompletionFields::kLength}),
       "entries 8 vector 0 " + channel + " fields length"},
      {printed(verbs::CompletionQueueOptions{.events = true, .vector = 1}),
       "entries 128 vector 1 events"},
  });
  EXPECT_TRUE(printed(options).ends_with(" qkey 286331153 shared receive queue 5 on fake0"));
  const auto moved = std::move(pair);
  EXPECT_EQ(printed(pair), "no queue pair");  // NOLINT(bugprone-use-after-move)
  const auto taken = std::move(window);
  EXPECT_EQ(printed(window), "freed window");  // NOLINT(bugprone-use-after-move)
}

TEST_F(FormatOfHandles, SaysThatItIsEmpty) {
  expect_rows({
      {printed(verbs::Device{}), "no device"},
      {printed(verbs::ProtectionDomain{}), "no protection domain"},
      {printed(verbs::CompletionQueue{}), "no completion queue"},
      {printed(verbs::CompletionChannel{}), "no completion channel"},
      {printed(verbs::SharedReceiveQueue{}), "no shared receive queue"},
  });
}

}  // namespace
}  // namespace remora::test
