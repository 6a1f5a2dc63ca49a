#include "transport/rdma/lane.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <remora/assert.h>

#include "base/log.h"
#include "transport/rdma/local_access.h"
#include "transport/rdma/wire.h"
#include "transport/rkey_table.h"

namespace remora::transport::rdma {

namespace {

// post() copies these parts of a request: local and remote, in the layout of the device's
// structures.
static_assert(offsetof(WorkRequest, length_bytes) - offsetof(WorkRequest, local) ==
              offsetof(ibv_sge, length));
static_assert(offsetof(WorkRequest, local_key) - offsetof(WorkRequest, local) ==
              offsetof(ibv_sge, lkey));
static_assert(offsetof(WorkRequest, remote_key) - offsetof(WorkRequest, remote_address) == 8);

/// Opcode and flags of most requests, which lie side by side in a work request of the device.
constexpr auto kUnsignaledRead =
    std::bit_cast<std::uint64_t>(std::array<std::uint32_t, 2>{IBV_WR_RDMA_READ, 0});
static_assert(sizeof(ibv_send_wr::opcode) == 4 && sizeof(ibv_send_wr::send_flags) == 4 &&
              offsetof(ibv_send_wr, send_flags) - offsetof(ibv_send_wr, opcode) == 4);

/// Key policy: a request contains the key itself.
struct KeysAsTheyAre {
  static constexpr bool kTokens = false;
  static constexpr bool kLocalTokens = false;
  static constexpr std::uint32_t kMaxInlineBytes = std::numeric_limits<std::uint32_t>::max();
};

/// Key policy: a request contains a token of the remote key.
struct KeysByToken {
  static constexpr bool kTokens = true;
  static constexpr bool kLocalTokens = false;
  static constexpr std::uint32_t kMaxInlineBytes = std::numeric_limits<std::uint32_t>::max();
  std::shared_ptr<const RkeyTable> table;  ///< keeps `of_lane` valid
  const std::uint32_t* of_lane = nullptr;
};

/// Key policy: local keys are tokens, too.
struct KeysOfRail {
  static constexpr bool kTokens = true;
  static constexpr bool kLocalTokens = true;
  static constexpr std::uint32_t kMaxInlineBytes = kRailInlineBytes;
  std::shared_ptr<const RkeyTable> table;  ///< keeps `of_lane` valid
  const std::uint32_t* of_lane = nullptr;
  std::shared_ptr<const RkeyTable> local_table;  ///< keeps `of_device` valid
  const std::uint32_t* of_device = nullptr;
  std::shared_ptr<const LaneRail> rail;
};

template <typename Keys>
class RdmaLane final : public Lane {
 public:
  static Result<std::unique_ptr<Lane>> create(LanePair link, verbs::CompletionQueue queue,
                                              std::uint32_t transfer_bytes_max, std::uint32_t depth,
                                              std::uint32_t initiator_depth, Keys keys) {
    std::vector<std::uint64_t> results(std::bit_ceil(depth));
    const verbs::ProtectionDomain domain = link.pair->domain().base();
    auto registered = domain.register_bytes(std::as_writable_bytes(std::span{results}),
                                            local_access(domain.device()));
    if (!registered) return registered.error();
    std::vector<NoticeBytes> notices(results.size());
    auto registered_notices = domain.register_bytes(std::as_writable_bytes(std::span{notices}),
                                                    verbs::Access::kLocalWrite);
    if (!registered_notices) return registered_notices.error();
    const auto capabilities = link.pair->capabilities();
    return std::unique_ptr<Lane>{new RdmaLane{
        std::move(link),
        std::move(queue),
        std::move(results),
        std::move(*registered),
        std::move(notices),
        std::move(*registered_notices),
        {.depth = depth,
         .transfer_bytes_max = transfer_bytes_max,
         .inline_bytes_max = std::min(capabilities.inline_bytes, Keys::kMaxInlineBytes),
         .initiator_depth = initiator_depth},
        std::move(keys)}};
  }
  ~RdmaLane() override { close(); }

  [[nodiscard]] const Limits& limits() const noexcept override { return limits_; }
  [[nodiscard]] std::shared_ptr<const LaneRail> rail() const noexcept override {
    if constexpr (Keys::kLocalTokens)
      return keys_.rail;
    else
      return nullptr;
  }

