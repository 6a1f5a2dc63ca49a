#include "region_member.h"

#include <new>
#include <utility>

#include <remora/assert.h>

namespace remora::volume::detail {

namespace {

/// Over rdma a write is visible to clients of other devices after a read behind it
/// (engine/docs/guarantees.md): readers of a mirror may come over any.
class RegionLane final : public MemberLane {
 public:
  RegionLane(Queue queue, bool flushes) noexcept : queue_{std::move(queue)}, flushes_{flushes} {}

  void post(std::span<const MemberWrite> writes) noexcept override {
    REMORA_ASSERT(writes.size() <= kOperationsMax, "a lane has room for the writes");
    for (const MemberWrite& write : writes) {
      const ByteOffset at{write.offset_bytes};
      if (write.zeroes != 0)
        queue_.write_zeroes(at, write.zeroes, kTransfer);
      else
        queue_.write(at, write.from, kTransfer);
    }
    if (flushes_) {
      queue_.barrier();
      queue_.flush_visible(kFlush);
    }
    posted_ = writes.size() + (flushes_ ? 1 : 0);
    refused_ = queue_.submit();
  }

  void post_reads(std::span<const MemberRead> reads) noexcept override {
    REMORA_ASSERT(reads.size() <= kOperationsMax, "a lane has room for the reads");
    for (const MemberRead& read : reads)
      queue_.read(ByteOffset{read.offset_bytes}, read.into, kTransfer);
    posted_ = reads.size();
    refused_ = queue_.submit();
  }

  Status wait() noexcept override {
    if (!refused_) return refused_;
    Status status;
    for (std::size_t left = posted_; left > 0;) {
      const Completions found = queue_.wait(left);
      if (found.empty()) return Error{Code::kIndeterminate, "write"};
      left -= found.size();
      for (const Completion& each : found) {
        if (each.ok()) continue;
        if (each.tag() == kTransfer) {
          if (status || each.error().code() == Code::kIndeterminate) status = each.error();
        } else if (status) {  // written, and perhaps not visible
          status = Error{Code::kIndeterminate, "flush_visible"}.with_server(each.error().server());
        }
      }
    }
    return status;
  }

 private:
  static constexpr std::uint64_t kTransfer = 0;
  static constexpr std::uint64_t kFlush = 1;

  Queue queue_;
  Status refused_;
  std::size_t posted_ = 0;  ///< operations that wait() has to await
  const bool flushes_;
};

}  // namespace

RegionMember::~RegionMember() {
  for (std::atomic<MemberLane*>& place : kept_)
    const std::unique_ptr<MemberLane> lane{place.exchange(nullptr)};
}

Result<std::unique_ptr<MemberLane>> RegionMember::take_lane() noexcept {
  for (std::atomic<MemberLane*>& place : kept_) {
    if (place.load(std::memory_order_relaxed) == nullptr) continue;
    std::unique_ptr<MemberLane> lane{place.exchange(nullptr, std::memory_order_acquire)};
    if (lane != nullptr) return lane;
  }
  auto queue = region_.queue({.depth = MemberLane::kOperationsMax + 1, .deadline = limit_});
  if (!queue) return queue.error();
  const bool flushes = region_.transport() == TransportKind::kRdma;
  std::unique_ptr<MemberLane> lane{new (std::nothrow) RegionLane{std::move(*queue), flushes}};
  if (lane == nullptr) return Error{Code::kOutOfMemory, "queue"};
  return lane;
}

void RegionMember::return_lane(std::unique_ptr<MemberLane> lane) noexcept {
  for (std::atomic<MemberLane*>& place : kept_) {
    MemberLane* none = nullptr;
    if (place.compare_exchange_strong(none, lane.get(), std::memory_order_release,
                                      std::memory_order_relaxed)) {
      static_cast<void>(lane.release());
      return;
    }
  }
}

}  // namespace remora::volume::detail
