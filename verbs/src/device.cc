#include <algorithm>
#include <cerrno>
#include <cstring>
#include <endian.h>
#include <limits>
#include <string>
#include <utility>

#include <remora/mutex.h>
#include <remora/verbs/completion_queue.h>
#include <remora/verbs/device.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/teardown.h>

#include "device_state.h"
#include "errors.h"
#include "net_namespace.h"

namespace remora::verbs {
namespace {

std::uint32_t count_of(int value) noexcept { return value < 0 ? 0U : static_cast<unsigned>(value); }

std::uint8_t depth_of(int value) noexcept {
  // The connection manager carries depths in 8 bits.
  return static_cast<std::uint8_t>(std::clamp(value, 0, 255));
}

DeviceAttributes convert(const ibv_device_attr& raw) noexcept {
  DeviceAttributes attributes;
  attributes.max_mr_bytes = raw.max_mr_size;
  attributes.max_mr_count = count_of(raw.max_mr);
  attributes.max_qp_count = count_of(raw.max_qp);
  attributes.max_qp_wr = count_of(raw.max_qp_wr);
  attributes.max_sge = count_of(raw.max_sge);
  attributes.max_cq_count = count_of(raw.max_cq);
  attributes.max_cqe = count_of(raw.max_cqe);
  attributes.max_pd_count = count_of(raw.max_pd);
  attributes.max_mw_count = count_of(raw.max_mw);
  attributes.max_srq_count = count_of(raw.max_srq);
  attributes.max_srq_wr = count_of(raw.max_srq_wr);
  attributes.max_srq_sge = count_of(raw.max_srq_sge);
  attributes.max_ah_count = count_of(raw.max_ah);
  attributes.max_pkeys = raw.max_pkeys;
  attributes.max_responder_depth = depth_of(raw.max_qp_rd_atom);
  attributes.max_initiator_depth = depth_of(raw.max_qp_init_rd_atom);
  if (raw.atomic_cap == IBV_ATOMIC_HCA) attributes.atomics = AtomicSupport::kDevice;
  if (raw.atomic_cap == IBV_ATOMIC_GLOB) attributes.atomics = AtomicSupport::kGlobal;
  attributes.port_count = raw.phys_port_cnt;
  attributes.memory_window_type_2 =
      (raw.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
  attributes.vendor_id = raw.vendor_id;
  attributes.vendor_part_id = raw.vendor_part_id;
  attributes.hardware_version = raw.hw_ver;
  attributes.node_guid = Guid{be64toh(raw.node_guid)};
  attributes.system_guid = Guid{be64toh(raw.sys_image_guid)};
  static_assert(sizeof(raw.fw_ver) == sizeof(attributes.firmware));
  std::memcpy(attributes.firmware.data(), raw.fw_ver, attributes.firmware.size() - 1);
  return attributes;
}

Status fill(detail::DeviceState& state) {
  ibv_device_attr raw{};
  const int result = state.provider->query_device(state.context, &raw);
  if (result != 0) return detail::provider_error("ibv_query_device", detail::errno_of(result));
  state.attributes = convert(raw);
  state.software = state.provider->is_software_device(state.context->device);
  return {};
}

// Borrowed contexts for which handles exist.
struct BorrowedDevices {
  remora::detail::Mutex mutex;
  std::vector<std::weak_ptr<const detail::DeviceState>> states REMORA_GUARDED_BY(mutex);
};
BorrowedDevices& borrowed_devices() {
  static remora::detail::PerProcess<BorrowedDevices> devices;
  return devices.get();
}

LinkLayer link_layer_of(std::uint8_t raw) noexcept {
  if (raw == IBV_LINK_LAYER_INFINIBAND) return LinkLayer::kInfiniBand;
  if (raw == IBV_LINK_LAYER_ETHERNET) return LinkLayer::kEthernet;
  return LinkLayer::kUnspecified;
}

GidType gid_type_of(std::uint32_t raw) noexcept {
  switch (raw) {
    case IBV_GID_TYPE_IB: return GidType::kInfiniBand;
    case IBV_GID_TYPE_ROCE_V1: return GidType::kRoceV1;
    case IBV_GID_TYPE_ROCE_V2: return GidType::kRoceV2;
    default: return GidType::kUnknown;
  }
}

GidEntry entry_of(const ibv_gid_entry& row) noexcept {
  return {Gid::from(row.gid), gid_type_of(row.gid_type), static_cast<std::uint8_t>(row.port_num),
          row.gid_index, row.ndev_ifindex};
}

TransportType transport_of(const ibv_device& device) noexcept {
  switch (device.transport_type) {
    case IBV_TRANSPORT_IB: return TransportType::kInfiniBand;
    case IBV_TRANSPORT_IWARP: return TransportType::kIwarp;
    case IBV_TRANSPORT_USNIC:
    case IBV_TRANSPORT_USNIC_UDP: return TransportType::kUsnic;
    default: return TransportType::kOther;
  }
}

// Source: InfiniBand Architecture Specification 1.4, PortInfo, LinkWidthActive and LinkSpeedActive.
std::uint8_t lanes_of(std::uint8_t width) noexcept {
  switch (width) {
    case 1: return 1;
    case 2: return 4;
    case 4: return 8;
    case 8: return 12;
    case 16: return 2;
    default: return 0;
  }
}

// The nominal rate, as ibv_devinfo prints it.
double lane_gigabits_of(std::uint8_t speed) noexcept {
  switch (speed) {
    case 1: return 2.5;
    case 2: return 5.0;
    case 4:
    case 8: return 10.0;
    case 16: return 14.0;
    case 32: return 25.0;
    case 64: return 50.0;
    case 128: return 100.0;
    default: return 0.0;
  }
}

}  // namespace

namespace detail {

DeviceState::~DeviceState() {
  if (!owned) return;
  const int result = provider->close_device(context);
  if (result != 0) report_teardown_failure(provider_error("ibv_close_device", errno_of(result)));
}

}  // namespace detail

Result<Device> Device::borrow(ibv_context* context, const Provider& provider) {
  if (context == nullptr) return Error{Code::kInvalidArgument, "Device::borrow"};
  BorrowedDevices& known = borrowed_devices();
  const remora::detail::MutexLock lock{known.mutex};
  std::erase_if(known.states, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : known.states) {
    auto state = weak.lock();
    if (state == nullptr || state->provider.table() != &provider) continue;
    const bool same = state->context == context;
    // librdmacm may open an existing device again: see cm_device.h.
    if (!same && (state->context->device != context->device || state->is_gone())) continue;
    if (!same && !state->of_cm->replaced()) detail::CmDevice::look_for_replaced(provider);
    return Device{std::move(state)};
  }
  auto state = std::make_shared<detail::DeviceState>(provider, context, false);
  if (const Status filled = fill(*state); !filled) return filled.error();
  auto of_cm = detail::CmDevice::of(provider, context);
  if (!of_cm) return of_cm.error();
  state->of_cm = std::move(*of_cm);
  state->gone.store(state->of_cm == nullptr, std::memory_order_release);
  known.states.push_back(state);
  return Device{std::move(state)};
}

std::string_view Device::name() const noexcept { return state_->context->device->name; }
const DeviceAttributes& Device::attributes() const noexcept { return state_->attributes; }
bool Device::is_software() const noexcept { return state_->software; }
std::uint32_t Device::completion_vector_count() const noexcept {
  return count_of(state_->context->num_comp_vectors);
}
bool Device::is_iwarp() const noexcept { return transport() == TransportType::kIwarp; }
TransportType Device::transport() const noexcept { return transport_of(*state_->context->device); }
ibv_context* Device::raw() const noexcept { return state_->context; }
const Provider& Device::provider() const noexcept { return *state_->provider; }
bool Device::gone() const noexcept { return state_->is_gone(); }
void Device::mark_gone() const noexcept {
  state_->gone.store(true, std::memory_order_release);
  if (state_->of_cm != nullptr) state_->of_cm->mark_gone();
}
std::weak_ptr<const void> Device::observe() const noexcept { return state_->open; }
bool Device::foreign() const noexcept { return state_->provider.foreign(); }

Status Device::check_port(std::uint8_t port, Operation operation) const {
  const std::uint8_t count = state_->attributes.port_count;
  if (port >= 1 && port <= count) return {};
  return Error{Code::kInvalidArgument, operation}
      .with_subject("port of " + std::string{name()})
      .with_limit(port, count);
}

Result<ExtendedDeviceAttributes> Device::query_extended() const {
  ibv_device_attr_ex raw{};
  const int result = state_->provider->query_device_ex(state_->context, &raw);
  if (result != 0)
    return detail::provider_error("ibv_query_device_ex", detail::errno_of(result))
        .with_subject(name());
  ExtendedDeviceAttributes attributes;
  attributes.on_demand_paging = (raw.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  attributes.on_demand_paging_implicit =
      (raw.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0;
  attributes.completion_timestamp_mask = raw.completion_timestamp_mask;
  attributes.clock_khz = raw.hca_core_clock;
  attributes.max_device_memory_bytes = raw.max_dm_size;
  attributes.max_tso_bytes = raw.tso_caps.max_tso;
  attributes.max_cq_moderation_count = raw.cq_mod_caps.max_cq_count;
  attributes.max_cq_moderation_period_us = raw.cq_mod_caps.max_cq_period;
  attributes.port_count =
      raw.phys_port_cnt_ex != 0 ? raw.phys_port_cnt_ex : raw.orig_attr.phys_port_cnt;
  return attributes;
}

Result<std::uint64_t> Device::query_clock() const {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  const int result = state_->provider->query_rt_values_ex(state_->context, &values);
  if (result != 0)
    return detail::provider_error("ibv_query_rt_values_ex", detail::errno_of(result))
        .with_subject(name());
  // mlx5 and others keep the cycles in the nanoseconds' member.
  return static_cast<std::uint64_t>(values.raw_clock.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
}

Result<PortAttributes> Device::query_port(std::uint8_t port) const {
  if (const Status checked = check_port(port, "ibv_query_port"); !checked) return checked.error();
  ibv_port_attr raw{};
  const int result = state_->provider->query_port(state_->context, port, &raw);
  if (result != 0)
    return detail::provider_error("ibv_query_port", detail::errno_of(result)).with_subject(name());
  PortAttributes attributes;
  attributes.state = static_cast<PortState>(raw.state);
  attributes.link_layer = link_layer_of(raw.link_layer);
  attributes.active_mtu = raw.active_mtu;
  attributes.max_mtu = raw.max_mtu;
  attributes.max_message_bytes = raw.max_msg_sz;
  attributes.gid_table_length = count_of(raw.gid_tbl_len);
  attributes.lid = raw.lid;
  attributes.subnet_manager_lid = raw.sm_lid;
  attributes.subnet_manager_sl = raw.sm_sl;
  attributes.pkey_table_length = raw.pkey_tbl_len;
  attributes.global_route_required = (raw.flags & IBV_QPF_GRH_REQUIRED) != 0;
  attributes.physical_state = static_cast<PhysicalState>(raw.phys_state);
  attributes.width = lanes_of(raw.active_width);
  attributes.lane_gigabits_per_s = lane_gigabits_of(raw.active_speed);
  return attributes;
}

Result<GidEntry> Device::query_gid(std::uint8_t port, std::uint32_t index) const {
  constexpr Operation kOperation = "ibv_query_gid_ex";
  if (const Status checked = check_port(port, kOperation); !checked) return checked.error();
  ibv_gid_entry raw{};
  const int result = state_->provider->query_gid_ex(state_->context, port, index, &raw);
  if (result != 0) {
    const int number = detail::errno_of(result);
    const Error error = number == ENODATA || number == EINVAL || number == ENOENT
                            ? Error{Code::kNotFound, kOperation}.with_errno(number)
                            : detail::provider_error(kOperation, number);
    return error.with_subject("gid index " + std::to_string(index));
  }
  return entry_of(raw);
}

Result<std::uint16_t> Device::query_pkey(std::uint8_t port, std::uint16_t index) const {
  constexpr Operation kOperation = "ibv_query_pkey";
  const auto attributes = query_port(port);
  if (!attributes) return attributes.error();
  if (index >= attributes->pkey_table_length)
    return Error{Code::kInvalidArgument, kOperation}
        .with_subject("pkey index")
        .with_limit(index, attributes->pkey_table_length);
  __be16 raw = 0;
  errno = 0;
  const int result = state_->provider->query_pkey(state_->context, port, index, &raw);
  if (result != 0)
    return detail::provider_error(kOperation, detail::errno_of(result)).with_subject(name());
  return be16toh(raw);
}

Result<std::vector<GidEntry>> Device::query_gids() const {
  std::size_t capacity = 0;
  for (std::uint8_t port = 1; port <= state_->attributes.port_count; ++port) {
    const auto attributes = query_port(port);
    if (!attributes) return attributes.error();
    capacity += attributes->gid_table_length;
  }
  std::vector<ibv_gid_entry> raw(capacity);
  const ssize_t count = state_->provider->query_gid_table(state_->context, raw.data(), raw.size());
  if (count < 0)
    return detail::provider_error("ibv_query_gid_table", static_cast<int>(-count))
        .with_subject(name());
  std::vector<GidEntry> entries;
  entries.reserve(static_cast<std::size_t>(count));
  for (const ibv_gid_entry& row : std::span{raw}.first(static_cast<std::size_t>(count)))
    entries.push_back(entry_of(row));
  return entries;
}

Result<GidChoice> Device::choose_gid(const GidPolicy& policy) const {
  const auto table = query_gids();
  if (!table) return table.error();
  return verbs::choose_gid(*table, policy);
}

Result<ProtectionDomain> Device::allocate_domain() const {
  return ProtectionDomain::allocate(*this);
}
Result<CompletionChannel> Device::create_completion_channel() const {
  return CompletionChannel::create(*this);
}
Result<CompletionQueue> Device::create_completion_queue(
    const CompletionQueueOptions& options) const {
  return CompletionQueue::create(*this, options);
}

Guid DeviceEntry::guid() const noexcept {
  return Guid{be64toh(provider_->get_device_guid(device_))};
}
NodeType DeviceEntry::node_type() const noexcept {
  switch (device_->node_type) {
    case IBV_NODE_CA: return NodeType::kChannelAdapter;
    case IBV_NODE_SWITCH: return NodeType::kSwitch;
    case IBV_NODE_ROUTER: return NodeType::kRouter;
    case IBV_NODE_RNIC: return NodeType::kIwarp;
    case IBV_NODE_USNIC:
    case IBV_NODE_USNIC_UDP: return NodeType::kUsnic;
    default: return NodeType::kOther;
  }
}
TransportType DeviceEntry::transport() const noexcept { return transport_of(*device_); }
int DeviceEntry::index() const noexcept { return provider_->get_device_index(device_); }
bool DeviceEntry::is_software() const noexcept { return provider_->is_software_device(device_); }

Result<Device> DeviceEntry::open() const {
  errno = 0;
  ibv_context* const context = provider_->open_device(device_);
  if (context == nullptr)
    return detail::provider_error("ibv_open_device", errno).with_subject(name());
  auto state = std::make_shared<detail::DeviceState>(*provider_, context, true);
  if (const Status filled = fill(*state); !filled) return filled.error();
  return Device{std::move(state)};
}

Result<DeviceEntry> DeviceList::find(std::string_view name) const {
  for (const DeviceEntry& entry : entries_)
    if (entry.name() == name) return entry;
  return Error{Code::kNotFound, "DeviceList::find"}.with_subject(name);
}

Result<DeviceList> devices(const Provider& provider) {
  errno = 0;
  int count = 0;
  ibv_device** const raw = provider.get_device_list(&count);
  if (raw == nullptr) {
    // Without kernel support the result is an empty list.
    if (errno == 0 || errno == ENOSYS || errno == ENOENT || errno == ENODEV)
      return detail::no_device(provider, "ibv_get_device_list");
    return detail::provider_error("ibv_get_device_list", errno);
  }
  const std::shared_ptr<ibv_device*> list{
      raw, [table = &provider](ibv_device** devices) { table->free_device_list(devices); }};
  if (count == 0) return detail::no_device(provider, "ibv_get_device_list");
  std::vector<DeviceEntry> entries;
  entries.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) entries.push_back(DeviceEntry{list, raw[i], provider});
  return DeviceList{std::move(entries)};
}

void look_for_gone_devices(const Provider& provider) { detail::CmDevice::look(provider); }

Result<std::vector<Device>> connection_manager_devices(const Provider& provider) {
  errno = 0;
  int count = 0;
  ibv_context** const raw = provider.get_cm_devices(&count);
  if (raw == nullptr || count == 0) {
    const int number = errno;
    if (raw != nullptr) provider.free_cm_devices(raw);
    if (raw != nullptr || number == 0 || number == ENODEV || number == ENOENT)
      return detail::no_device(provider, "rdma_get_devices");
    return detail::provider_error("rdma_get_devices", number);
  }
  // The contexts stay open after the list is freed: librdmacm keeps them until it is unloaded.
  std::vector<Device> opened;
  Status failed;
  for (int i = 0; i < count && failed; ++i) {
    auto device = Device::borrow(raw[i], provider);
    if (device)
      opened.push_back(std::move(*device));
    else
      failed = device.error();
  }
  provider.free_cm_devices(raw);
  if (!failed) return failed.error();
  return opened;
}

}  // namespace remora::verbs
