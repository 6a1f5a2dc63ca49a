#include "base/placement.h"

#include <algorithm>
#include <cerrno>
#include <sched.h>
#include <sstream>
#include <system_error>
#include <utility>

#include <remora/system_file.h>

#include "base/log.h"

namespace remora::detail {

namespace {

/// Whether the machine has at most one memory node, by sysfs.
bool one_node() {
  const auto online = read_file("/sys/devices/system/node/online");
  return !online || online->find_first_of(",-") == std::string::npos;
}

}  // namespace

std::optional<unsigned> device_node(std::string_view device, const std::filesystem::path& root) {
  const auto node_of = [&](const std::filesystem::path& folder) -> std::optional<unsigned> {
    int node = -1;
    const std::filesystem::path file = folder / "device" / "numa_node";
    std::istringstream{read_file(file.c_str()).value_or("")} >> node;
    return node < 0 ? std::nullopt : std::optional{static_cast<unsigned>(node)};
  };
  if (!device.empty()) return node_of(root / device);
  std::error_code none;
  std::optional<unsigned> all;
  for (const auto& entry : std::filesystem::directory_iterator{root, none}) {
    const auto node = node_of(entry.path());
    if (!node || (all && *all != *node)) return std::nullopt;
    all = node;
  }
  return all;
}

Result<Placement> Placement::create(std::string_view text, std::string_view device) {
  if (text == "none" || (text == "auto" && one_node())) {
    log::debug("placement: {}: nothing is bound", text);
    return Placement{};
  }
  if (text != "auto")
    if (const auto processors = parse_processors(text); !processors) return processors.error();
  auto machine = Machine::here();
  if (!machine) return machine.error();
  auto shared = std::make_shared<const Machine>(std::move(*machine));
  auto chosen = choose(text, shared, device_node(device), shared->node_of_this_thread());
  if (chosen) log::debug("placement: {}: {}", text, chosen->to_string());
  return chosen;
}

Result<Placement> Placement::choose(std::string_view text, std::shared_ptr<const Machine> machine,
                                    std::optional<unsigned> device_node,
                                    std::optional<unsigned> thread_node) {
  Placement chosen;
  if (text == "none") return chosen;
  const bool nodes = machine->node_count() > 1;
  if (text == "auto") {
    if (!nodes) return chosen;
    chosen.memory_node_ = device_node;
    if (const auto node = device_node ? device_node : thread_node)
      chosen.processors_ = machine->processors_of(*node);
  } else {
    auto processors = parse_processors(text);
    if (!processors) return processors.error();
    const Processors& usable = machine->processors();
    for (const unsigned processor : *processors)
      if (!std::binary_search(usable.begin(), usable.end(), processor))
        return Error{Code::kInvalidArgument, "placement on a processor not there for this process"}
            .with_subject(std::to_string(processor) + ", of " + to_text(usable));
    if (nodes)
      chosen.memory_node_ = device_node ? device_node : machine->node_of(processors->front());
    chosen.processors_ = std::move(*processors);
  }
  chosen.machine_ = std::move(machine);
  return chosen;
}

bool Placement::bind_thread() const noexcept {
  if (machine_ == nullptr || processors_.empty()) return false;
  if (machine_->bind_thread(processors_)) return true;
  log::debug("placement: a thread could not be bound: errno {}", errno);
  return false;
}

ThreadBinding Placement::borrow_thread() const noexcept {
  ThreadBinding before;
  // Not by hwloc, which knows only the processors that this process may use: the thread may be
  // bound to others. A thread whose binding cannot be read is not bound, since it could not be
  // restored.
  if (machine_ == nullptr || processors_.empty() ||
      ::sched_getaffinity(0, sizeof before.set, &before.set) != 0)
    return before;
  before.known = true;
  bind_thread();
  return before;
}

void Placement::release_thread(const ThreadBinding& before) const noexcept {
  if (before.known) (void)::sched_setaffinity(0, sizeof before.set, &before.set);
}

void Placement::place(std::span<std::byte> bytes) const noexcept {
  if (machine_ == nullptr || machine_->node_count() < 2) return;
  const auto node = memory_node_ ? memory_node_ : machine_->node_of_this_thread();
  if (node && !machine_->prefer(*node, bytes))
    log::debug("placement: memory could not be placed on node {}: errno {}", *node, errno);
}

std::string Placement::to_string() const {
  if (machine_ == nullptr) return "nothing is bound";
  return "threads on " + (processors_.empty() ? "any processor" : to_text(processors_)) +
         ", slots " +
         (memory_node_ ? "on node " + std::to_string(*memory_node_)
                       : "on the node of the thread that makes them");
}

}  // namespace remora::detail