  PostOutcome post(Chain chain, std::uint64_t first_sequence) noexcept override {
    REMORA_ASSERT_HOT(!chain.empty() && chain.size() <= prepared_.size(),
                      "a chain has no more requests than the lane's depth");
    if (chain.size() == 1) return post_one(*chain.front(), first_sequence);
    Prepared* next = prepared_.data();
    std::uint64_t sequence = first_sequence;
    for (const WorkRequest* const request : chain) {
      translate(*request, sequence, *next);
      ++sequence;
      ++next;
    }
    const std::size_t interval = signal_interval(first_sequence);
    signaled_within_ = 0;
    for (std::size_t i = interval; i < chain.size(); i += interval, ++signaled_within_)
      prepared_[i - 1].request.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr& last = prepared_[chain.size() - 1].request;
    last.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* const after = std::exchange(last.next, nullptr);
    ibv_send_wr* bad = nullptr;
    const int failed = link_.pair->post_send(&prepared_.front().request, &bad);
    last.next = after;
    if (failed == 0) return {.taken = chain.size()};
    // If the provider does not report where it stopped, all requests may have been posted.
    std::size_t taken = 0;
    while (taken < chain.size() && &prepared_[taken].request != bad) ++taken;
    signaled_within_ = std::min(signaled_within_, static_cast<std::uint32_t>(taken / interval));
    return {.taken = taken, .error = failed};
  }

  void count_inline(metrics::Recorder recorder, metrics::Counter counter) noexcept override {
    recorder_ = recorder;
    inline_requests_ = counter;
  }
  std::size_t poll(std::span<LaneCompletion> completions) noexcept override {
    std::array<ibv_wc, kMaxPoll> found;
    const int count =
        queue_.poll_raw(static_cast<int>(std::min(completions.size(), found.size())), found.data());
    if (count <= 0) return 0;
    LaneCompletion* to = completions.data();
    for (const ibv_wc* wc = found.data(); wc != found.data() + count; ++wc)
      *to++ = {.sequence = wc->wr_id,
               .status = static_cast<CompletionStatus>(wc->status),
               .vendor_error = 0};
    polled_end_ = to[-1].sequence + 1;
    // No request behind a failed one succeeds.
    if (to[-1].status != CompletionStatus::kSuccess) [[unlikely]]
      describe_failures(found.data(), to - count, count);
    return static_cast<std::size_t>(count);
  }

  [[nodiscard]] std::span<const std::uint64_t> atomic_results() const noexcept override {
    return results_;
  }
  Status arm() noexcept override { return queue_.empty() ? Status{} : queue_.arm(); }
  void drain_events() noexcept override {
    if (!queue_.empty()) (void)queue_.take_events();
  }
  [[nodiscard]] int event_fd() const noexcept override {
    return queue_.empty() ? -1 : queue_.event_fd();
  }

  void move_to_error() noexcept override { link_.to_error(); }
  void close_later() noexcept override {
    if (link_.close_later) link_.close_later();
    close();
  }
  void close() noexcept override {
    if (queue_.empty()) return;  // already closed
    link_.destroy();
    // The flush made events, by which a thread that waits for the descriptor would wake again and
    // again.
    drain_events();
    leave_device();
  }
  [[nodiscard]] std::uint32_t completion_capacity() const noexcept override {
    return completion_capacity_;
  }

 private:
  static constexpr std::size_t kMaxPoll = 64;

  RdmaLane(LanePair link, verbs::CompletionQueue queue, std::vector<std::uint64_t> results,
           verbs::MemoryRegion results_memory, std::vector<NoticeBytes> notices,
           verbs::MemoryRegion notices_memory, const Limits& limits, Keys keys)
      : link_{std::move(link)},
        queue_{std::move(queue)},
        results_{std::move(results)},
        results_memory_{std::move(results_memory)},
        notices_{std::move(notices)},
        notices_memory_{std::move(notices_memory)},
        limits_{limits},
        prepared_(limits.depth),
        keys_{std::move(keys)} {
    // The fields that are the same in every chain.
    single_.request.sg_list = &single_.element;
    single_.request.num_sge = 1;
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      ibv_send_wr& request = prepared_[i].request;
      request.sg_list = &prepared_[i].element;
      request.num_sge = 1;
      request.next = i + 1 < prepared_.size() ? &prepared_[i + 1].request : nullptr;
    }
  }

  /// The client's memory is deregistered as soon as its device has gone, also under posted
  /// requests. These fail because their memory is missing, which is reported as the loss of the
  /// connection.
  [[gnu::cold, gnu::noinline]] void describe_failures(const ibv_wc* wc, LaneCompletion* to,
                                                      int count) const noexcept {
    for (const ibv_wc* const end = wc + count; wc != end; ++wc, ++to) {
      if (wc->status == IBV_WC_SUCCESS) continue;
      to->vendor_error = wc->vendor_err;
      if ((wc->status == IBV_WC_LOC_PROT_ERR || wc->status == IBV_WC_LOC_ACCESS_ERR) &&
          link_.pair->domain().device().gone())
        to->status = CompletionStatus::kFlushed;
    }
  }

