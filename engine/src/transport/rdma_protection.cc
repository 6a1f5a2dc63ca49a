#include "transport/rdma_protection.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include <remora/verbs/verbs.h>

#include "support/log.h"

namespace remora::transport::rdma {

namespace {

using config::RdmaProtection;

constexpr std::chrono::seconds kProbeTimeHardware{2};
constexpr std::chrono::seconds kProbeTimeSoftware{10};

/// What devices have answered: they do not change while this process lives.
WindowFindings findings_of(const verbs::Device& device) {
  static std::mutex mutex;
  static std::map<std::string, WindowFindings> known;
  const std::string name{device.name()};
  const std::lock_guard lock{mutex};
  if (const auto found = known.find(name); found != known.end()) return found->second;
  const auto began = std::chrono::steady_clock::now();
  WindowFindings findings = probe_windows(
      device, verbs::deadline_in(device.is_software() ? kProbeTimeSoftware : kProbeTimeHardware));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  log::debug("rdma: asking {} about its windows took {:.0f} ms", name, took.count());
  if (findings.conclusive()) known.emplace(name, findings);
  return findings;
}

WindowFindings nothing_found(const std::string& reason) {
  WindowFindings findings;
  for (WindowCheck* check :
       {&findings.range, &findings.rights, &findings.binding, &findings.invalidation})
    check->reason = reason;
  return findings;
}

}  // namespace

DeviceProtection protection_of(std::string device, RdmaProtection wanted,
                               const WindowFindings& findings) {
  DeviceProtection made{.device = std::move(device), .mechanism = "registrations"};
  if (wanted == RdmaProtection::kRegistrations) {
    made.reason = "as configured";
    return made;
  }
  for (const WindowCheck* check : findings.checks())
    made.checks.push_back(
        {std::string{check->name}, std::string{to_string(check->verdict)}, check->reason});
  made.reason = findings.all_kept() ? "windows would keep clients apart here, too"
                                    : "windows do not keep clients apart here: " + findings.text();
  return made;
}

std::vector<DeviceProtection> choose_protection(RdmaProtection wanted,
                                                const std::vector<std::string>& devices) {
  std::vector<DeviceProtection> made;
  // Those of the connection manager: connections will be on them.
  const auto open = wanted == RdmaProtection::kRegistrations
                        ? Result<std::vector<verbs::Device>>{std::vector<verbs::Device>{}}
                        : verbs::connection_manager_devices();
  for (const std::string& name : devices) {
    WindowFindings findings;
    if (!open) {
      findings = nothing_found(open.error().message());
    } else if (wanted != RdmaProtection::kRegistrations) {
      const auto found = std::find_if(open->begin(), open->end(),
                                      [&](const auto& device) { return device.name() == name; });
      findings = found == open->end() ? nothing_found("the connection manager does not know it")
                                      : findings_of(*found);
    }
    made.push_back(protection_of(name, wanted, findings));
    log::info("rdma: grants on {} are {}: {}", name, made.back().mechanism, made.back().reason);
  }
  return made;
}

}  // namespace remora::transport::rdma
