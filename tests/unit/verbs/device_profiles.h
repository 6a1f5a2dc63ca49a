#pragma once

/// Kinds of NICs, as FakeVerbs plays them: what a device says of itself, what it can do, and its
/// habits. One table a NIC, with the sources that say so; device_profiles.cc has them.
///
/// A profile is a model of drivers that were read, not of a device that was used.

#include <cstdint>
#include <infiniband/verbs.h>
#include <span>
#include <string_view>

namespace remora::test {

/// Which keys registrations and windows get.
enum class KeyHabit : std::uint8_t {
  kFixed,  ///< the same for all, which a test can name
  kFresh,  ///< each differs from all before
  kLastFreedFirst,
};

struct DeviceProfile {
  std::string_view name;

  // What the device says of itself.
  int max_qp_wr = 128;
  int max_sge = 4;
  int max_cqe = 1024;
  int max_responder_depth = 16;
  int max_initiator_depth = 16;
  ibv_atomic_cap atomics = IBV_ATOMIC_HCA;
  bool says_windows_type_2 = true;
  bool iwarp = false;
  bool software = true;
  int completion_vectors = 2;

  // What it can do.
  bool has_windows_type_2 = true;  ///< false while it says so: the first allocation fails
  bool has_reliable_connections = true;
  bool has_connection_manager = true;
  bool has_thread_domains = false;
  std::uint32_t max_inline_bytes = UINT32_MAX;  ///< of a queue pair; more is EINVAL

  // Habits.
  KeyHabit keys = KeyHabit::kFixed;
  /// A failed request is reported as the oldest one that is not known to be done; those behind it
  /// are flushed.
  bool reports_errors_at_oldest = false;
  /// A queue pair with remote atomic access does not get to RTR: EOPNOTSUPP.
  bool refuses_atomic_access = false;
  /// Bytes of a send queue's entry; null: a queue of any depth that max_qp_wr allows.
  std::uint32_t (*entry_bytes)(const ibv_qp_cap& asked) = nullptr;
  std::uint64_t send_queue_bytes_max = 0;  ///< rounded up to a power of two; more is EINVAL

  // Costs, counted in FakeVerbs::commands: commands of the firmware that a call waits for.
  int commands_of_registration = 0;
  int commands_of_window = 0;
  int commands_of_pair = 0;
};

/// What FakeVerbs is without a profile: no NIC, all capabilities, no habit.
[[nodiscard]] const DeviceProfile& plain_device();
/// mlx5, mlx5-no-atomics, bnxt_re, bnxt_re-no-windows (which says that it has them), irdma, efa,
/// rxe.
[[nodiscard]] std::span<const DeviceProfile> device_profiles();
/// By name; null: there is none.
[[nodiscard]] const DeviceProfile* find_device_profile(std::string_view name);

}  // namespace remora::test
