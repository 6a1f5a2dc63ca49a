// What commands do with a region they do with a volume: the cases are the same for both.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include <remora/volume/management.h>

#include "cli/checksum_thread.h"
#include "cli/opened_store.h"
#include "cli/pipeline.h"
#include "support/assert_ok.h"
#include "unit/volume/management_fixture.h"

namespace remora::apps {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kStoreBytes = 6_MiB;
constexpr std::uint64_t kHoleBegin = 1_MiB;
constexpr std::uint64_t kHoleEnd = kHoleBegin + 700'000;

/// No two stripe units are equal. The bytes of the hole are zero.
Bytes pattern_with_hole(std::size_t length) {
  Bytes bytes(length);
  for (std::size_t i = 0; i < length; ++i)
    if (i < kHoleBegin || i >= kHoleEnd) bytes[i] = std::byte(i * 31 + i / 4099);
  return bytes;
}

/// Gives the bytes in pieces, and the hole as such.
class HollowSource final : public UploadSource {
 public:
  explicit HollowSource(const Bytes& bytes) : bytes_{bytes} {}
  Result<Piece> next(std::span<std::byte> into) override {
    if (at_ == bytes_.size()) return Piece{};
    const bool hole = at_ >= kHoleBegin && at_ < kHoleEnd;
    const std::uint64_t end = hole               ? kHoleEnd
                              : at_ < kHoleBegin ? kHoleBegin
                                                 : std::uint64_t{bytes_.size()};
    const Piece piece{at_, hole ? end - at_ : std::min<std::uint64_t>(end - at_, into.size()),
                      hole};
    at_ += piece.length;
    return piece;
  }
  Result<std::size_t> fill(const Piece& piece, std::span<std::byte> into) override {
    std::memcpy(into.data(), bytes_.data() + piece.at, into.size());
    return into.size();
  }

 private:
  const Bytes& bytes_;
  std::uint64_t at_ = 0;
};

/// Several streams write to parts of it that do not overlap.
class BytesTarget final : public DownloadTarget {
 public:
  explicit BytesTarget(std::size_t length) : bytes_(length) {}
  Status write(std::uint64_t at, std::span<const std::byte> bytes) override {
    std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
    return ok_status();
  }
  [[nodiscard]] const Bytes& bytes() const noexcept { return bytes_; }

 private:
  Bytes bytes_;
};

Producer producer_of(const Bytes& bytes) {
  const auto at = std::make_shared<std::size_t>(0);
  return {[&bytes, at](std::span<std::byte> into) -> Result<std::size_t> {
            const std::size_t length = std::min(into.size(), bytes.size() - *at);
            std::memcpy(into.data(), bytes.data() + *at, length);
            *at += length;
            return length;
          },
          [] { return true; }};
}

enum class StoreKind : std::uint8_t { kRegion, kVolume };

class StoreTransfer : public volume::test::Management,
                      public ::testing::WithParamInterface<StoreKind> {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Management::SetUp());
    make();
  }
  void make() {
    if (GetParam() == StoreKind::kRegion) {
      ASSERT_OK(server(0).create_region({.name = "disk", .size_bytes = kStoreBytes}));
      return;
    }
    volume::VolumeSpec of_pieces = spec(kStoreBytes);
    of_pieces.stripe_bytes = 64_KiB;  // a piece of a transfer has several units
    ASSERT_TRUE(volume::create_volume(cluster(), engine(), of_pieces));
  }
  void remove() {
    if (GetParam() == StoreKind::kRegion) {
      ASSERT_OK(server(0).remove_region("disk", Removal::kNow));
      return;
    }
    ASSERT_TRUE(volume::remove_volume(cluster(), engine(), "disk", {.while_open = true}));
  }
  [[nodiscard]] std::string uri() const {
    return GetParam() == StoreKind::kRegion ? "remora://" + address(0) + "/disk?transport=tcp"
                                            : cluster_uri() + "/disk";
  }
  [[nodiscard]] std::unique_ptr<OpenedStore> open(unsigned lanes = 1,
                                                  Rights rights = Rights::kAll) const {
    EngineOptions options;
    options.lanes = lanes;
    auto store = OpenedStore::open({}, uri(), rights, "test", options);
    EXPECT_TRUE(store) << store.error().text;
    return std::move(*store);
  }
};

