// One-line texts of handles and structures, for logs.
#include <array>
#include <ostream>
#include <string>
#include <utility>

#include <remora/verbs/mr_cache.h>
#include <remora/verbs/queue_pair.h>

#include "queue_pair_limits.h"

namespace remora::verbs {
namespace {

// Prints an optional value if it is set; small integers as numbers.
template <typename T>
void put(std::ostream& out, std::string_view name, const std::optional<T>& value) {
  if (value) out << ' ' << name << ' ' << +*value;
}

std::string_view transport_name(ibv_qp_type type) noexcept {
  switch (type) {
    case IBV_QPT_RC: return "RC";
    case IBV_QPT_UC: return "UC";
    case IBV_QPT_UD: return "UD";
    default: return "other";
  }
}

}  // namespace

std::string_view to_string(Advice advice) noexcept {
  switch (advice) {
    case Advice::kPrefetch: return "prefetch";
    case Advice::kPrefetchWrite: return "prefetch for writing";
    case Advice::kPrefetchNoFault: return "prefetch without faults";
  }
  return "unknown";
}

std::string_view to_string(Notify notify) noexcept {
  switch (notify) {
    case Notify::kAll: return "all";
    case Notify::kSolicited: return "solicited";
  }
  return "unknown";
}

std::string_view to_string(Invalidation invalidation) noexcept {
  switch (invalidation) {
    case Invalidation::kAutomatic: return "automatic";
    case Invalidation::kExplicit: return "explicit";
  }
  return "unknown";
}

std::string_view to_string(Unkept unkept) noexcept {
  switch (unkept) {
    case Unkept::kRegister: return "register";
    case Unkept::kRefuse: return "refuse";
  }
  return "unknown";
}

std::string to_string(CompletionFields fields) {
  static constexpr std::array<std::pair<CompletionFields, std::string_view>, 9> kNames{{
      {CompletionFields::kLength, "length"},
      {CompletionFields::kImmediate, "immediate"},
      {CompletionFields::kQueuePair, "queue-pair"},
      {CompletionFields::kSourceQueuePair, "source-queue-pair"},
      {CompletionFields::kSourceLid, "source-lid"},
      {CompletionFields::kServiceLevel, "service-level"},
      {CompletionFields::kPathBits, "path-bits"},
      {CompletionFields::kTimestamp, "timestamp"},
      {CompletionFields::kWallClock, "wall-clock"},
  }};
  std::string text;
  for (const auto& [field, name] : kNames) {
    if (!contains(fields, field)) continue;
    if (!text.empty()) text += '|';
    text += name;
  }
  return text.empty() ? "none" : text;
}

std::ostream& operator<<(std::ostream& out, const Device& device) {
  return out << (device.empty() ? std::string_view{"no device"} : device.name());
}

std::ostream& operator<<(std::ostream& out, const ProtectionDomain& domain) {
  if (domain.empty()) return out << "no protection domain";
  return out << "protection domain " << domain.raw()->handle << " on " << domain.device();
}

std::ostream& operator<<(std::ostream& out, const CompletionQueue& queue) {
  if (queue.empty()) return out << "no completion queue";
  return out << "completion queue " << queue.raw()->handle << " of " << queue.depth()
             << " entries on " << queue.device();
}

std::ostream& operator<<(std::ostream& out, const CompletionChannel& channel) {
  if (channel.empty()) return out << "no completion channel";
  return out << "completion channel " << channel.event_fd() << " on "
             << channel.raw()->context->device->name;
}

std::ostream& operator<<(std::ostream& out, const CompletionQueueEvent& event) {
  return out << "queue " << static_cast<const void*>(event.queue) << " context " << event.context;
}

std::ostream& operator<<(std::ostream& out, const CompletionQueueOptions& options) {
  out << "entries " << options.depth << " vector " << options.vector;
  if (options.events) out << " events";
  if (!options.channel.empty()) out << ' ' << options.channel;
  if (options.fields != CompletionFields::kNone) out << " fields " << options.fields;
  return out;
}

std::ostream& operator<<(std::ostream& out, const SharedReceiveQueueOptions& options) {
  return out << "receives " << options.depth << " slices " << options.sge;
}

std::ostream& operator<<(std::ostream& out, const SharedReceiveQueueAttributes& attributes) {
  return out << "receives " << attributes.depth << " slices " << attributes.sge << " limit "
             << attributes.limit;
}

std::ostream& operator<<(std::ostream& out, const SharedReceiveQueue& queue) {
  if (queue.empty()) return out << "no shared receive queue";
  return out << "shared receive queue " << queue.raw()->handle << " on " << queue.domain().device();
}

std::ostream& operator<<(std::ostream& out, const AddressHandle& handle) {
  return out << handle.path();
}

std::ostream& operator<<(std::ostream& out, const DatagramPeer& peer) {
  return out << "qp " << peer.qp_number() << " qkey " << peer.qkey() << " over " << peer.handle();
}

std::ostream& operator<<(std::ostream& out, const MemoryWindow& window) {
  if (window.freed()) return out << "freed window";
  return out << "window of " << window.remote();
}

std::ostream& operator<<(std::ostream& out, const GidCandidate& candidate) {
  return out << candidate.entry << ": " << candidate.verdict << " (rating " << candidate.rating
             << ')';
}

std::ostream& operator<<(std::ostream& out, const MrPiece& piece) {
  return out << RemoteSlice{piece.address, piece.length_bytes, piece.rkey} << " lkey "
             << piece.lkey;
}

std::ostream& operator<<(std::ostream& out, const MrCacheCounters& counters) {
  out << "hits " << counters.hits << " misses " << counters.misses << " unkept " << counters.unkept
      << " refused " << counters.refused << " evicted " << counters.evictions << " superseded "
      << counters.superseded << " unmapped " << counters.unmapped << " remapped "
      << counters.remapped << " removed " << counters.removed << " explicitly "
      << counters.explicitly << " registered " << counters.registrations << " pinned "
      << counters.pinned_bytes << " bytes in " << counters.pinned_registrations << " registrations";
  for (const auto& [number, times] : counters.failures)
    out << " errno " << number << ' ' << times << " times";
  return out;
}

std::ostream& operator<<(std::ostream& out, const QueuePairOptions& options) {
  const SharedReceiveQueue& shared = options.shared_receive_queue;
  out << "sends " << options.send_depth << " receives " << options.receive_depth << " slices "
      << options.send_sge << '/' << options.receive_sge << " inline " << options.inline_bytes;
  if (options.batch_requests != 0) out << " batch " << options.batch_requests;
  if (options.signal_all) out << " signal-all";
  out << " port " << +options.port << " pkey_index " << options.pkey_index.value_or(0);
  put(out, "gid_index", options.gid_index);
  if (options.access) out << " access " << *options.access;
  if (options.mtu) out << " mtu " << mtu_bytes(*options.mtu);
  put(out, "psn", options.psn);
  put(out, "timeout", options.timeout);
  if (options.timeout_at_least != 0) out << " timeout at least " << +options.timeout_at_least;
  out << " retry_count " << +options.retry_count << " rnr_retry_count " << +options.rnr_retry_count;
  put(out, "min_rnr_timer", options.min_rnr_timer);
  put(out, "initiator_depth", options.initiator_depth);
  put(out, "responder_depth", options.responder_depth);
  out << " sl " << +options.service_level.value_or(0) << " class "
      << +options.traffic_class.value_or(0) << " hops "
      << +options.hop_limit.value_or(detail::kDefaultHopLimit) << " flow "
      << options.flow_label.value_or(0) << " qkey " << options.qkey;
  if (!shared.empty()) out << ' ' << shared;
  return out;
}

namespace detail {

std::ostream& print_queue_pair(std::ostream& out, const ibv_qp* pair,
                               const QueuePairCapabilities& capabilities) {
  if (pair == nullptr) return out << "no queue pair";
  return out << transport_name(pair->qp_type) << " qp " << pair->qp_num << " on "
             << pair->context->device->name << ": " << capabilities;
}

}  // namespace detail
}  // namespace remora::verbs