  /// The lane may exist for long after its successor, and its device may go meanwhile.
  void leave_device() noexcept {
    struct Left {
      verbs::MemoryRegion results;
      verbs::MemoryRegion notices;
      verbs::CompletionQueue queue;
    };
    Left left{std::move(results_memory_), std::move(notices_memory_), std::exchange(queue_, {})};
    if (link_.drop_later) link_.drop_later(std::make_shared<Left>(std::move(left)));
  }

  PostOutcome post_one(const WorkRequest& request, std::uint64_t sequence) noexcept {
    translate(request, sequence, single_);
    single_.request.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = nullptr;
    const int failed = link_.pair->post_send(&single_.request, &bad);
    // If the provider does not report where it stopped, the request may have been posted.
    return {.taken = failed == 0 || bad != &single_.request ? 1U : 0U, .error = failed};
  }

  /// How many requests of a chain go to one signaled request, besides the last: half of the room
  /// that is left, so that a send queue that fills up gets room back early, while a queue with room
  /// has one completion for a chain.
  [[nodiscard]] std::size_t signal_interval(std::uint64_t first_sequence) const noexcept {
    const std::uint64_t room = limits_.depth - (first_sequence - polled_end_);
    return std::clamp<std::uint64_t>(room / 2, 1, std::max(1U, limits_.depth / 4));
  }

  /// The structures for the provider of one request.
  struct Prepared {
    ibv_send_wr request{};
    ibv_sge element{};
  };

  [[gnu::always_inline]] void translate(const WorkRequest& request, std::uint64_t sequence,
                                        Prepared& prepared) noexcept {
    ibv_send_wr& wr = prepared.request;
    wr.wr_id = sequence;
    // The two have the same layout, asserted below: four stores instead of seven.
    std::memcpy(&prepared.element, &request.local, sizeof(ibv_sge));
    if constexpr (Keys::kLocalTokens)
      // A request without a key has no token either: its value is an index within the table.
      prepared.element.lkey =
          RkeyTable::key_of(keys_.of_device, request.local_key & (RkeyTable::kMaxTokens - 1));
    std::memcpy(&wr.wr.rdma, &request.remote_address, sizeof wr.wr.rdma);
    std::memcpy(&wr.opcode, &kUnsignaledRead, sizeof kUnsignaledRead);
    if (request.opcode != Opcode::kRead) [[unlikely]]
      translate_other(request, sequence, prepared);
    else if constexpr (Keys::kTokens)
      wr.wr.rdma.rkey = key_of(request);
  }

  /// Not for kNotify, which has no key.
  [[nodiscard]] std::uint32_t key_of(const WorkRequest& request) const noexcept {
    if constexpr (Keys::kTokens)
      return RkeyTable::key_of(keys_.of_lane, request.remote_key);
    else
      return request.remote_key;
  }

  void translate_other(const WorkRequest& request, std::uint64_t sequence,
                       Prepared& prepared) noexcept {
    auto& [wr, element] = prepared;
    switch (request.opcode) {
      case Opcode::kWriteZeroes:  // the lane does not take it: see limits()
      case Opcode::kWrite:
        wr.opcode = IBV_WR_RDMA_WRITE;
        if constexpr (Keys::kTokens) wr.wr.rdma.rkey = key_of(request);
        if (request.length_bytes <= limits_.inline_bytes_max) send_inline(wr);
        break;
      case Opcode::kNotify: return send_notice(request, sequence, wr, element);
      case Opcode::kRead: return;  // set above
      case Opcode::kFlush:
        wr.opcode = IBV_WR_RDMA_READ;
        if constexpr (Keys::kTokens) wr.wr.rdma.rkey = key_of(request);
        use_result(sequence, element);
        break;
      case Opcode::kCompareSwap:
      case Opcode::kFetchAdd:
        wr.opcode = request.opcode == Opcode::kFetchAdd ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                                        : IBV_WR_ATOMIC_CMP_AND_SWP;
        use_result(sequence, element);
        wr.wr.atomic = {.remote_addr = request.remote_address,
                        .compare_add = request.operands.atomic.compare_or_add,
                        .swap = request.operands.atomic.swap,
                        .rkey = key_of(request)};
        break;
    }
  }