TEST_P(StoreTransfer, NameAndSizeAreThere) {
  const auto opened = open();
  const OpenedStore& store = *opened;
  EXPECT_EQ(store.size_bytes(), kStoreBytes);
  EXPECT_EQ(store.name(), GetParam() == StoreKind::kRegion ? "region disk" : "volume disk");
  EXPECT_EQ(store.transport(), "tcp");
  EXPECT_EQ(store.row_bytes(), GetParam() == StoreKind::kRegion ? 0U : 3 * 64_KiB);
  EXPECT_TRUE(store.connected());
  EXPECT_FALSE(store.mapped());
}

TEST_P(StoreTransfer, BytesAndHolesComeBack) {
  constexpr std::uint64_t kOffset = 5;
  const Bytes bytes = pattern_with_hole(3'000'001);
  for (const unsigned streams : {1U, 3U}) {
    const auto opened = open(streams);
    const OpenedStore& store = *opened;
    const Bytes before(kStoreBytes, std::byte{0xff});
    ASSERT_OK(upload(store, 0, kStoreBytes, producer_of(before)).status);

    auto sum = ChecksumThread::start(Checksum::make(ChecksumKind::kSha256).value(), 0).value();
    TransferJob job{.store = store};
    job.offset = kOffset;
    job.length = kStoreBytes - kOffset;
    job.streams = streams;
    job.visible = true;
    job.checksum = sum.get();
    HollowSource source{bytes};
    const Transferred put = upload(job, source);
    ASSERT_OK(put.status);
    EXPECT_EQ(put.bytes, bytes.size());
    Checksum wanted = Checksum::make(ChecksumKind::kSha256).value();
    wanted.update(bytes);
    EXPECT_EQ(sum->digest(), wanted.digest());

    job.checksum = nullptr;
    job.offset = 0;
    job.length = kStoreBytes;
    BytesTarget target{kStoreBytes};
    const Transferred got = download(job, target);
    ASSERT_OK(got.status);
    EXPECT_EQ(got.bytes, kStoreBytes);
    Bytes all = before;
    std::copy(bytes.begin(), bytes.end(), all.begin() + kOffset);
    EXPECT_TRUE(target.bytes() == all) << streams;
  }
}

TEST_P(StoreTransfer, TransferGoesOnBehindItsFirstByte) {
  const auto opened = open();
  const OpenedStore& store = *opened;
  const Bytes bytes = pattern_with_hole(kStoreBytes);
  ASSERT_OK(upload(store, 0, kStoreBytes, producer_of(bytes)).status);
  TransferJob job{.store = store};
  job.first = 2_MiB;
  job.length = kStoreBytes;
  BytesTarget target{kStoreBytes};
  const Transferred got = download(job, target);
  ASSERT_OK(got.status);
  EXPECT_EQ(got.bytes, kStoreBytes - 2_MiB);
  EXPECT_TRUE(std::equal(bytes.begin() + 2_MiB, bytes.end(), target.bytes().begin() + 2_MiB));
  EXPECT_EQ(target.bytes().front(), std::byte{0});
}

TEST_P(StoreTransfer, BytesBeyondTheRoomAreRefused) {
  const auto opened = open();
  const OpenedStore& store = *opened;
  const Transferred put = upload(store, kStoreBytes - 100, 100, producer_of(Bytes(200)));
  ASSERT_FALSE(put.status);
  EXPECT_EQ(put.status.error().code(), Code::kLimitExceeded);
  EXPECT_EQ(put.status.error().operation(), kBeyondRoom);
  BytesTarget target{200};
  TransferJob job{.store = store};
  job.offset = kStoreBytes - 100;
  job.length = 200;
  const Transferred got = download(job, target);
  ASSERT_FALSE(got.status);
  EXPECT_EQ(got.status.error().code(), Code::kOutOfRange);
}

TEST_P(StoreTransfer, TransferWithoutTheRightFails) {
  const auto opened = open(1, Rights::kRead);
  const OpenedStore& store = *opened;
  const Transferred put = upload(store, 0, 100, producer_of(Bytes(100)));
  ASSERT_FALSE(put.status);
  EXPECT_EQ(put.status.error().code(), Code::kNoRight);
}

