/// How regions change and go: when nobody has them open, whoever has, or by themselves.

#include <future>
#include <memory>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"

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
  grants_.in_turn(region, [this, region, then = std::move(then)] { take_away(region, then); });
}

void ServerCore::take_away(const std::shared_ptr<RegionEntry>& region, std::function<void()> then) {
  // Nobody comes in by the name from here on; another removal may have been first.
  catalog_.retire(*region);
  metrics_.regions(catalog_.size());
  grants_.revoke_all(region, Reason::kRevoked, RevocationCoordinator::Mapped::kDrop,
                     [then = std::move(then)](std::size_t /*left*/) { then(); });
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

void ServerCore::resize_region(const std::shared_ptr<RegionEntry>& region, std::uint64_t size_bytes,
                               Deadline deadline, MayGrow may,
                               std::function<void(const Status&)> then) {
  if (auto status = Catalog::check_size(*region, size_bytes); !status) return then(status);
  const std::uint64_t before_bytes = region->size_bytes();
  if (size_bytes == before_bytes) return then({});
  if (size_bytes > before_bytes) {
    const std::uint64_t more_bytes = catalog_.more_bytes(size_bytes, before_bytes);
    if (may)
      if (auto status = may(more_bytes); !status) return then(status);
    const Status grown = catalog_.grow(*region, size_bytes, Clock::now());
    if (grown || grown.error().code() != Code::kTimedOut || Clock::now() >= deadline)
      return then(grown);
    return memory_line_.join(
        more_bytes, deadline,
        [this, region, size_bytes, deadline, may = std::move(may), then = std::move(then)] {
          resize_in_turn(region, size_bytes, deadline, may, then);
        });
  }
  // Before anybody loses anything.
  if (auto may_shrink = Catalog::check_shrink(*region); !may_shrink) return then(may_shrink);
  grants_.revoke_all(region, Reason::kRevoked, RevocationCoordinator::Mapped::kLeave,
                     [this, region, size_bytes, then = std::move(then)](std::size_t /*left*/) {
                       catalog_.raise_epoch(*region);
                       then(catalog_.shrink(*region, size_bytes));
                     });
}

void ServerCore::resize_in_turn(const std::shared_ptr<RegionEntry>& region,
                                std::uint64_t size_bytes, Deadline deadline, MayGrow may,
                                std::function<void(const Status&)> then) {
  grants_.in_turn(
      region, [this, region, size_bytes, deadline, may = std::move(may), then = std::move(then)] {
        if (catalog_.holds(*region)) return resize_region(region, size_bytes, deadline, may, then);
        then(Error{Code::kUnknownRegion, "region"}.with_subject(region->name()));
      });
}

Result<RegionInfo> ServerCore::resize_region(std::string_view name, std::uint64_t size_bytes) {
  auto found = catalog_.find(name);
  if (!found) return found.error();
  // Where the server stops before the region's turn has come, nobody says more than this.
  auto status = std::make_shared<Status>(Error{Code::kClosed, "resize"});
  auto ended = std::make_shared<std::promise<void>>();
  const auto end_known = ended->get_future();
  const Deadline deadline = deadline_after(config_.limits.request_timeout);
  enqueue([this, region = *found, size_bytes, deadline, status, ended = std::move(ended)] {
    const auto end = [status, ended](const Status& how) {
      *status = how;
      ended->set_value();
    };
    resize_in_turn(region, size_bytes, deadline, {}, end);
  });
  end_known.wait();
  if (!*status) return status->error().with_subject(name);
  return (*found)->info();
}

/// Control thread. One job at a time: the worker may be long in coming to it.
void ServerCore::remove_expired() {
  if (removes_expired_.load()) return;
  auto expired = catalog_.expired();
  if (expired.empty()) return;
  removes_expired_.store(true);
  enqueue([this, expired = std::move(expired)] {
    for (const auto& region : expired) {
      // Opened meanwhile: not yet.
      if (!catalog_.expire(*region)) continue;
      log::info("region {}: its ttl is over; removed", region->name());
    }
    metrics_.regions(catalog_.size());
    removes_expired_.store(false);
  });
}

}  // namespace remora::detail
