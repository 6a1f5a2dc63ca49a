/// A catalog is taken whole or not at all.

#include "server/warm/kept_catalog.h"

#include <functional>
#include <gtest/gtest.h>
#include <string>

#include "remora_warm.pb.h"
#include "server/warm/catalog_version.h"

namespace remora::detail {
namespace {

constexpr std::uint64_t kPage = 4096;

KeptRegion region(std::string name, std::uint64_t incarnation, std::uint64_t offset_bytes) {
  return {.info = {.name = std::move(name),
                   .size_bytes = 2 * kPage,
                   .block_bytes = kPage,
                   .rights = Rights::kAll,
                   .atomic_domain = "cpu",
                   .epoch = incarnation + 1,
                   .incarnation = incarnation,
                   .extent_count = 1},
          .extents = {{offset_bytes, 2 * kPage}}};
}

KeptCatalog catalog() {
  KeptCatalog made{.memory_id = 7,
                   .pool = {.size_bytes = 64 * kPage,
                            .piece_bytes = 16 * kPage,
                            .page_bytes = kPage,
                            .huge = false,
                            .address = 0x200000000000},
                   .next_epoch = 40,
                   .regions = {region("a", 1, 0), region("b", 3, 4 * kPage)}};
  RegionInfo& info = made.regions[1].info;
  info.owner = "backup";
  info.access = {{.client = "*", .rights = Rights::kRead, .admin = false}};
  info.lifetime = Lifetime::kTtl;
  info.ttl = std::chrono::milliseconds{500};
  return made;
}

TEST(KeptCatalogTest, IsReadAsItWasWritten) {
  const auto read = decode_catalog(encode(catalog()));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->memory_id, 7U);
  EXPECT_EQ(read->next_epoch, 40U);
  EXPECT_EQ(read->pool.address, 0x200000000000U);
  ASSERT_EQ(read->regions.size(), 2U);
  const RegionInfo& info = read->regions[1].info;
  EXPECT_EQ(info.name, "b");
  EXPECT_EQ(info.owner, "backup");
  EXPECT_EQ(info.access, catalog().regions[1].info.access);
  EXPECT_EQ(info.lifetime, Lifetime::kTtl);
  EXPECT_EQ(info.ttl, std::chrono::milliseconds{500});
  EXPECT_EQ(info.epoch, 4U);
  EXPECT_EQ(info.incarnation, 3U);
  ASSERT_EQ(read->regions[1].extents.size(), 1U);
  EXPECT_EQ(read->regions[1].extents[0].offset_bytes, 4 * kPage);
}

struct Fault {
  const char* what;
  std::function<void(KeptCatalog&)> make;
};

TEST(KeptCatalogTest, CatalogThatContradictsItselfIsRefused) {
  const std::vector<Fault> faults{
      {"no memory id", [](auto& c) { c.memory_id = 0; }},
      {"overlap", [](auto& c) { c.regions[1].extents[0].offset_bytes = kPage; }},
      {"the same extent", [](auto& c) { c.regions[1].extents[0].offset_bytes = 0; }},
      {"overlap from below",
       [](auto& c) {
         c.regions[0].extents = {{4 * kPage, 2 * kPage}};
         c.regions[1].extents = {{3 * kPage, 2 * kPage}};
       }},
      {"within one region",
       [](auto& c) {
         c.regions[0].extents = {{0, kPage}, {0, kPage}};
       }},
      {"outside", [](auto& c) { c.regions[1].extents[0].offset_bytes = 63 * kPage; }},
      {"far outside", [](auto& c) { c.regions[1].extents[0].offset_bytes = ~(kPage - 1); }},
      {"wraps", [](auto& c) { c.regions[1].extents[0].length_bytes = ~(kPage - 1); }},
      {"crosses a piece", [](auto& c) { c.regions[1].extents[0].offset_bytes = 15 * kPage; }},
      {"no page", [](auto& c) { c.regions[1].extents[0].offset_bytes += 1; }},
      {"too short", [](auto& c) { c.regions[1].extents[0].length_bytes = kPage; }},
      {"too long", [](auto& c) { c.regions[1].extents[0].length_bytes = 3 * kPage; }},
      {"no extents", [](auto& c) { c.regions[1].extents.clear(); }},
      {"two of a name", [](auto& c) { c.regions[1].info.name = "a"; }},
      {"a name that is none", [](auto& c) { c.regions[1].info.name = "../a"; }},
      {"an incarnation twice", [](auto& c) { c.regions[1].info.incarnation = 1; }},
      {"no incarnation", [](auto& c) { c.regions[1].info.incarnation = 0; }},
      {"an epoch before it", [](auto& c) { c.regions[1].info.epoch = 2; }},
      {"an epoch to come", [](auto& c) { c.next_epoch = 4; }},
      {"rights of none", [](auto& c) { c.regions[1].info.rights = Rights::kNone; }},
      {"a block of no size", [](auto& c) { c.regions[1].info.block_bytes = 3; }},
      {"a ttl of no lifetime", [](auto& c) { c.regions[1].info.lifetime = Lifetime::kPersistent; }},
      {"memory without shm", [](auto& c) { c.regions[1].memory = "remora-region-3"; }},
      {"shm without memory", [](auto& c) { c.regions[1].info.shm = true; }},
      {"a session of no lifetime", [](auto& c) { c.regions[1].session_id = 5; }},
      {"no pool", [](auto& c) { c.pool.size_bytes = 0; }},
      {"pages of no size", [](auto& c) { c.pool.page_bytes = 5000; }},
  };
  ASSERT_TRUE(decode_catalog(encode(catalog())));
  for (const Fault& fault : faults) {
    KeptCatalog wrong = catalog();
    fault.make(wrong);
    const auto read = decode_catalog(encode(wrong));
    ASSERT_FALSE(read) << fault.what;
    EXPECT_EQ(read.error().code(), Code::kProtocol) << fault.what;
    EXPECT_FALSE(read.error().subject().empty()) << fault.what;
  }
}

/// The CRC of the record finds damage; what it does not find must not crash.
TEST(KeptCatalogTest, DamagedOrShortBytesAreReadOrRefusedAndNeverOverlap) {
  const std::vector<std::byte> whole = encode(catalog());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const unsigned bits : {0x01U, 0x80U, 0xffU}) {
      std::vector<std::byte> damaged = whole;
      damaged[i] ^= static_cast<std::byte>(bits);
      (void)decode_catalog(damaged);
    }
    (void)decode_catalog(std::span{whole}.first(i));
  }
}

