#include "transport/rdma/client_isolation.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <remora/mutex.h>
#include <remora/verbs/verbs.h>

#include "base/log.h"

namespace remora::transport::rdma {

namespace {

using config::RdmaProtection;

constexpr std::chrono::seconds kProbeTimeHardware{2};
constexpr std::chrono::seconds kProbeTimeSoftware{10};

/// The findings about devices, which do not change while this process lives.
WindowFindings findings_of(const verbs::Device& device) {
  struct Known {
    remora::detail::Mutex mutex;
    std::map<std::string, WindowFindings> findings REMORA_GUARDED_BY(mutex);
  };
  static remora::detail::PerProcess<Known> all;
  Known& known = all.get();
  const std::string name{device.name()};
  const remora::detail::MutexLock lock{known.mutex};
  if (const auto found = known.findings.find(name); found != known.findings.end())
    return found->second;
  const auto began = std::chrono::steady_clock::now();
  WindowFindings findings = probe_windows(
      device, verbs::deadline_in(device.is_software() ? kProbeTimeSoftware : kProbeTimeHardware));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  log::debug("rdma: asking {} about its windows took {:.0f} ms", name, took.count());
  if (findings.conclusive()) known.findings.emplace(name, findings);
  return findings;
}

}  // namespace

Result<DeviceProtection> protection_of(std::string device, RdmaProtection wanted,
                                       const WindowFindings& findings) {
  DeviceProtection made{.device = std::move(device), .mechanism = std::string{kRegistrations}};
  if (wanted == RdmaProtection::kRegistrations) {
    made.reason = "as configured";
    return made;
  }
  for (const WindowCheck* check : findings.checks())
    made.checks.push_back(
        {std::string{check->name}, std::string{to_string(check->verdict)}, check->reason});
  const std::string holes = "windows do not keep clients apart here: " + findings.text();
  switch (wanted) {
    case RdmaProtection::kWindows: {
      if (const WindowCheck* const failed = findings.first_not_kept()) {
        log::warn({"device.isolation_holes", "device reason"}, "rdma: {}: {}", made.device, holes);
        return Error{Code::kUnsupported, "windows that keep clients apart"}.with_subject(
            std::string{kProtectionKey} + " on " + made.device + ": " + std::string{failed->name} +
            " " + std::string{to_string(failed->verdict)} + ": write auto");
      }
      made.mechanism = kWindows;
      made.reason = "as configured";
      break;
    }
    case RdmaProtection::kWindowsUnchecked:
      made.mechanism = kWindows;
      made.reason = "as configured, unchecked: " +
                    (findings.all_kept() ? std::string{"they keep clients apart"} : holes);
      break;
    case RdmaProtection::kAuto:
    case RdmaProtection::kRegistrations:
      if (findings.all_kept()) made.mechanism = kWindows;
      made.reason = findings.all_kept() ? "windows keep clients apart here" : holes;
      made.worth_a_warning = !findings.conclusive() && !findings.no_windows;
      break;
  }
  return made;
}

Result<std::vector<DeviceProtection>> choose_protection(RdmaProtection wanted,
                                                        const std::vector<verbs::Device>& devices) {
  std::vector<DeviceProtection> made;
  for (const verbs::Device& device : devices) {
    WindowFindings findings;
    if (wanted != RdmaProtection::kRegistrations) findings = findings_of(device);
    auto chosen = protection_of(std::string{device.name()}, wanted, findings);
    if (!chosen) return chosen.error();
    made.push_back(std::move(*chosen));
  }
  return made;
}

void log_protection(RdmaProtection wanted, const DeviceProtection& chosen) {
  if (chosen.worth_a_warning)
    log::warn({"device.protection", "device protection reason"}, "rdma: grants on {} are {}: {}",
              chosen.device, chosen.mechanism, chosen.reason);
  else
    log::info({"device.protection", "device protection reason"}, "rdma: grants on {} are {}: {}",
              chosen.device, chosen.mechanism, chosen.reason);
  if (wanted == RdmaProtection::kWindowsUnchecked)
    log::warn(
        {"device.unprotected", "- device"},
        "rdma: {} is windows-unchecked: on {} nothing makes sure that clients cannot reach what is "
        "another's. For tests alone.",
        kProtectionKey, chosen.device);
}

}  // namespace remora::transport::rdma
