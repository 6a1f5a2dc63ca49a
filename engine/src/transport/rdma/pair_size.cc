#include "transport/rdma/pair_size.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <remora/mutex.h>

#include "base/log.h"
#include "transport/rdma/wire.h"

namespace remora::transport::rdma {

namespace {

bool is_about_size(const Status& created) noexcept {
  if (created) return false;
  const int number = created.error().system_errno();
  return number == EINVAL || number == ENOMEM;
}

/// True once for each device and depth in a process: a session has several lanes, and resumes.
bool is_told_first(std::string_view device, std::uint32_t depth) {
  struct Told {
    remora::detail::Mutex mutex;
    std::set<std::pair<std::string, std::uint32_t>> all REMORA_GUARDED_BY(mutex);
  };
  static remora::detail::PerProcess<Told> process;
  Told& told = process.get();
  const remora::detail::MutexLock lock{told.mutex};
  return told.all.emplace(std::string{device}, depth).second;
}

}  // namespace

Result<std::uint32_t> create_fitting_pair(
    verbs::QueuePairBuilder<verbs::Rc>& builder, std::uint32_t depth,
    const std::function<Status(const verbs::QueuePairBuilder<verbs::Rc>&)>& create) {
  Status first;
  std::uint32_t fits = depth;
  const auto fails = [&](std::uint32_t inline_bytes) {
    const Status created = create(builder.send_depth(fits).inline_bytes(inline_bytes));
    if (created) return false;
    if (first) first = created;
    if (!is_about_size(created)) fits = 0;
    return true;
  };
  constexpr std::array<std::uint32_t, 4> kInline{kInlineBytes, 96, 48, 0};
  const auto* const room =
      std::find_if(kInline.begin(), kInline.end(),
                   [&](std::uint32_t inline_bytes) { return fits == 0 || !fails(inline_bytes); });
  if (fits == 0) return first.error();
  if (room == kInline.end()) {
    do {
      fits /= 2;
      if (fits < kLeastDepth) return first.error();
    } while (fails(0));
    if (fits == 0) return first.error();
  }
  const std::string_view device = builder.domain().device().name();
  if (fits != depth && is_told_first(device, depth))
    log::warn({"lane.shallow", "device depth wanted"},
              "rdma: {} gives a lane {} requests instead of {}: set the lane depth to that", device,
              fits, depth);
  return fits;
}

}  // namespace remora::transport::rdma