warm::Catalog message_of(const KeptCatalog& from) {
  warm::Catalog message;
  const std::vector<std::byte> bytes = encode(from);
  EXPECT_TRUE(message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  return message;
}

std::vector<std::byte> bytes_of(const warm::Catalog& message) {
  std::vector<std::byte> bytes(message.ByteSizeLong());
  EXPECT_TRUE(message.SerializeToArray(bytes.data(), static_cast<int>(bytes.size())));
  return bytes;
}

/// A field 1000 of one byte, as a later version may add.
constexpr std::byte kUnknownField[] = {std::byte{0xc0}, std::byte{0x3e}, std::byte{1}};

TEST(KeptCatalogTest, LaterVersionThatThisOneMayReadIsTaken) {
  warm::Catalog message = message_of(catalog());
  message.set_version(catalog_version() + 1);
  message.set_oldest_reader(catalog_version());
  std::vector<std::byte> bytes = bytes_of(message);
  bytes.insert(bytes.end(), std::begin(kUnknownField), std::end(kUnknownField));
  const auto read = decode_catalog(bytes);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->regions.size(), 2U);
}

TEST(KeptCatalogTest, LaterVersionThatThisOneMustNotReadIsRefused) {
  warm::Catalog message = message_of(catalog());
  message.set_version(catalog_version() + 1);
  message.set_oldest_reader(catalog_version() + 1);
  const auto read = decode_catalog(bytes_of(message));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().reason(), Reason::kVersion);
}

TEST(KeptCatalogTest, WordsOfALaterVersionAreRefused) {
  for (const auto& make : std::vector<std::function<void(warm::Region&)>>{
           [](warm::Region& r) { r.set_rights(8); }, [](warm::Region& r) { r.set_lifetime(3); }}) {
    warm::Catalog message = message_of(catalog());
    make(*message.mutable_regions(0));
    EXPECT_FALSE(decode_catalog(bytes_of(message)));
  }
}

TEST(KeptCatalogTest, SessionsAreReadAsTheyWereWritten) {
  const KeptSessions sessions{.memory_id = 7,
                              .sessions = {{.id = 1,
                                            .client_name = "a",
                                            .proven = true,
                                            .secret_digest = digest_of(5),
                                            .transport = TransportKind::kShm,
                                            .resumable = true,
                                            .process_id = 12,
                                            .process_began = 34}}};
  const auto read = decode_sessions(encode(sessions));
  ASSERT_TRUE(read) << read.error().message();
  ASSERT_EQ(read->sessions.size(), 1U);
  EXPECT_EQ(read->sessions[0].secret_digest, digest_of(5));
  EXPECT_EQ(read->sessions[0].transport, TransportKind::kShm);
  EXPECT_EQ(read->sessions[0].process_began, 34U);
  KeptSessions twice = sessions;
  twice.sessions.push_back(twice.sessions[0]);
  EXPECT_FALSE(decode_sessions(encode(twice)));
}

TEST(KeptCatalogTest, SecretIsNotInItsDigest) {
  EXPECT_EQ(digest_of(5).size(), 32U);
  EXPECT_NE(digest_of(5), digest_of(6));
}

}  // namespace
}  // namespace remora::detail
