#pragma once

/// The attributes of a queue pair, typed: for `modify` and from `query`.
///
/// A member that is set is an attribute of the step. `check_step` tells which attributes a step
/// lacks or must not have; `QueuePair::modify` adds that to the error when the kernel answers
/// EINVAL.
///
/// Thread safety: values.

#include <cstdint>
#include <infiniband/verbs.h>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <remora/verbs/access.h>
#include <remora/verbs/address_handle.h>
#include <remora/verbs/format.h>

namespace remora::verbs {

/// The states of a queue pair. Source: ibv_modify_qp(3).
enum class QueuePairState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr, kUnknown };
/// "RESET", "INIT" and so on; "unknown".
[[nodiscard]] std::string_view to_string(QueuePairState state) noexcept;

/// Attributes of a queue pair; QueuePairOptions has the ranges of those with the same names.
/// Source: ibv_modify_qp(3), ibv_query_qp(3).
struct QueuePairAttributes {
  std::optional<QueuePairState> state;
  std::optional<QueuePairState> current_state;  ///< the state that the pair is believed to be in
  std::optional<std::uint16_t> pkey_index;
  std::optional<std::uint8_t> port;
  std::optional<Access> access;
  std::optional<std::uint32_t> qkey;
  std::optional<AddressVector> path;
  std::optional<ibv_mtu> mtu;
  std::optional<std::uint32_t> destination_qp;
  std::optional<std::uint32_t> receive_psn;
  std::optional<std::uint8_t> responder_depth;  ///< max_dest_rd_atomic
  std::optional<std::uint8_t> min_rnr_timer;
  std::optional<std::uint32_t> send_psn;
  std::optional<std::uint8_t> timeout;
  std::optional<std::uint8_t> retry_count;
  std::optional<std::uint8_t> rnr_retry_count;
  std::optional<std::uint8_t> initiator_depth;  ///< max_rd_atomic

  /// The structure and mask (IBV_QP_...) of ibv_modify_qp.
  [[nodiscard]] std::pair<ibv_qp_attr, int> raw() const noexcept;
  /// The members of `raw` that `mask` names.
  [[nodiscard]] static QueuePairAttributes from(const ibv_qp_attr& raw, int mask) noexcept;
};
/// "state RTS port 1 path ...": the attributes that are set. Allocates.
std::ostream& operator<<(std::ostream& out, const QueuePairAttributes& attributes);

/// The fault of a step from one state to another, by the specification's table.
struct StepCheck {
  bool possible = true;  ///< false: there is no such step
  int missing = 0;       ///< needed IBV_QP_... that were not given
  int surplus = 0;       ///< given, and not allowed in this step
  [[nodiscard]] bool ok() const noexcept { return possible && missing == 0 && surplus == 0; }
};
/// Compares a step, whose attributes are those of `mask` (IBV_QP_...), with the table. A pure
/// function. Source: InfiniBand Architecture Specification 1.4, 11.2.5.2, table 96.
[[nodiscard]] StepCheck check_step(ibv_qp_type type, QueuePairState from, QueuePairState to,
                                   int mask) noexcept;
/// "missing path, mtu; surplus qkey", in the names of QueuePairAttributes; empty when ok().
/// Allocates.
[[nodiscard]] std::string to_string(const StepCheck& check);

}  // namespace remora::verbs
