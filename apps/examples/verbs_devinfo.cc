// verbs_devinfo: every RDMA device of this host, its ports and its GIDs, and which GID a queue pair
// would use and why.
#include <iostream>

#include <remora/verbs/verbs.h>

namespace verbs = remora::verbs;
using remora::Status;

namespace {

Status show(const verbs::DeviceEntry& entry) {
  std::cout << entry << '\n';
  const auto device = entry.open();
  if (!device) return device.error();
  std::cout << device->attributes();
  if (const auto extended = device->query_extended()) std::cout << *extended;
  for (std::uint8_t number = 1; number <= device->attributes().port_count; ++number) {
    const auto port = device->query_port(number);
    if (!port) return port.error();
    std::cout << "port " << +number << ": " << *port << '\n';
    const auto choice = device->choose_gid({.port = number});
    if (!choice) return choice.error();
    std::cout << *choice;
    if (const auto taken = choice->taken())
      std::cout << "a queue pair would use gid " << taken->index << " of "
                << taken->interface_name() << '\n';
  }
  return {};
}

}  // namespace

int main() {
  const auto list = verbs::devices();
  if (!list) {
    std::cerr << list.error() << '\n';
    return 1;
  }
  for (const verbs::DeviceEntry& entry : *list) {
    if (const Status shown = show(entry); !shown) {
      std::cerr << shown.error() << '\n';
      return 1;
    }
  }
}
