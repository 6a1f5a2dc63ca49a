#pragma once

/// Completion: the NIC's answer to one work request. Thread safety: a value.

#include <arpa/inet.h>
#include <cstdint>
#include <infiniband/verbs.h>
#include <optional>
#include <ostream>
#include <string_view>
#include <type_traits>

#include <remora/result.h>
#include <remora/verbs/format.h>

namespace remora::verbs {

/// The kind of the operation that completed. Values equal `ibv_wc_opcode`; a value that is not
/// listed here is kept as it is.
enum class Opcode : std::uint32_t {
  kSend = IBV_WC_SEND,
  kWrite = IBV_WC_RDMA_WRITE,  ///< with or without immediate, on the side that posted it
  kRead = IBV_WC_RDMA_READ,
  kCompareSwap = IBV_WC_COMP_SWAP,
  kFetchAdd = IBV_WC_FETCH_ADD,
  kBindWindow = IBV_WC_BIND_MW,
  kLocalInvalidate = IBV_WC_LOCAL_INV,
  kReceive = IBV_WC_RECV,
  kReceiveWriteImmediate = IBV_WC_RECV_RDMA_WITH_IMM,  ///< a receive used up by a peer's write
};
/// "send", "compare-swap", "receive-write-immediate" and so on; "other" for a value that is none.
[[nodiscard]] std::string_view to_string(Opcode opcode) noexcept;

/// One entry of a completion queue, exactly as the provider wrote it: polling copies nothing.
///
/// After a failure only `id()`, `status()`, `vendor_error()` and `qp_number()` are defined. Source:
/// ibv_poll_cq(3).
class Completion {
 public:
  /// The id given when the request was posted.
  [[nodiscard]] std::uint64_t id() const noexcept { return wc_.wr_id; }
  /// True: the request succeeded.
  [[nodiscard]] bool ok() const noexcept { return wc_.status == IBV_WC_SUCCESS; }
  /// kSuccess, or why the request failed.
  [[nodiscard]] CompletionStatus status() const noexcept;
  /// The queue pair broke, and this request was flushed: whether it was executed is unknown.
  [[nodiscard]] bool flushed() const noexcept { return wc_.status == IBV_WC_WR_FLUSH_ERR; }
  /// The operation. Only when ok().
  [[nodiscard]] Opcode opcode() const noexcept { return static_cast<Opcode>(wc_.opcode); }
  /// Whether a receive was used up. Only when ok().
  [[nodiscard]] bool is_receive() const noexcept { return (wc_.opcode & IBV_WC_RECV) != 0; }
  /// Bytes moved by a receive, a read or an atomic; undefined for sends and writes.
  [[nodiscard]] std::uint32_t length_bytes() const noexcept { return wc_.byte_len; }
  /// Host byte order; only on receives.
  [[nodiscard]] std::optional<std::uint32_t> immediate() const noexcept {
    if ((wc_.wc_flags & IBV_WC_WITH_IMM) == 0) return std::nullopt;
    return ntohl(wc_.imm_data);
  }
  /// Whether the receive of a datagram begins with a valid global route header (its 40 bytes are
  /// always reserved).
  [[nodiscard]] bool has_route_header() const noexcept { return (wc_.wc_flags & IBV_WC_GRH) != 0; }
  /// The sender of a datagram.
  [[nodiscard]] std::uint32_t source_qp() const noexcept { return wc_.src_qp; }
  /// The window's key that the peer's message has invalidated, host byte order.
  [[nodiscard]] std::optional<std::uint32_t> invalidated_rkey() const noexcept {
    if ((wc_.wc_flags & IBV_WC_WITH_INV) == 0) return std::nullopt;
    return wc_.invalidated_rkey;
  }
  /// The vendor's number for a failure; undefined when ok().
  [[nodiscard]] std::uint32_t vendor_error() const noexcept { return wc_.vendor_err; }
  /// The local queue pair.
  [[nodiscard]] std::uint32_t qp_number() const noexcept { return wc_.qp_num; }

  /// Only when !ok(): kAccessRefused if the peer's NIC has refused, otherwise kProvider; it
  /// contains the completion status and the vendor error.
  [[nodiscard]] Error error() const noexcept;

  /// The entry itself, for fields that this class does not offer.
  [[nodiscard]] const ibv_wc& raw() const noexcept { return wc_; }
  /// The same entry, for a provider to write.
  [[nodiscard]] ibv_wc& raw() noexcept { return wc_; }

 private:
  ibv_wc wc_{};
};
/// poll() passes an array of these to the provider as an array of ibv_wc.
static_assert(sizeof(Completion) == sizeof(ibv_wc) && alignof(Completion) == alignof(ibv_wc));
static_assert(std::is_standard_layout_v<Completion>);

/// "write id 7 ok", "read id 8 remote access error (vendor 0)".
std::ostream& operator<<(std::ostream& out, const Completion& completion);

}  // namespace remora::verbs
