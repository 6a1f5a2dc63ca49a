#pragma once

/// Devices: the list, an open device, its attributes and ports.
///
/// `Device`, `ProtectionDomain`, `CompletionChannel` and `CompletionQueue` are parents, which their
/// children share: each is a small handle on a reference-counted object. Copies name the same
/// object; the last copy, or the last child made from it, closes it. A moved-from or
/// default-constructed handle is empty: only `empty()`, assignment and destruction may be used on
/// it.
///
/// Thread safety: distinct handles may be used from distinct threads, also when they name the same
/// device; every call here is safe concurrently.

#include <array>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/format.h>
#include <remora/verbs/gid.h>
#include <remora/verbs/guid.h>
#include <remora/verbs/provider.h>

namespace remora::verbs {

class CompletionChannel;
class CompletionQueue;
class DeviceList;
struct CompletionQueueOptions;
class ProtectionDomain;

/// How far the atomics of a device are atomic.
enum class AtomicSupport : std::uint8_t {
  kNone,    ///< the device has none
  kDevice,  ///< atomic among operations of this one device (ATOMIC_HCA)
  kGlobal,  ///< also atomic to the CPU and other devices (ATOMIC_GLOB)
};

/// The kinds of devices. Source: ibv_get_device_list(3), ibv_device::node_type.
enum class NodeType : std::uint8_t { kChannelAdapter, kSwitch, kRouter, kIwarp, kUsnic, kOther };
/// The family of a device; RoCE is kInfiniBand. Source: ibv_device::transport_type.
enum class TransportType : std::uint8_t { kInfiniBand, kIwarp, kUsnic, kOther };
/// The words of the kind, for messages.
[[nodiscard]] std::string_view to_string(AtomicSupport support) noexcept;
/// The words of the kind, for messages.
[[nodiscard]] std::string_view to_string(NodeType type) noexcept;
/// The words of the kind, for messages.
[[nodiscard]] std::string_view to_string(TransportType type) noexcept;

/// The limits of a device. Source: ibv_query_device(3).
struct DeviceAttributes {
  std::uint64_t max_mr_bytes = 0;  ///< of one registration
  std::uint32_t max_mr_count = 0;  ///< counts are of the whole device, over all processes
  std::uint32_t max_qp_count = 0;
  std::uint32_t max_qp_wr = 0;  ///< work requests in one queue
  std::uint32_t max_sge = 0;    ///< elements of one request's gather list
  std::uint32_t max_cq_count = 0;
  std::uint32_t max_cqe = 0;  ///< entries of one completion queue
  std::uint32_t max_pd_count = 0;
  std::uint32_t max_mw_count = 0;
  std::uint32_t max_srq_count = 0;  ///< 0: the device has no shared receive queues
  std::uint32_t max_srq_wr = 0;
  std::uint32_t max_srq_sge = 0;
  std::uint32_t max_ah_count = 0;
  std::uint32_t max_pkeys = 0;
  /// Reads and atomics that a queue pair may have in flight from the peer, and from this side.
  std::uint8_t max_responder_depth = 0;
  std::uint8_t max_initiator_depth = 0;
  AtomicSupport atomics = AtomicSupport::kNone;
  std::uint8_t port_count = 0;
  bool memory_window_type_2 = false;
  std::uint32_t vendor_id = 0;
  std::uint32_t vendor_part_id = 0;
  std::uint32_t hardware_version = 0;
  Guid node_guid;
  Guid system_guid;                 ///< shared by the parts of one system
  std::array<char, 64> firmware{};  ///< zero-terminated
};
/// Several lines, one for each property.
std::ostream& operator<<(std::ostream& out, const DeviceAttributes& attributes);

/// Attributes that newer devices have; zeros elsewhere. Source: ibv_query_device_ex(3).
struct ExtendedDeviceAttributes {
  bool on_demand_paging = false;
  bool on_demand_paging_implicit = false;       ///< for whole address spaces
  std::uint64_t completion_timestamp_mask = 0;  ///< valid bits of a timestamp; 0: there are none
  std::uint64_t clock_khz = 0;                  ///< of timestamps
  std::uint64_t max_device_memory_bytes = 0;
  std::uint32_t max_tso_bytes = 0;
  std::uint16_t max_cq_moderation_count = 0;
  std::uint16_t max_cq_moderation_period_us = 0;
  std::uint32_t port_count = 0;  ///< also beyond 255
};
/// Several lines, one for each property.
std::ostream& operator<<(std::ostream& out, const ExtendedDeviceAttributes& attributes);

/// The logical state of a port: only kActive carries data. Source: ibv_query_port(3).
enum class PortState : std::uint8_t { kNop, kDown, kInit, kArmed, kActive, kActiveDefer };
/// Whether a port is of InfiniBand or of Ethernet (RoCE, iWARP).
enum class LinkLayer : std::uint8_t { kUnspecified, kInfiniBand, kEthernet };
/// The state of the link below PortState. Source: ibv_query_port(3), phys_state.
enum class PhysicalState : std::uint8_t {
  kNoChange = 0,
  kSleep = 1,
  kPolling = 2,
  kDisabled = 3,
  kTraining = 4,
  kLinkUp = 5,
  kErrorRecovery = 6,
  kPhyTest = 7,
};
/// The state in words, for messages.
[[nodiscard]] std::string_view to_string(PortState state) noexcept;
/// The state in words, for messages.
[[nodiscard]] std::string_view to_string(PhysicalState state) noexcept;
/// "InfiniBand", "Ethernet" or "unspecified".
[[nodiscard]] std::string_view to_string(LinkLayer layer) noexcept;

/// A port at the time of the query. Source: ibv_query_port(3).
struct PortAttributes {
  PortState state = PortState::kNop;
  LinkLayer link_layer = LinkLayer::kUnspecified;
  ibv_mtu active_mtu = IBV_MTU_1024;
  ibv_mtu max_mtu = IBV_MTU_1024;
  std::uint32_t max_message_bytes = 0;
  std::uint32_t gid_table_length = 0;
  std::uint16_t lid = 0;
  std::uint16_t subnet_manager_lid = 0;
  std::uint8_t subnet_manager_sl = 0;
  std::uint16_t pkey_table_length = 0;
  bool global_route_required = false;  ///< paths need a global header even with LIDs
  PhysicalState physical_state = PhysicalState::kNoChange;
  std::uint8_t width = 0;            ///< lanes: 1, 2, 4, 8, 12; 0: unknown
  double lane_gigabits_per_s = 0.0;  ///< nominal; 0: unknown
  /// Of all lanes of the link; 0: unknown.
  [[nodiscard]] double gigabits_per_s() const noexcept { return width * lane_gigabits_per_s; }
  /// True: the port carries data.
  [[nodiscard]] bool active() const noexcept { return state == PortState::kActive; }
};

/// "active, Ethernet, 4x 25 = 100 Gb/s, MTU 1024 of 4096".
std::ostream& operator<<(std::ostream& out, const PortAttributes& port);

/// Bytes of a path MTU.
[[nodiscard]] constexpr std::uint32_t mtu_bytes(ibv_mtu mtu) noexcept {
  return 128U << static_cast<unsigned>(mtu);
}

namespace detail {
struct DeviceState;
}

/// An open device. Copyable handle: the context is closed with the last handle and the last object
/// made from it. Thread-safe.
class Device {
 public:
  /// An empty handle.
  Device() noexcept = default;

