#include "host_check.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <netinet/in.h>
#include <unistd.h>

namespace remora::metrics {
namespace {

// The form in which names are compared: lower case, without a final dot.
std::string plain(std::string_view name) {
  if (name.ends_with('.')) name.remove_suffix(1);
  std::string made{name};
  std::transform(made.begin(), made.end(), made.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

std::string name_of_machine() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return plain(name.data());
}

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

bool is_address(const std::string& host) {
  in6_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) == 1) return true;
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return false;
  const std::string inside = host.substr(1, host.size() - 2);
  // A zone is no part of the address: "[fe80::1%25eth0]".
  return ::inet_pton(AF_INET6, inside.substr(0, inside.find('%')).c_str(), &address) == 1;
}

}  // namespace

HostCheck::HostCheck(const std::vector<std::string>& allowed) : machine_{name_of_machine()} {
  names_ = {"localhost"};
  if (!machine_.empty()) {
    names_.push_back(machine_);
    names_.push_back(machine_.substr(0, machine_.find('.')));
  }
  for (const std::string& name : allowed) {
    any_ = any_ || name == "*";
    names_.push_back(plain(name));
  }
}

bool HostCheck::allows(std::string_view host) const {
  if (any_ || host.empty()) return true;
  const std::string name = plain(without_port(host));
  return is_address(name) || std::find(names_.begin(), names_.end(), name) != names_.end();
}

}  // namespace remora::metrics
