#pragma once

/// A fake device whose registrations pin real pages, so that stale ones show.
///
/// reg_mr puts the pages into a pipe (vmsplice), which holds them as a NIC would; read() looks at
/// them through the pipe. After munmap and mmap at the same address it still sees the old ones.

#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include <remora/verbs/mr_cache.h>

#include "fake_verbs.h"
#include "support/eventually.h"

namespace remora::test {

class FakeNic {
 public:
  explicit FakeNic(verbs::Provider& table);
  ~FakeNic();
  FakeNic(const FakeNic&) = delete;
  FakeNic& operator=(const FakeNic&) = delete;

  /// The bytes that the device sees behind the lease.
  [[nodiscard]] std::vector<std::byte> read(const verbs::MrLease& lease);
  /// Whether the device sees what the program sees.
  [[nodiscard]] bool fresh(const verbs::MrLease& lease);

  [[nodiscard]] std::size_t live();
  [[nodiscard]] std::uint64_t live_bytes();
  /// Off: registrations hold no pages, and there may be very many.
  bool pin = true;
  /// Called without a lock, in the thread that registers or deregisters.
  std::function<void()> before_registering;
  std::function<void()> before_deregistering;

 private:
  struct Pinned {
    int pipe_read;
    std::uintptr_t first_page;
    std::size_t length;
    std::size_t asked;
  };
  static ibv_mr* reg_mr(ibv_pd* domain, void* address, std::size_t length, unsigned access);
  static int dereg_mr(ibv_mr* region);
  static FakeNic* current;

  std::mutex mutex_;
  std::map<std::uint32_t, Pinned> pinned_;
  std::uint32_t next_key_ = 1;
};

inline constexpr std::size_t kPage = 4096;

/// An anonymous mapping of its own.
class Mapping {
 public:
  explicit Mapping(std::size_t pages, void* at = nullptr);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::span<std::byte> pages(std::size_t first, std::size_t count) const {
    return {data_ + first * kPage, count * kPage};
  }
  /// Forgets the pages: the caller unmaps them.
  void forget() { data_ = nullptr; }
  void unmap();

 private:
  std::byte* data_;
  std::size_t size_;
};

/// Writes something that no earlier call wrote.
void stamp(std::span<std::byte> bytes);

/// While it lives, the monitor's thread stands before its read.
class DelayedMonitor {
 public:
  DelayedMonitor();
  ~DelayedMonitor();
  DelayedMonitor(const DelayedMonitor&) = delete;
  DelayedMonitor& operator=(const DelayedMonitor&) = delete;
};

class MrCacheTest : public FakeTest {
 protected:
  void SetUp() override;
  void TearDown() override;
  void create(const verbs::MrCacheOptions& options = {});
  [[nodiscard]] verbs::MrLease acquire(std::span<std::byte> bytes) {
    return cache_->acquire(bytes, verbs::Access::kLocalWrite).value();
  }
  /// Acquires, and the device sees what was just written.
  void expect_fresh(std::span<std::byte> bytes);
  /// Acquires until it is found in the cache: while the monitor has yet to tell of an earlier
  /// change, nothing is kept.
  void keep(std::span<std::byte> bytes);
  /// As keep(), in another one, and in a process that may not report failures.
  [[nodiscard]] static bool kept(verbs::MrCache& cache, std::span<std::byte> bytes);

  std::unique_ptr<FakeNic> nic_;
  verbs::ProtectionDomain domain_;
  std::unique_ptr<verbs::MrCache> cache_;
};

}  // namespace remora::test