  /// Takes a context that another library opened and will close (librdmacm does for its ids). The
  /// same context gives the same Device as long as one of its handles lives, so connections over
  /// one device can share a protection domain. Another context of the same device, if the device
  /// has not gone, also gives that Device, and raw() stays the first context. Errors:
  /// kInvalidArgument (null); kProvider (ibv_query_device, errno kept).
  [[nodiscard]] static Result<Device> borrow(ibv_context* context,
                                             const Provider& provider = Provider::system());

  /// True: made empty or moved from.
  [[nodiscard]] bool empty() const noexcept { return state_ == nullptr; }
  /// The kernel's name, such as "mlx5_0"; valid as long as a copy of this handle.
  [[nodiscard]] std::string_view name() const noexcept;
  /// Read once, when the device was opened.
  [[nodiscard]] const DeviceAttributes& attributes() const noexcept;
  /// Whether the kernel implements the device (rxe, siw) instead of a NIC.
  [[nodiscard]] bool is_software() const noexcept;
  /// The number of interrupt vectors: the limit of CompletionQueueOptions::vector.
  [[nodiscard]] std::uint32_t completion_vector_count() const noexcept;
  /// iWARP, rather than InfiniBand or RoCE.
  [[nodiscard]] bool is_iwarp() const noexcept;
  /// The family of the device. Does not ask it.
  [[nodiscard]] TransportType transport() const noexcept;
  /// Asks the driver. Errors: kUnsupported; kProvider (errno kept).
  [[nodiscard]] Result<ExtendedDeviceAttributes> query_extended() const;
  /// The device's clock, in the units of completion timestamps.
  /// Errors: kUnsupported; kProvider (errno kept). Source: ibv_query_rt_values_ex(3).
  [[nodiscard]] Result<std::uint64_t> query_clock() const;

