#include "device_profiles.h"

#include <algorithm>
#include <array>

namespace remora::test {

namespace {

// Sources: linux is drivers/infiniband/ of torvalds/linux, rdma-core is providers/ of
// linux-rdma/rdma-core, perftest is linux-rdma/perftest.

constexpr std::uint32_t round_up(std::uint32_t value, std::uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

// ConnectX and BlueField, RoCE.
//
// | what                                | source |
// |-------------------------------------|--------|
// | depth, atomics, reads in flight     | linux hw/mlx5/main.c, mlx5_ib_query_device |
// | size of an entry, EINVAL            | rdma-core mlx5/verbs.c, mlx5_calc_sq_size |
// | keys from a cache, last freed first | linux hw/mlx5/mr.c, the mkey cache |
// | windows: a command each             | linux hw/mlx5/mr.c, mlx5_ib_alloc_mw |
// | atomic access refused at RTR        | linux hw/mlx5/qp.c, set_qpc_atomic_flags |
// | errors name their request           | rdma-core mlx5/cq.c |
// | thread domains                      | rdma-core mlx5/verbs.c, mlx5_alloc_td |
//
// An entry begins with room for the largest operation, which is that of a window: 192 bytes.
std::uint32_t mlx5_entry_bytes(const ibv_qp_cap& asked) {
  constexpr std::uint32_t kLargestOperation = 192;
  constexpr std::uint32_t kElement = 16;
  constexpr std::uint32_t kBlock = 64;
  const std::uint32_t gather = asked.max_send_sge * kElement;
  const std::uint32_t bytes_inline =
      asked.max_inline_data == 0 ? 0 : round_up(4 + asked.max_inline_data, kElement);
  return round_up(kLargestOperation + std::max(gather, bytes_inline), kBlock);
}

constexpr DeviceProfile kMlx5{.name = "mlx5",
                              .max_qp_wr = 32'768,
                              .max_sge = 30,
                              .max_cqe = 4'194'303,
                              .max_responder_depth = 16,
                              .max_initiator_depth = 16,
                              .software = false,
                              .completion_vectors = 8,
                              .has_thread_domains = true,
                              .max_inline_bytes = 828,
                              .keys = KeyHabit::kLastFreedFirst,
                              .entry_bytes = &mlx5_entry_bytes,
                              .send_queue_bytes_max = std::uint64_t{32'768} * 64,
                              .commands_of_window = 1,
                              .commands_of_pair = 4};

constexpr DeviceProfile without_atomics(DeviceProfile profile) {
  profile.name = "mlx5-no-atomics";
  profile.atomics = IBV_ATOMIC_NONE;
  profile.refuses_atomic_access = true;
  return profile;
}

// BCM575xx, RoCE.
//
// | what                             | source |
// |----------------------------------|--------|
// | attributes; type-2B windows told | linux hw/bnxt_re/ib_verbs.c, bnxt_re_query_device |
// | inline room: 96 bytes            | rdma-core bnxt_re/bnxt_re-abi.h, BNXT_RE_MAX_INLINE_SIZE |
// | errors at the oldest request     | rdma-core bnxt_re/verbs.c, bnxt_re_poll_err_scqe |
// | a capability told and not had    | spdk/spdk, issue 3926 (BCM57508) |
constexpr DeviceProfile kBnxtRe{.name = "bnxt_re",
                                .max_qp_wr = 65'407,
                                .max_sge = 13,
                                .max_cqe = 524'287,
                                .max_responder_depth = 126,
                                .max_initiator_depth = 126,
                                .atomics = IBV_ATOMIC_GLOB,
                                .software = false,
                                .completion_vectors = 4,
                                .max_inline_bytes = 96,
                                .keys = KeyHabit::kLastFreedFirst,
                                .reports_errors_at_oldest = true,
                                .commands_of_registration = 2,
                                .commands_of_window = 1,
                                .commands_of_pair = 4};

constexpr DeviceProfile lying_of_windows(DeviceProfile profile) {
  profile.name = "bnxt_re-no-windows";
  profile.has_windows_type_2 = false;
  return profile;
}

// E810 as iWARP.
//
// | what                             | source |
// |----------------------------------|--------|
// | attributes; no type-2 windows    | linux hw/irdma/verbs.c, irdma_query_device |
// | no atomics                       | the same |
// | reads in flight                  | linux hw/irdma/icrdma_hw.h |
// | inline room: 101 bytes           | rdma-core irdma/user.h, IRDMA_MAX_INLINE_DATA_SIZE |
// | a deeper queue is EINVAL         | rdma-core irdma/uverbs.c, irdma_ucreate_qp |
// | sinks of reads need remote write | linux core/rw.c; perftest src/perftest_resources.c |
constexpr DeviceProfile kIrdma{.name = "irdma",
                               .max_qp_wr = 4'063,
                               .max_sge = 13,
                               .max_cqe = 1'048'574,
                               .max_responder_depth = 127,
                               .max_initiator_depth = 127,
                               .atomics = IBV_ATOMIC_NONE,
                               .says_windows_type_2 = false,
                               .iwarp = true,
                               .software = false,
                               .completion_vectors = 4,
                               .has_windows_type_2 = false,
                               .max_inline_bytes = 101,
                               .keys = KeyHabit::kFresh,
                               .commands_of_registration = 1,
                               .commands_of_pair = 1};

// Elastic Fabric Adapter.
//
// | what                               | source |
// |------------------------------------|--------|
// | attributes; no atomics, no windows | linux hw/efa/efa_verbs.c, efa_query_device |
// | no reliable connections            | linux hw/efa/efa_verbs.c, efa_qp_validate_attr |
// | no connection manager              | linux hw/efa/efa_verbs.c, efa_get_port_immutable |
constexpr DeviceProfile kEfa{.name = "efa",
                             .max_qp_wr = 4'096,
                             .max_sge = 2,
                             .max_cqe = 32'768,
                             .max_responder_depth = 0,
                             .max_initiator_depth = 0,
                             .atomics = IBV_ATOMIC_NONE,
                             .says_windows_type_2 = false,
                             .software = false,
                             .has_windows_type_2 = false,
                             .has_reliable_connections = false,
                             .has_connection_manager = false,
                             .max_inline_bytes = 32,
                             .keys = KeyHabit::kFresh,
                             .commands_of_registration = 1,
                             .commands_of_pair = 1};

// Soft-RoCE, Linux 6.1.
//
// | what                              | source |
// |-----------------------------------|--------|
// | limits                            | linux sw/rxe/rxe_param.h |
// | windows, whose keys do not return | linux sw/rxe/rxe_mw.c |
constexpr DeviceProfile kRxe{.name = "rxe",
                             .max_qp_wr = 16'384,
                             .max_sge = 32,
                             .max_cqe = 32'767,
                             .max_responder_depth = 128,
                             .max_initiator_depth = 128,
                             .completion_vectors = 1,
                             .max_inline_bytes = 400,
                             .keys = KeyHabit::kFresh};

constexpr DeviceProfile kPlain{.name = "plain"};

constexpr std::array kProfiles{
    kMlx5, without_atomics(kMlx5), kBnxtRe, lying_of_windows(kBnxtRe), kIrdma, kEfa, kRxe};

}  // namespace

const DeviceProfile& plain_device() { return kPlain; }

std::span<const DeviceProfile> device_profiles() { return kProfiles; }

const DeviceProfile* find_device_profile(std::string_view name) {
  const auto* const found =
      std::find_if(kProfiles.begin(), kProfiles.end(),
                   [&](const DeviceProfile& profile) { return profile.name == name; });
  return found == kProfiles.end() ? nullptr : found;
}

}  // namespace remora::test