  void send_notice(const WorkRequest& request, std::uint64_t sequence, ibv_send_wr& wr,
                   ibv_sge& element) noexcept {
    NoticeBytes& bytes = notices_[sequence & (notices_.size() - 1)];
    bytes = to_wire(request.notice());
    wr.opcode = IBV_WR_SEND;
    if (bytes.size() <= limits_.inline_bytes_max) send_inline(wr);
    element = {.addr = reinterpret_cast<std::uintptr_t>(bytes.data()),
               .length = kNoticeWireBytes,
               .lkey = notices_memory_.lkey()};
  }
  void send_inline(ibv_send_wr& wr) const noexcept {
    wr.send_flags = IBV_SEND_INLINE;
    if (recorder_) recorder_->add(inline_requests_);
  }
  void use_result(std::uint64_t sequence, ibv_sge& element) const noexcept {
    element.addr = reinterpret_cast<std::uintptr_t>(&results_[sequence & (results_.size() - 1)]);
    element.lkey = results_memory_.lkey();
  }

  LanePair link_;
  verbs::CompletionQueue queue_;
  std::vector<std::uint64_t> results_;
  verbs::MemoryRegion results_memory_;
  std::vector<NoticeBytes> notices_;  // by sequence, as the results of atomics
  verbs::MemoryRegion notices_memory_;
  Limits limits_;
  std::uint32_t completion_capacity_ = queue_.depth();
  std::uint64_t polled_end_ = 0;    ///< sequence after the last whose completion was polled
  std::vector<Prepared> prepared_;  // by index in the chain
  Prepared single_;                 // for a chain of one request
  std::optional<metrics::Recorder> recorder_;
  metrics::Counter inline_requests_;
  [[no_unique_address]] Keys keys_;  // last, so that a lane without tokens has the same layout
};

}  // namespace

void limit_depths(verbs::QueuePairBuilder<verbs::Rc>& builder, Asks asks, bool here_is_client) {
  if (builder.domain().device().is_iwarp()) return;
  // A depth that is not set here is the largest that the device supports.
  if (asks == Asks::kNeither || !here_is_client) builder.initiator_depth(0);
  if (asks == Asks::kNeither || here_is_client) builder.responder_depth(0);
}

void log_depths(std::string_view name, const verbs::Connection& connection) {
  if (!log::enabled(log::Level::kDebug)) return;
  const auto& pair = connection.queue_pair();
  const auto seen = pair.query(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC);
  if (!seen) return log::debug("rdma {}: {}", name, seen.error().message());
  log::debug(
      "rdma {}: queue pair {} on {}: reads and atomics in flight: asks {} (agreed {}), answers {} "
      "(agreed {})",
      name, pair.number(), connection.device().name(), seen->max_rd_atomic,
      connection.initiator_depth(), seen->max_dest_rd_atomic, connection.responder_depth());
}

Result<std::unique_ptr<Lane>> make_lane(LanePair pair, verbs::CompletionQueue queue,
                                        std::uint32_t transfer_bytes_max, std::uint32_t depth,
                                        std::uint32_t initiator_depth) {
  return RdmaLane<KeysAsTheyAre>::create(std::move(pair), std::move(queue), transfer_bytes_max,
                                         depth, initiator_depth, {});
}

Result<std::unique_ptr<Lane>> make_token_lane(LanePair pair, verbs::CompletionQueue queue,
                                              std::uint32_t transfer_bytes_max, std::uint32_t depth,
                                              std::shared_ptr<const RkeyTable> keys,
                                              std::size_t lane, std::uint32_t initiator_depth) {
  const std::uint32_t* const of_lane = keys->of_lane(lane);
  return RdmaLane<KeysByToken>::create(std::move(pair), std::move(queue), transfer_bytes_max, depth,
                                       initiator_depth, {std::move(keys), of_lane});
}

Result<std::unique_ptr<Lane>> make_rail_lane(LanePair pair, verbs::CompletionQueue queue,
                                             std::uint32_t transfer_bytes_max, std::uint32_t depth,
                                             RailKeys keys, std::shared_ptr<const LaneRail> rail,
                                             std::uint32_t initiator_depth) {
  const std::uint32_t* const of_lane = keys.remote->of_lane(keys.lane);
  const std::uint32_t* const of_device = keys.local->of_lane(keys.column);
  return RdmaLane<KeysOfRail>::create(
      std::move(pair), std::move(queue), transfer_bytes_max, depth, initiator_depth,
      {std::move(keys.remote), of_lane, std::move(keys.local), of_device, std::move(rail)});
}

}  // namespace remora::transport::rdma
