#include "base/placement.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <hwloc.h>
#include <sched.h>
#include <sstream>
#include <system_error>
#include <utility>

#include <remora/system_file.h>

#include "base/log.h"

namespace remora::detail {

namespace {

/// More than any kernel is built for.
constexpr unsigned kMaxProcessor = 65535;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
/// Null where memory ran out; hwloc's functions take only others.
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;
Bitmap make_bitmap() noexcept { return Bitmap{hwloc_bitmap_alloc()}; }

Bitmap to_bitmap(const Processors& processors) noexcept {
  Bitmap bitmap = make_bitmap();
  for (const unsigned processor : processors)
    if (bitmap == nullptr || hwloc_bitmap_set(bitmap.get(), processor) != 0) return nullptr;
  return bitmap;
}

Processors to_processors(hwloc_const_bitmap_t bitmap) {
  Processors found;
  for (int i = hwloc_bitmap_first(bitmap); i >= 0; i = hwloc_bitmap_next(bitmap, i))
    found.push_back(static_cast<unsigned>(i));
  return found;
}

Error wrong(std::string_view part) {
  return Error{Code::kInvalidArgument,
               "placement: \"none\", \"auto\" or processors such as \"0-3,8\""}
      .with_subject(part.empty() ? "an empty part" : part);
}

std::optional<unsigned> number(std::string_view text) noexcept {
  unsigned value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || value > kMaxProcessor)
    return std::nullopt;
  return value;
}

/// Whether the kernel says that there is one memory node at most.
bool one_node() {
  const auto online = read_file("/sys/devices/system/node/online");
  return !online || online->find_first_of(",-") == std::string::npos;
}

}  // namespace

Result<Processors> parse_processors(std::string_view text) {
  Processors found;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const auto dash = part.find('-');
    const auto first = number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return wrong(part);
    for (unsigned i = *first; i <= *last; ++i) found.push_back(i);
    if (part.size() == text.size()) break;
    text.remove_prefix(part.size() + 1);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::string to_text(const Processors& processors) {
  std::string text;
  for (std::size_t i = 0; i < processors.size();) {
    std::size_t end = i + 1;
    while (end < processors.size() && processors[end] == processors[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(processors[i]);
    if (end - i > 1) text += '-' + std::to_string(processors[end - 1]);
    i = end;
  }
  return text;
}

void Machine::Destroy::operator()(hwloc_topology* topology) const noexcept {
  hwloc_topology_destroy(topology);
}

Result<Machine::Topology> Machine::make() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    return Error{Code::kSystem, "hwloc_topology_init"}.with_errno(errno);
  Topology topology{raw};
  // Not looked at, and slow to find. Groups must stay: a node whose group is left out gets the
  // processors of the whole machine.
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_icache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  return topology;
}

Result<Machine> Machine::load(Topology topology) {
  if (hwloc_topology_load(topology.get()) != 0)
    return Error{Code::kSystem, "hwloc_topology_load"}.with_errno(errno);
  return Machine{std::move(topology)};
}

Machine::Machine(Topology topology)
    : topology_{std::move(topology)},
      processors_{to_processors(hwloc_topology_get_allowed_cpuset(topology_.get()))} {}

Result<Machine> Machine::here() {
  auto topology = make();
  if (!topology) return topology.error();
  // The thread's own affinity, as well as the cgroup's: what a launcher gave us we keep to.
  hwloc_topology_set_flags(topology->get(), HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM |
                                                HWLOC_TOPOLOGY_FLAG_RESTRICT_TO_CPUBINDING);
  return load(std::move(*topology));
}

Result<Machine> Machine::synthetic(const char* description, const Processors& allowed) {
  auto topology = make();
  if (!topology) return topology.error();
  if (hwloc_topology_set_synthetic(topology->get(), description) != 0)
    return Error{Code::kInvalidArgument, "hwloc_topology_set_synthetic"}.with_errno(errno);
  auto machine = load(std::move(*topology));
  if (machine && !allowed.empty()) machine->processors_ = allowed;
  return machine;
}

std::size_t Machine::node_count() const noexcept {
  return static_cast<std::size_t>(
      std::max(0, hwloc_get_nbobjs_by_type(topology_.get(), HWLOC_OBJ_NUMANODE)));
}

Processors Machine::processors_of(unsigned node) const {
  const hwloc_obj_t object = hwloc_get_numanode_obj_by_os_index(topology_.get(), node);
  if (object == nullptr) return {};
  Processors found;
  for (const unsigned processor : processors_)
    if (hwloc_bitmap_isset(object->cpuset, processor) != 0) found.push_back(processor);
  return found;
}

std::optional<unsigned> Machine::node_of(unsigned processor) const noexcept {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology_.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr)
    if (hwloc_bitmap_isset(node->cpuset, processor) != 0) return node->os_index;
  return std::nullopt;
}

std::optional<unsigned> Machine::node_of_this_thread() const noexcept {
  const Bitmap here = make_bitmap();
  if (here == nullptr ||
      hwloc_get_last_cpu_location(topology_.get(), here.get(), HWLOC_CPUBIND_THREAD) != 0)
    return std::nullopt;
  const int processor = hwloc_bitmap_first(here.get());
  return processor < 0 ? std::nullopt : node_of(static_cast<unsigned>(processor));
}

bool Machine::bind_thread(const Processors& processors) const noexcept {
  const Bitmap wanted = to_bitmap(processors);
  return wanted != nullptr &&
         hwloc_set_cpubind(topology_.get(), wanted.get(), HWLOC_CPUBIND_THREAD) == 0;
}

bool Machine::prefer(unsigned node, std::span<std::byte> bytes) const noexcept {
  const hwloc_obj_t object = hwloc_get_numanode_obj_by_os_index(topology_.get(), node);
  // Without HWLOC_MEMBIND_STRICT a full node is no failure: another one gives.
  return object != nullptr &&
         hwloc_set_area_membind(topology_.get(), bytes.data(), bytes.size(), object->nodeset,
                                HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0;
}

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
  // Not by hwloc, which knows only the processors that this process may use: the thread's own
  // binding may be another. A thread that could not be given back is not borrowed.
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
