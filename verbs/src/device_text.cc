#include <array>
#include <cstdio>

#include <remora/verbs/device.h>

namespace remora::verbs {

std::string Guid::to_string() const {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%04x:%04x:%04x:%04x",
                static_cast<unsigned>(value >> 48 & 0xffff),
                static_cast<unsigned>(value >> 32 & 0xffff),
                static_cast<unsigned>(value >> 16 & 0xffff), static_cast<unsigned>(value & 0xffff));
  return text.data();
}
std::ostream& operator<<(std::ostream& out, const Guid& guid) { return out << guid.to_string(); }

std::string_view to_string(AtomicSupport support) noexcept {
  switch (support) {
    case AtomicSupport::kNone: return "none";
    case AtomicSupport::kDevice: return "device";
    case AtomicSupport::kGlobal: return "global";
  }
  return "unknown";
}

std::string_view to_string(NodeType type) noexcept {
  switch (type) {
    case NodeType::kChannelAdapter: return "channel adapter";
    case NodeType::kSwitch: return "switch";
    case NodeType::kRouter: return "router";
    case NodeType::kIwarp: return "iWARP";
    case NodeType::kUsnic: return "usNIC";
    case NodeType::kOther: break;
  }
  return "other";
}

std::string_view to_string(TransportType type) noexcept {
  switch (type) {
    case TransportType::kInfiniBand: return "InfiniBand";
    case TransportType::kIwarp: return "iWARP";
    case TransportType::kUsnic: return "usNIC";
    case TransportType::kOther: break;
  }
  return "other";
}

std::string_view to_string(PortState state) noexcept {
  switch (state) {
    case PortState::kNop: return "nop";
    case PortState::kDown: return "down";
    case PortState::kInit: return "init";
    case PortState::kArmed: return "armed";
    case PortState::kActive: return "active";
    case PortState::kActiveDefer: return "active-defer";
  }
  return "unknown";
}

std::string_view to_string(PhysicalState state) noexcept {
  switch (state) {
    case PhysicalState::kNoChange: return "no change";
    case PhysicalState::kSleep: return "sleep";
    case PhysicalState::kPolling: return "polling";
    case PhysicalState::kDisabled: return "disabled";
    case PhysicalState::kTraining: return "training";
    case PhysicalState::kLinkUp: return "link up";
    case PhysicalState::kErrorRecovery: return "error recovery";
    case PhysicalState::kPhyTest: return "phy test";
  }
  return "unknown";
}

std::string_view to_string(LinkLayer layer) noexcept {
  switch (layer) {
    case LinkLayer::kInfiniBand: return "InfiniBand";
    case LinkLayer::kEthernet: return "Ethernet";
    case LinkLayer::kUnspecified: break;
  }
  return "unspecified";
}

std::ostream& operator<<(std::ostream& out, const DeviceAttributes& attributes) {
  return out << "firmware " << attributes.firmware.data() << "\nnode guid " << attributes.node_guid
             << "\nsystem guid " << attributes.system_guid << "\nvendor " << attributes.vendor_id
             << " part " << attributes.vendor_part_id << " hardware " << attributes.hardware_version
             << "\nports " << +attributes.port_count << "\natomics "
             << to_string(attributes.atomics) << "\nregistrations " << attributes.max_mr_count
             << " of " << attributes.max_mr_bytes << " bytes\nqueue pairs "
             << attributes.max_qp_count << " of " << attributes.max_qp_wr << " requests, "
             << attributes.max_sge << " slices\ncompletion queues " << attributes.max_cq_count
             << " of " << attributes.max_cqe << " entries\nshared receive queues "
             << attributes.max_srq_count << " of " << attributes.max_srq_wr
             << " requests\nreads in flight " << +attributes.max_initiator_depth << " from us, "
             << +attributes.max_responder_depth << " towards us\nwindows of type 2 "
             << (attributes.memory_window_type_2 ? "yes" : "no") << '\n';
}

std::ostream& operator<<(std::ostream& out, const ExtendedDeviceAttributes& attributes) {
  return out << "on-demand paging " << (attributes.on_demand_paging ? "yes" : "no")
             << "\ntimestamp mask " << attributes.completion_timestamp_mask << " at "
             << attributes.clock_khz << " kHz\ndevice memory " << attributes.max_device_memory_bytes
             << " bytes\n";
}

std::ostream& operator<<(std::ostream& out, const PortAttributes& port) {
  return out << to_string(port.state) << ", " << to_string(port.link_layer) << ", " << +port.width
             << "x " << port.lane_gigabits_per_s << " = " << port.gigabits_per_s() << " Gb/s, MTU "
             << mtu_bytes(port.active_mtu) << " of " << mtu_bytes(port.max_mtu);
}

std::ostream& operator<<(std::ostream& out, const DeviceEntry& entry) {
  return out << entry.name() << " (index " << entry.index() << ", guid " << entry.guid() << ", "
             << to_string(entry.transport()) << ')';
}

}  // namespace remora::verbs