  /// Asks the kernel. `port` counts from 1.
  /// Errors: kInvalidArgument (no such port; asked() and allowed()); kProvider (errno kept).
  [[nodiscard]] Result<PortAttributes> query_port(std::uint8_t port) const;

  /// Every row of the GID table, over all ports. Allocates.
  /// Errors: kProvider (errno kept).
  [[nodiscard]] Result<std::vector<GidEntry>> query_gids() const;

  /// One row. Errors: kInvalidArgument (no such port); kNotFound (an empty row, or an index beyond
  /// the table); kProvider (errno kept). Source: ibv_query_gid_ex(3).
  [[nodiscard]] Result<GidEntry> query_gid(std::uint8_t port, std::uint32_t index) const;
  /// A row of the partition table, host byte order. Errors: kInvalidArgument (no such port, beyond
  /// the table); kProvider (errno kept). Source: ibv_query_pkey(3).
  [[nodiscard]] Result<std::uint16_t> query_pkey(std::uint8_t port, std::uint16_t index) const;

  /// query_gids() and choose_gid(). Errors: kProvider (errno kept).
  [[nodiscard]] Result<GidChoice> choose_gid(const GidPolicy& policy = {}) const;

  /// A new protection domain, which keeps the device open. Errors: kProvider (errno kept);
  /// kOutOfMemory.
  [[nodiscard]] Result<ProtectionDomain> allocate_domain() const;
  /// See completion_queue.h, which must be included to call these two.
  [[nodiscard]] Result<CompletionChannel> create_completion_channel() const;
  /// A queue of `options.depth` entries or more, which keeps the device open. Errors: as
  /// CompletionQueue::create().
  [[nodiscard]] Result<CompletionQueue> create_completion_queue(
      const CompletionQueueOptions& options) const;

  /// Borrowed; never close it.
  [[nodiscard]] ibv_context* raw() const noexcept;
  /// The table of calls that all objects of this device use.
  [[nodiscard]] const Provider& provider() const noexcept;
  /// Whether a parent process has opened it, before fork(2): see fork.h.
  [[nodiscard]] bool foreign() const noexcept;
  /// Whether the host no longer has the device, or it has failed for good, as reported by an
  /// asynchronous event, an event of a connection or look_for_gone_devices(). The owner must
  /// destroy its objects: with the last object and handle its context is closed, for which a
  /// driver's removal may wait.
  [[nodiscard]] bool gone() const noexcept;
  /// Marks the device as gone, for a caller that has learned of it in another way.
  void mark_gone() const noexcept;

  /// Expires after the last handle and the last object made from it, once the context is closed.
  /// Keeps nothing open.
  [[nodiscard]] std::weak_ptr<const void> observe() const noexcept;

