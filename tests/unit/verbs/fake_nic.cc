#include "fake_nic.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>

#include "memory_monitor.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace remora::test {
namespace {

std::atomic<bool> g_monitor_held{false};

void hold_monitor() {
  while (g_monitor_held.load()) std::this_thread::sleep_for(std::chrono::microseconds{100});
}

}  // namespace

FakeNic* FakeNic::current = nullptr;

FakeNic::FakeNic(verbs::Provider& table) {
  current = this;
  table.reg_mr = &FakeNic::reg_mr;
  table.dereg_mr = &FakeNic::dereg_mr;
}
FakeNic::~FakeNic() { current = nullptr; }

ibv_mr* FakeNic::reg_mr(ibv_pd* domain, void* address, std::size_t length, unsigned) {
  FakeNic& nic = *current;
  if (nic.before_registering) nic.before_registering();
  const std::lock_guard lock{nic.mutex_};
  if (const int number = fake().use("reg_mr"); number != 0) return errno = number, nullptr;
  Pinned pinned{-1, 0, 0, length};
  if (nic.pin) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    pinned.first_page = begin & ~(kPage - 1);
    pinned.length = ((begin + length + kPage - 1) & ~(kPage - 1)) - pinned.first_page;
    auto* const first = static_cast<std::byte*>(address) - (begin - pinned.first_page);
    // Written to, so that no zero page is pinned.
    if (::madvise(first, pinned.length, MADV_POPULATE_WRITE) != 0) return errno = EFAULT, nullptr;
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return nullptr;
    ::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(pinned.length));
    iovec whole{first, pinned.length};
    const ssize_t taken = ::vmsplice(ends[1], &whole, 1, SPLICE_F_NONBLOCK);
    ::close(ends[1]);
    pinned.pipe_read = ends[0];
    if (taken != static_cast<ssize_t>(pinned.length)) {
      ::close(ends[0]);
      return errno = EFAULT, nullptr;
    }
  }
  auto* const region = new ibv_mr{};
  region->pd = domain;
  region->addr = address;
  region->length = length;
  region->lkey = region->rkey = nic.next_key_++;
  nic.pinned_[region->lkey] = pinned;
  if (nic.pin) fake().born("mr", region, {domain});
  return region;
}

int FakeNic::dereg_mr(ibv_mr* region) {
  FakeNic& nic = *current;
  if (nic.before_deregistering) nic.before_deregistering();
  const std::lock_guard lock{nic.mutex_};
  const int number = fake().use("dereg_mr");
  const Pinned pinned = nic.pinned_.at(region->lkey);
  if (pinned.pipe_read >= 0) ::close(pinned.pipe_read);
  nic.pinned_.erase(region->lkey);
  if (nic.pin) fake().died("mr", region);
  delete region;
  return number;
}

std::vector<std::byte> FakeNic::read(const verbs::MrLease& lease) {
  std::vector<std::byte> seen;
  const std::lock_guard lock{mutex_};
  for (std::size_t i = 0; i < lease.piece_count(); ++i) {
    const verbs::MrPiece piece = lease.piece(i);
    const Pinned& pinned = pinned_.at(piece.lkey);
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
    ::fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(pinned.length));
    std::vector<std::byte> whole(pinned.length);
    const ssize_t copied = ::tee(pinned.pipe_read, ends[1], pinned.length, SPLICE_F_NONBLOCK);
    ::close(ends[1]);
    std::size_t got = 0;
    for (ssize_t n = 1; n > 0 && got < whole.size();
         got += static_cast<std::size_t>(std::max<ssize_t>(n, 0)))
      n = ::read(ends[0], whole.data() + got, whole.size() - got);
    ::close(ends[0]);
    EXPECT_EQ(copied, static_cast<ssize_t>(pinned.length));
    EXPECT_EQ(got, pinned.length);
    const std::size_t from = piece.address - pinned.first_page;
    seen.insert(seen.end(), whole.begin() + static_cast<std::ptrdiff_t>(from),
                whole.begin() + static_cast<std::ptrdiff_t>(from + piece.length_bytes));
  }
  return seen;
}

bool FakeNic::fresh(const verbs::MrLease& lease) {
  const auto seen = read(lease);
  return seen.size() == lease.bytes().size() &&
         std::memcmp(seen.data(), lease.bytes().data(), seen.size()) == 0;
}

std::size_t FakeNic::live() {
  const std::lock_guard lock{mutex_};
  return pinned_.size();
}

std::uint64_t FakeNic::live_bytes() {
  const std::lock_guard lock{mutex_};
  std::uint64_t bytes = 0;
  for (const auto& [key, pinned] : pinned_) bytes += pinned.asked;
  return bytes;
}

namespace {
/// Where nothing else is mapped by itself: a hole that a test makes must still be one when the test
/// maps there again, while the threads of TBB and of sanitizers map what they need.
void* secluded(std::size_t size) {
  constexpr std::uintptr_t kSecluded = 0x7e90'0000'0000;
  static std::atomic<std::uintptr_t> next{kSecluded};
  // Two pages between mappings, so that they are not merged.
  return std::bit_cast<void*>(next.fetch_add(size + 2 * kPage));
}
}  // namespace

Mapping::Mapping(std::size_t pages, void* at) : size_{pages * kPage} {
  void* const mapped = ::mmap(at != nullptr ? at : secluded(size_), size_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  data_ = mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
  EXPECT_NE(data_, nullptr) << std::strerror(errno);
}
Mapping::~Mapping() { unmap(); }
void Mapping::unmap() {
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
}

void stamp(std::span<std::byte> bytes) {
  static std::atomic<std::uint64_t> next{1};
  const std::uint64_t value = next.fetch_add(1) * 0x9e3779b97f4a7c15U;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(value))
    std::memcpy(bytes.data() + at, &value, std::min(sizeof(value), bytes.size() - at));
}

DelayedMonitor::DelayedMonitor() {
  g_monitor_held = true;
  verbs::detail::MemoryMonitor::before_read = &hold_monitor;
}
DelayedMonitor::~DelayedMonitor() {
  g_monitor_held = false;
  verbs::detail::MemoryMonitor::before_read = nullptr;
}

void MrCacheTest::SetUp() {
  nic_ = std::make_unique<FakeNic>(fake_.table);
  domain_ = open().allocate_domain().value();
}
void MrCacheTest::TearDown() {
  cache_.reset();
  domain_ = {};
  EXPECT_EQ(nic_->live(), 0U);
  FakeTest::TearDown();
}
void MrCacheTest::create(const verbs::MrCacheOptions& options) {
  cache_ = std::make_unique<verbs::MrCache>(verbs::MrCache::create(domain_, options).value());
}
bool MrCacheTest::kept(verbs::MrCache& cache, std::span<std::byte> bytes) {
  const auto before = cache.counters().hits;
  return eventually([&] {
    return cache.acquire(bytes, verbs::Access::kLocalWrite).ok() && cache.counters().hits != before;
  });
}

void MrCacheTest::keep(std::span<std::byte> bytes) {
  const auto before = cache_->counters().hits;
  EXPECT_TRUE(eventually([&] {
    expect_fresh(bytes);
    return cache_->counters().hits != before;
  }));
  EXPECT_EQ(cache_->counters().hits, before + 1);
}

void MrCacheTest::expect_fresh(std::span<std::byte> bytes) {
  auto lease = cache_->acquire(bytes, verbs::Access::kLocalWrite);
  ASSERT_OK(lease);
  stamp(bytes);
  EXPECT_TRUE(nic_->fresh(*lease));
}

}  // namespace remora::test
