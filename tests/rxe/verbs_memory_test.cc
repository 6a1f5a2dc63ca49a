// Kinds of registration, windows, extended queues and what a device tells, on a real device.
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/udmabuf.h>
#include <sstream>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/timed.h"
#include "verbs_loopback.h"

namespace remora::test {
namespace {

using verbs::Access;
using verbs::Completion;

class VerbsMemory : public VerbsLoopback {
 protected:
  // One operation, to its completion.
  Completion run(verbs::Batch<verbs::Rc>& batch) {
    const Status posted = batch.post();
    EXPECT_TRUE(posted.ok()) << posted.error();
    return rig_->complete(1)[0];
  }
  // Bytes registered with `flag` can be written to, or the device says that it cannot do it.
  void expect_flag_works(Access flag) {
    void* mapped = map(flag == Access::kHugePages ? MAP_HUGETLB : 0);
    if (mapped == MAP_FAILED && std::getenv("REMORA_VM_DEVICE") != nullptr) {
      std::ofstream{"/proc/sys/vm/nr_hugepages"} << 1 << std::flush;  // the guest is all ours
      mapped = map(MAP_HUGETLB);
    }
    if (mapped == MAP_FAILED) GTEST_SKIP() << "no huge page: " << std::strerror(errno);
    write_through({static_cast<std::byte*>(mapped), kHugePage}, flag);
    ::munmap(mapped, kHugePage);
  }
  static constexpr std::size_t kHugePage = std::size_t{2} << 20U;
  static void* map(int flags) {
    return ::mmap(nullptr, kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
                  -1, 0);
  }
  void write_through(std::span<std::byte> bytes, Access flag) {
    const auto region =
        rig_->domain.register_bytes(bytes, Access::kLocalWrite | Access::kRemoteWrite | flag);
    if (!region) {
      ASSERT_EQ(region.error().code(), Code::kUnsupported) << region.error();
      EXPECT_EQ(region.error().subject(), device_name_);
      EXPECT_FALSE(region.error().remedy().empty());
      GTEST_SKIP() << region.error();
    }
    EXPECT_TRUE(contains(region->access(), flag));
    rig_->fill(0, 4096, 9);
    auto batch = pair_->start();
    batch.write(1, local(0, 4096), region->remote(8192, 4096));
    const auto done = run(batch);
    ASSERT_TRUE(done.ok()) << done;
    EXPECT_EQ(std::memcmp(bytes.data() + 8192, rig_->at(0), 4096), 0);
  }
  // What the kernel says of a row's netdev; empty where there is none.
  [[nodiscard]] std::string interface_of(const verbs::GidEntry& entry) const {
    std::ifstream file{"/sys/class/infiniband/" + device_name_ + "/ports/" +
                       std::to_string(entry.port) + "/gid_attrs/ndevs/" +
                       std::to_string(entry.index)};
    std::string name;
    file >> name;
    return name;
  }
};

/// A dma-buf of ordinary pages, with a mapping of them. Source: linux/udmabuf.h.
class DmabufOfPages {
 public:
  explicit DmabufOfPages(std::size_t length) : length_{length} {
    const int device = ::open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
    error_ = errno;
    if (device < 0) return;
    const int pages = ::memfd_create("udmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(pages, static_cast<off_t>(length)), 0);
    EXPECT_EQ(::fcntl(pages, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    udmabuf_create wanted{};
    wanted.memfd = static_cast<std::uint32_t>(pages);
    wanted.flags = UDMABUF_FLAGS_CLOEXEC;
    wanted.size = length;
    descriptor_ = ::ioctl(device, UDMABUF_CREATE, &wanted);
    error_ = errno;
    mapped_ = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, pages, 0);
    EXPECT_NE(mapped_, MAP_FAILED);
    ::close(pages);
    ::close(device);
  }
  ~DmabufOfPages() {
    if (mapped_ != MAP_FAILED) ::munmap(mapped_, length_);
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  DmabufOfPages(const DmabufOfPages&) = delete;
  DmabufOfPages& operator=(const DmabufOfPages&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(mapped_), length_};
  }

 private:
  std::size_t length_;
  int descriptor_ = -1;
  int error_ = 0;
  void* mapped_ = MAP_FAILED;
};

TEST_F(VerbsMemory, OwnedAndAllocatedRegionsWork) {
  std::vector<std::uint64_t> numbers(64, 0x1122334455667788);
  const auto owned =
      verbs::MemoryRegion::register_owned(rig_->domain, std::move(numbers), Access::kLocalWrite);
  ASSERT_OK(owned);
  const auto allocated =
      verbs::MemoryRegion::allocate(rig_->domain, 4096, Access::kLocalWrite | Access::kRemoteWrite);
  ASSERT_OK(allocated);
  auto batch = pair_->start();
  batch.write(1, owned->slice(0, 512), allocated->remote(1024, 512));
  const auto done = run(batch);
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_EQ(std::memcmp(owned->bytes().data(), allocated->bytes().data() + 1024, 512), 0);
}

TEST_F(VerbsMemory, SlicesOfAChosenAddressWork) {
  const auto in_page = reinterpret_cast<std::uintptr_t>(rig_->bytes.data()) % 4096;
  for (const std::uint64_t iova : {std::uint64_t{0}, std::uint64_t{0x7000'0000'0000}}) {
    const auto region = verbs::MemoryRegion::register_at(rig_->domain, rig_->bytes, iova + in_page,
                                                         Rig::kAllRights);
    ASSERT_OK(region);
    rig_->fill(0, 256, 1);
    std::memset(rig_->at(8192), 0, 256);
    auto batch = pair_->start();
    batch.write(1, region->slice(0, 256), region->remote(8192, 256));
    const auto done = run(batch);
    ASSERT_TRUE(done.ok()) << done;
    EXPECT_TRUE(same(0, 8192, 256));
  }
}

TEST_F(VerbsMemory, ZeroBasedRegionBeginsAtZero) {
  const auto region = verbs::MemoryRegion::allocate(
      rig_->domain, 8192,
      Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kZeroBased);
  if (!region) GTEST_SKIP() << region.error();
  EXPECT_EQ(region->address(), 0U);
  const auto bytes = region->bytes();
  ASSERT_FALSE(bytes.empty() || bytes.data() == nullptr);
  bytes.front() = std::byte{9};
  auto batch = pair_->start();
  batch.write(1, region->slice(0, 1), region->remote(4096, 1));
  const auto done = run(batch);
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_EQ(std::to_integer<int>(bytes[4096]), 9);
}

TEST_F(VerbsMemory, RelaxedOrderingIsTakenEverywhere) {
  expect_flag_works(Access::kRelaxedOrdering);  // a device without it ignores it
}

TEST_F(VerbsMemory, OnDemandPagingWorksOrIsUnsupported) { expect_flag_works(Access::kOnDemand); }

TEST_F(VerbsMemory, HugePagesWorkOrAreUnsupported) { expect_flag_works(Access::kHugePages); }

TEST_F(VerbsMemory, AdviceIsTakenOrUnsupported) {
  const std::array<verbs::LocalSlice, 1> ranges{local(0, 4096)};
  const auto advised =
      verbs::MemoryRegion::advise(rig_->domain, verbs::Advice::kPrefetch, ranges, true);
  if (advised.ok()) return;
  ASSERT_EQ(advised.error().code(), Code::kUnsupported) << advised.error();
  EXPECT_EQ(advised.error().subject(), device_name_);
  GTEST_SKIP() << advised.error();
}

TEST_F(VerbsMemory, WhatIsNoDmabufIsRefused) {
  const int descriptor = ::memfd_create("no dma-buf", MFD_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  const auto region = verbs::MemoryRegion::register_dmabuf(rig_->domain, descriptor, 0, 4096, 0,
                                                           Access::kLocalWrite);
  ::close(descriptor);
  ASSERT_FALSE(region.ok());
  EXPECT_FALSE(region.error().remedy().empty()) << region.error();
  if (region.error().code() == Code::kUnsupported) GTEST_SKIP() << region.error();
  EXPECT_EQ(region.error().code(), Code::kProvider) << region.error();
}

TEST_F(VerbsMemory, DmabufIsWrittenThroughOrUnsupported) {
  const std::size_t length = 65536;
  const DmabufOfPages buffer{length};
  if (buffer.descriptor() < 0) GTEST_SKIP() << "/dev/udmabuf: " << std::strerror(buffer.error());
  const std::uint64_t iova = 0x4000'0000;
  const auto region = verbs::MemoryRegion::register_dmabuf(
      rig_->domain, buffer.descriptor(), 4096, 8192, iova,
      Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead);
  if (!region) {
    ASSERT_EQ(region.error().code(), Code::kUnsupported) << region.error();
    GTEST_SKIP() << region.error();
  }
  EXPECT_TRUE(region->bytes().empty());
  EXPECT_EQ(region->address(), iova);
  rig_->fill(0, 512, 6);
  auto batch = pair_->start();
  batch.write(1, local(0, 512), region->remote(1024, 512));
  const auto done = run(batch);
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_EQ(std::memcmp(buffer.bytes().data() + 4096 + 1024, rig_->at(0), 512), 0);
}

TEST_F(VerbsMemory, AdoptedRegionIsWrittenThroughAndGoes) {
  alignas(64) std::array<std::byte, 4096> bytes{};
  ibv_mr* const raw =
      ::ibv_reg_mr(rig_->domain.raw(), bytes.data(), bytes.size(),
                   static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  ASSERT_NE(raw, nullptr) << std::strerror(errno);
  const auto region =
      verbs::MemoryRegion::adopt(rig_->domain, raw, Access::kLocalWrite | Access::kRemoteWrite);
  ASSERT_OK(region);
  EXPECT_EQ(region->raw(), raw);
  EXPECT_EQ(region->bytes().data(), bytes.data());
  EXPECT_EQ(region->length_bytes(), bytes.size());
  rig_->fill(0, 512, 12);
  auto batch = pair_->start();
  batch.write(1, local(0, 512), region->remote(1024, 512));
  const auto written = run(batch);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(std::memcmp(bytes.data() + 1024, rig_->at(0), 512), 0);
  batch.write(2, region->slice(1024, 512), remote(8192, 512));  // and out of it
  ASSERT_TRUE(run(batch).ok());
  EXPECT_TRUE(same(0, 8192, 512));
  // That it is deregistered is seen at the end: the device is back at its baseline.
}

TEST_F(VerbsMemory, WindowIsBoundUsedAndTakenBack) {
  const auto region =
      rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | Access::kWindowBind);
  ASSERT_OK(region);
  auto window = pair_->allocate_window();
  if (!window) GTEST_SKIP() << window.error();
  rig_->fill(0, 64, 4);
  auto batch = pair_->start();
  batch.bind_window(1, *window, *region, 8192, 4096, Access::kRemoteWrite | Access::kRemoteRead);
  ASSERT_TRUE(run(batch).ok());
  const auto granted = window->remote();
  batch.write(2, local(0, 64), granted.slice(0, 64));
  const auto written = run(batch);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_TRUE(same(0, 8192, 64));
  batch.invalidate(3, *window);
  ASSERT_TRUE(run(batch).ok());
  batch.write(4, local(0, 64), granted.slice(0, 64));
  const auto refused = run(batch);
  EXPECT_EQ(refused.status(), CompletionStatus::kRemoteAccessError) << refused;
}

TEST_F(VerbsMemory, MessageTakesTheWindowBack) {
  const auto region =
      rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | Access::kWindowBind);
  ASSERT_OK(region);
  auto window = pair_->allocate_window();
  if (!window) {
    ASSERT_EQ(window.error().code(), Code::kUnsupported) << window.error();
    GTEST_SKIP() << window.error();
  }
  auto batch = pair_->start();
  batch.bind_window(1, *window, *region, 8192, 4096, Access::kRemoteWrite);
  ASSERT_TRUE(run(batch).ok());
  const auto granted = window->remote();
  rig_->fill(0, 64, 5);
  batch.write(2, local(0, 64), granted.slice(0, 64));
  const auto written = run(batch);
  ASSERT_TRUE(written.ok()) << written;
  ASSERT_OK(pair_->post_receive(3, local(4096, 64)));
  batch.send_with_invalidate(4, local(0, 64), granted.rkey());
  ASSERT_OK(batch.post());
  for (const Completion& done : rig_->complete(2)) {
    ASSERT_TRUE(done.ok()) << done;
    if (!done.is_receive()) continue;
    EXPECT_EQ(done.id(), 3U);
    EXPECT_EQ(done.length_bytes(), 64U);
    EXPECT_FALSE(done.immediate().has_value());
    EXPECT_EQ(done.raw().invalidated_rkey, granted.rkey());
    constexpr unsigned kInsideTheKernel = 1U << 2U;  // what rxe hands out for IBV_WC_WITH_INV
    if (device_name_.starts_with("rxe") && (done.raw().wc_flags & kInsideTheKernel) != 0) {
      EXPECT_FALSE(done.invalidated_rkey().has_value());
    } else {
      EXPECT_EQ(done.invalidated_rkey(), granted.rkey());
    }
  }
  EXPECT_TRUE(same(0, 4096, 64));
  batch.write(5, local(0, 64), granted.slice(0, 64));
  const auto refused = run(batch);
  EXPECT_EQ(refused.status(), CompletionStatus::kRemoteAccessError) << refused;
}

TEST_F(VerbsMemory, WindowWithoutTheRightRefuses) {
  const auto region =
      rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | Access::kWindowBind);
  ASSERT_OK(region);
  auto window = pair_->allocate_window();
  if (!window) GTEST_SKIP() << window.error();
  auto batch = pair_->start();
  batch.bind_window(1, *window, *region, 8192, 4096, Access::kRemoteRead);
  ASSERT_TRUE(run(batch).ok());
  batch.write(2, local(0, 64), window->remote().slice(0, 64));
  EXPECT_EQ(run(batch).status(), CompletionStatus::kRemoteAccessError);
}

// ibv_destroy_qp with a bound window takes a minute and leaves a kernel trace; ibv_dereg_mr
// refuses.
TEST_F(VerbsMemory, BoundWindowsGoFirstInAnyOrder) {
  for (int order = 0; order < 3; ++order) {
    auto prepared = rig_->builder().build();
    ASSERT_OK(prepared);
    const auto self = prepared->endpoint();
    auto connected = std::move(*prepared).connect(self);
    ASSERT_OK(connected);
    std::optional pair{std::move(*connected)};
    auto registered =
        rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | Access::kWindowBind);
    ASSERT_OK(registered);
    std::optional region{std::move(*registered)};
    auto allocated = pair->allocate_window();
    if (!allocated) GTEST_SKIP() << allocated.error();
    std::optional window{std::move(*allocated)};
    auto batch = pair->start();
    batch.bind_window(1, *window, *region, 0, 4096, Access::kRemoteRead);
    ASSERT_OK(batch.post());
    ASSERT_TRUE(rig_->complete(1)[0].ok());
    const Timed timed;
    if (order == 0) pair.reset();
    if (order == 1) region.reset();
    if (order == 2) {
      ASSERT_OK(pair->to_error());
      window.reset();
    }
    if (window) {
      EXPECT_TRUE(window->freed());
    }
    window.reset();
    region.reset();
    pair.reset();
    EXPECT_TRUE(timed.took_at_most(std::chrono::seconds{20}));
  }
}

TEST_F(VerbsMemory, ExtendedQueueTellsItsFields) {
  using enum verbs::CompletionFields;
  auto extended = rig_->device.create_completion_queue(
      {.depth = 32, .events = true, .fields = kLength | kQueuePair | kImmediate});
  if (!extended) GTEST_SKIP() << extended.error();
  connect(verbs::QueuePairBuilder<verbs::Rc>{rig_->domain, *extended, *extended}
              .inline_bytes(32)
              .timeout(18));
  ASSERT_OK(pair_->post_receive(1, local(0, 64)));
  ASSERT_OK(extended->arm());
  auto batch = pair_->start();
  batch.send_inline(2, std::as_bytes(std::span{"seven.."}));
  ASSERT_OK(batch.post());
  int seen = 0;
  const auto give_up = soon();
  while (seen < 2 && std::chrono::steady_clock::now() < give_up) {
    auto poll = extended->start_poll();
    ASSERT_OK(poll);
    for (const verbs::ExtendedCompletion& done : *poll) {
      EXPECT_TRUE(done.ok()) << done;
      EXPECT_EQ(done.qp_number(), pair_->number());
      EXPECT_FALSE(done.timestamp().has_value());
      if (done.opcode() == verbs::Opcode::kReceive) {
        EXPECT_EQ(done.length_bytes(), 8U);
        EXPECT_FALSE(done.immediate().has_value());
      }
      ++seen;
    }
  }
  EXPECT_EQ(seen, 2);
}

TEST_F(VerbsMemory, TimestampsAreThereOrUnsupported) {
  const auto queue =
      rig_->device.create_completion_queue({.fields = verbs::CompletionFields::kTimestamp});
  const auto extended = rig_->device.query_extended();
  if (queue) {
    ASSERT_OK(extended);
    EXPECT_NE(extended->completion_timestamp_mask, 0U);
  } else {
    EXPECT_EQ(queue.error().code(), Code::kUnsupported) << queue.error();
  }
}

TEST_F(VerbsMemory, DeviceTellsItsTables) {
  const auto gids = rig_->device.query_gids();
  ASSERT_OK(gids);
  ASSERT_FALSE(gids->empty());
  for (const verbs::GidEntry& entry : *gids) {
    const auto one = rig_->device.query_gid(entry.port, entry.index);
    ASSERT_OK(one);
    EXPECT_EQ(one->gid, entry.gid);
    EXPECT_EQ(one->type, entry.type);
    EXPECT_EQ(one->interface_name(), interface_of(entry));
  }
  const auto taken = rig_->device.choose_gid()->taken();
  ASSERT_OK(taken);
  if (const char* const netdev = std::getenv("REMORA_VM_NETDEV"); netdev != nullptr) {
    EXPECT_EQ(taken->interface_name(), netdev);
  }
  const auto beyond = rig_->device.query_gid(1, 100'000);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code(), Code::kNotFound) << beyond.error();
  EXPECT_EQ(rig_->device.query_pkey(1, 0).value() & 0x7fff, 0x7fff);
  const auto port = rig_->device.query_port(1).value();
  EXPECT_GT(port.width, 0);
  EXPECT_GT(port.gigabits_per_s(), 0.0);
  EXPECT_EQ(port.physical_state, verbs::PhysicalState::kLinkUp);
  const auto extended = rig_->device.query_extended();
  ASSERT_OK(extended);
  EXPECT_EQ(extended->port_count, rig_->device.attributes().port_count);
  const auto entry = verbs::devices().value().find(device_name_).value();
  EXPECT_EQ(entry.node_type(), verbs::NodeType::kChannelAdapter);
  EXPECT_EQ(entry.transport(), verbs::TransportType::kInfiniBand);
  EXPECT_FALSE(entry.guid().is_zero());
  EXPECT_EQ(rig_->device.attributes().system_guid.is_zero(), false);
  std::ostringstream out;
  out << entry << '\n' << rig_->device.attributes() << *extended << port;
  EXPECT_NE(out.str().find("Gb/s"), std::string::npos);
}

TEST_F(VerbsMemory, AsyncStreamIsQuietWhenNothingHappens) {
  auto events = verbs::AsyncEvents::open(rig_->device);
  ASSERT_OK(events);
  const auto none = events->next_event();
  ASSERT_OK(none);
  EXPECT_FALSE(none->has_value());
}

}  // namespace
}  // namespace remora::test
