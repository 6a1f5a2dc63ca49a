// remora::verbs alone: lists the devices. A machine without one is an ordinary answer.
#include <iostream>

#include <remora/verbs/device.h>

int main() {
  const auto devices = remora::verbs::devices();
  if (!devices) {
    std::cout << "verbs: " << devices.error() << '\n';
    return 0;
  }
  for (const auto& device : *devices) std::cout << "verbs: " << device.name() << '\n';
}