  /// Whether both have the same open context.
  friend bool operator==(const Device& a, const Device& b) noexcept { return a.state_ == b.state_; }

 private:
  friend class DeviceEntry;
  [[nodiscard]] Status check_port(std::uint8_t port, Operation operation) const;
  explicit Device(std::shared_ptr<const detail::DeviceState> state) noexcept
      : state_{std::move(state)} {}
  std::shared_ptr<const detail::DeviceState> state_;
};
/// Its name; "no device".
std::ostream& operator<<(std::ostream& out, const Device& device);

/// A device that exists and is not opened yet. Keeps the list that contains it.
class DeviceEntry {
 public:
  /// The kernel's name, such as "mlx5_0"; valid as long as this entry.
  [[nodiscard]] std::string_view name() const noexcept { return device_->name; }
  /// The device's GUID. Does not open it.
  [[nodiscard]] Guid guid() const noexcept;
  /// The kind of the device. Does not open it.
  [[nodiscard]] NodeType node_type() const noexcept;
  /// The family of the device. Does not open it.
  [[nodiscard]] TransportType transport() const noexcept;
  /// The kernel's index, stable while the device exists; -1 if the kernel has none.
  [[nodiscard]] int index() const noexcept;
  /// As Device::is_software().
  [[nodiscard]] bool is_software() const noexcept;

  /// Opens it. Each call gives a context of its own.
  /// Errors: kPermissionDenied (EACCES, EPERM on /dev/infiniband); kProvider (errno kept).
  [[nodiscard]] Result<Device> open() const;

  /// Borrowed.
  [[nodiscard]] ibv_device* raw() const noexcept { return device_; }

 private:
  friend Result<DeviceList> devices(const Provider& provider);
  DeviceEntry(std::shared_ptr<ibv_device*> list, ibv_device* device,
              const Provider& provider) noexcept
      : list_{std::move(list)}, device_{device}, provider_{&provider} {}
  std::shared_ptr<ibv_device*> list_;
  ibv_device* device_;
  const Provider* provider_;
};

/// "rxe0 (index 0, guid 5054:00ff:fe12:3456, InfiniBand)".
std::ostream& operator<<(std::ostream& out, const DeviceEntry& entry);

/// The devices of this host at the time of the call; at least one.
class DeviceList {
 public:
  /// Number of devices: 1 or more.
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  /// The entries; valid as long as this list.
  [[nodiscard]] auto begin() const noexcept { return entries_.begin(); }
  /// Behind the last entry.
  [[nodiscard]] auto end() const noexcept { return entries_.end(); }
  /// `index` below size(); not checked.
  [[nodiscard]] const DeviceEntry& operator[](std::size_t index) const noexcept {
    return entries_[index];
  }
  /// Errors: kNotFound with the name as subject.
  [[nodiscard]] Result<DeviceEntry> find(std::string_view name) const;

 private:
  friend Result<DeviceList> devices(const Provider& provider);
  explicit DeviceList(std::vector<DeviceEntry> entries) noexcept : entries_{std::move(entries)} {}
  std::vector<DeviceEntry> entries_;
};

/// Lists the devices. A host without devices gives an error that says what to do. Errors: kNotFound
/// (no device, or no kernel support); kPermissionDenied; kProvider (errno kept).
[[nodiscard]] Result<DeviceList> devices(const Provider& provider = Provider::system());

/// Marks devices of the connection manager that the host no longer has (Device::gone()), and makes
/// the connection manager close those that no object uses. Reads the kernel's list. Call it about
/// once a second: a device without a connection may go without an event.
void look_for_gone_devices(const Provider& provider = Provider::system());

/// The devices as the connection manager has opened them: a listener's connections will use them,
/// so memory can be registered before the first connection arrives. Errors: kNotFound (none);
/// kProvider (errno kept).
[[nodiscard]] Result<std::vector<Device>> connection_manager_devices(
    const Provider& provider = Provider::system());

}  // namespace remora::verbs
