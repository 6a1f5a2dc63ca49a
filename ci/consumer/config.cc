// remora::config alone: reads a configuration from text.
#include <iostream>

#include <remora/config/load.h>

int main() {
  const auto config = remora::config::parse_server("pool:\n  size: 64MiB\n", "consumer.yaml");
  if (!config) {
    std::cerr << "config: refused\n";
    return 1;
  }
  std::cout << "config: a pool of " << config->pool.size_bytes << " bytes\n";
}
