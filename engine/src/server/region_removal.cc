/// How regions go: when nobody has them open, whoever has, or by themselves.

#include <future>
#include <memory>
#include <utility>

#include "server/server_core.h"
#include "support/log.h"

namespace remora::detail {

Status ServerCore::remove_region(std::string_view name, Removal removal) {
  Status removed;
  if (removal == Removal::kWhenUnused) {
    // Its grants keep its memory; nobody finds it by its name any more.
    auto found = catalog_.find(name);
    if (!found) return found.error();
    catalog_.retire(**found);
  } else {
    removed = catalog_.remove(name);
  }
  metrics_.regions(catalog_.size());
  return removed;
}

void ServerCore::remove_now(const std::shared_ptr<RegionEntry>& region,
                            std::function<void()> then) {
  grants_.in_turn(region, [this, region, then = std::move(then)] {
    // Nobody comes in by the name from here on; another removal may have been first.
    catalog_.retire(*region);
    metrics_.regions(catalog_.size());
    grants_.revoke_all(region, Reason::kRevoked, GrantDesk::Mapped::kDrop,
                       [then](std::size_t /*left*/) { then(); });
  });
}

Status ServerCore::remove_now(std::string_view name) {
  auto found = catalog_.find(name);
  if (!found) return found.error();
  auto gone = std::make_shared<std::promise<void>>();
  const bool begun =
      enqueue([this, region = *found, gone] { remove_now(region, [gone] { gone->set_value(); }); });
  if (!begun) return Error{Code::kClosed, "remove"}.with_subject(name);
  // Where the server stops meanwhile, its sessions end, and their grants with them.
  gone->get_future().wait();
  return {};
}

/// Control thread.
void ServerCore::remove_expired() {
  for (const auto& region : catalog_.expired())
    enqueue([this, region] {
      // Opened meanwhile: not yet.
      if (!catalog_.expire(*region)) return;
      metrics_.regions(catalog_.size());
      log::info("region {}: its ttl is over; removed", region->name());
    });
}

}  // namespace remora::detail