TEST_P(StoreTransfer, AtomicsTakeEffect) {
  const auto opened = open();
  const OpenedStore& store = *opened;
  EXPECT_EQ(store.fetch_add(ByteOffset{8}, 5).value(), 0U);
  EXPECT_EQ(store.compare_swap(ByteOffset{8}, 5, 7).value(), 5U);
  EXPECT_EQ(store.fetch_add(ByteOffset{8}, 0).value(), 7U);
}

TEST_P(StoreTransfer, IdentityIsThatOfTheContents) {
  const auto identity = [&] { return open()->identity(0, kStoreBytes); };
  const Json before = identity();
  EXPECT_TRUE(identity() == before);
  remove();
  make();
  EXPECT_TRUE(identity() != before);
}

using VolumeIdentity = volume::test::Management;

/// As 'remora volume accept-loss' gives a lost group a new region, whose bytes are zeroes.
TEST_F(VolumeIdentity, IsAnotherForTheBytesOfAGroupThatHasANewRegion) {
  ASSERT_TRUE(volume::create_volume(cluster(), engine(), spec()));
  const auto identity = [&](std::uint64_t offset, std::uint64_t length) {
    const auto store = OpenedStore::open({}, cluster_uri() + "/disk", Rights::kRead, "test");
    EXPECT_TRUE(store) << store.error().text;
    return (*store)->identity(offset, length);
  };
  const Json first_row = identity(0, 3_MiB);
  const Json second_row = identity(3_MiB, 3_MiB);
  EXPECT_TRUE(first_row != second_row);
  ASSERT_TRUE(volume::resize_volume(cluster(), engine(), "disk", 9_MiB));
  EXPECT_TRUE(identity(0, 3_MiB) == first_row);
  EXPECT_TRUE(identity(3_MiB, 3_MiB) == second_row);

  const volume::VolumeLayout layout = cluster().layout("disk").value();
  volume::GroupRecord group = layout.groups[4];
  volume::Member& member = group.members[0];
  const auto region = server(member.server.back() - '0')
                          .create_region({.name = volume::region_name(layout.volume.id, 4, 1),
                                          .size_bytes = 1_MiB});
  ASSERT_OK(region);
  member.region = region->name;
  member.incarnation = region->incarnation;
  ASSERT_OK(cluster().store().commit(
      {{}, {{cluster().keys().group("disk", 4), to_json(group), volume::kNoLease}}}, kLimit));
  EXPECT_TRUE(identity(0, 3_MiB) == first_row);
  EXPECT_TRUE(identity(3_MiB, 3_MiB) != second_row);
}

TEST_P(StoreTransfer, NamesTellStoresApart) {
  ASSERT_TRUE(check_store_uri(uri()));
  EXPECT_TRUE(store_names(uri()) == store_names(uri()));
  EXPECT_TRUE(store_names(uri()) != store_names(cluster_uri() + "/other"));
  EXPECT_TRUE(store_names(uri()) != store_names("remora://" + address(1) + "/disk"));
}

TEST_P(StoreTransfer, StoreThatIsNotThereIsExplained) {
  remove();
  const auto store = OpenedStore::open({}, uri(), Rights::kRead, "put disk.img");
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().exit_code, ExitCode::kRefused);
  EXPECT_TRUE(store.error().text.starts_with("put disk.img: ")) << store.error().text;
}

INSTANTIATE_TEST_SUITE_P(Region, StoreTransfer, ::testing::Values(StoreKind::kRegion));
INSTANTIATE_TEST_SUITE_P(Volume, StoreTransfer, ::testing::Values(StoreKind::kVolume));

TEST(StoreUri, OneWithoutARegionOrVolumeIsRefused) {
  for (const char* const wrong :
       {"remora://host", "remora+file:///c.json", "remora+etcd://host/lab", "remora+file://c/disk",
        "http://host/disk", ""}) {
    const auto checked = check_store_uri(wrong);
    ASSERT_FALSE(checked) << wrong;
    EXPECT_EQ(checked.error().exit_code, ExitCode::kUsage) << wrong;
  }
}

}  // namespace
}  // namespace remora::apps
