#include "base/machine.h"

#include <algorithm>
#include <cerrno>
#include <hwloc.h>
#include <utility>

namespace remora::detail {

namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
/// Null if there is no memory; the functions of hwloc do not take null.
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

}  // namespace

void Machine::Destroy::operator()(hwloc_topology* topology) const noexcept {
  hwloc_topology_destroy(topology);
}

Result<Machine::Topology> Machine::make() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    return Error{Code::kSystem, "hwloc_topology_init"}.with_errno(errno);
  Topology topology{raw};
  // Caches are not used, and slow to find. Groups must stay: a node whose group is left out gets
  // the processors of the whole machine.
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
  // Also the affinity of the thread, not only that of the cgroup: the engine uses the processors
  // that the process was started with.
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
  // Without HWLOC_MEMBIND_STRICT, the kernel takes pages from another node when this node is full.
  return object != nullptr &&
         hwloc_set_area_membind(topology_.get(), bytes.data(), bytes.size(), object->nodeset,
                                HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0;
}

}  // namespace remora::detail
