#include "server/warm/kept_catalog.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <openssl/evp.h>
#include <set>
#include <utility>

#include <remora/config/server_config.h>

#include "base/little_endian.h"
#include "protocol/messages.h"
#include "remora_warm.pb.h"
#include "server/warm/catalog_version.h"

namespace remora::detail {

namespace {

constexpr std::size_t kDigestBytes = 32;
/// The most bytes of the name that a client gives itself, made printable.
constexpr std::size_t kMaxClientNameBytes = 1024;

Error not_whole(std::string_view what) {
  return Error{Code::kProtocol, "catalog of the memory"}.with_subject(what);
}

Error not_whole(const std::string& region, std::string_view what) {
  return not_whole("region " + region + ": " + std::string{what});
}

template <typename Message>
std::vector<std::byte> serialised(const Message& message) {
  std::vector<std::byte> bytes(message.ByteSizeLong());
  message.SerializeWithCachedSizesToArray(reinterpret_cast<std::uint8_t*>(bytes.data()));
  return bytes;
}

template <typename Message>
Status parse_record(std::span<const std::byte> bytes, Message& message) {
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return not_whole("it cannot be parsed");
  if (message.version() == 0 || message.oldest_reader() > catalog_version())
    return not_whole("it is of version " + std::to_string(message.version()) +
                     ", which this version does not read")
        .with_reason(Reason::kVersion);
  if (message.memory_id() == 0) return not_whole("it has no memory id");
  return {};
}

void put_region(const KeptRegion& region, warm::Region& message) {
  const RegionInfo& info = region.info;
  message.set_name(info.name);
  message.set_size_bytes(info.size_bytes);
  message.set_block_bytes(info.block_bytes);
  message.set_rights(static_cast<std::uint32_t>(info.rights));
  message.set_atomic_domain(info.atomic_domain);
  message.set_shm(info.shm);
  message.set_epoch(info.epoch);
  message.set_incarnation(info.incarnation);
  message.set_owner(info.owner);
  for (const RegionAccess& access : info.access) {
    warm::Access& entry = *message.add_access();
    entry.set_client(access.client);
    entry.set_rights(static_cast<std::uint32_t>(access.rights));
    entry.set_admin(access.admin);
  }
  message.set_lifetime(static_cast<std::uint32_t>(info.lifetime));
  message.set_ttl_ms(static_cast<std::uint64_t>(info.ttl.count()));
  message.set_session_id(region.session_id);
  for (const PoolExtent& extent : region.extents) {
    warm::Extent& entry = *message.add_extents();
    entry.set_offset_bytes(extent.offset_bytes);
    entry.set_length_bytes(extent.length_bytes);
  }
  message.set_memory(region.memory);
  message.set_memory_address(region.memory_address);
}

KeptRegion to_region(const warm::Region& message) {
  KeptRegion region;
  RegionInfo& info = region.info;
  info.name = message.name();
  info.size_bytes = message.size_bytes();
  info.block_bytes = message.block_bytes();
  info.rights = static_cast<Rights>(message.rights());
  info.atomic_domain = message.atomic_domain();
  info.shm = message.shm();
  info.epoch = message.epoch();
  info.incarnation = message.incarnation();
  info.extent_count = static_cast<std::uint64_t>(message.extents_size());
  info.owner = message.owner();
  for (const warm::Access& entry : message.access())
    info.access.push_back({.client = entry.client(),
                           .rights = static_cast<Rights>(entry.rights()),
                           .admin = entry.admin()});
  info.lifetime = static_cast<Lifetime>(message.lifetime());
  info.ttl = std::chrono::milliseconds{message.ttl_ms()};
  region.session_id = message.session_id();
  for (const warm::Extent& entry : message.extents())
    region.extents.push_back({entry.offset_bytes(), entry.length_bytes()});
  region.memory = message.memory();
  region.memory_address = message.memory_address();
  return region;
}

/// Checks numbers that are enumerators or bits, before they are cast.
Status check_words(const warm::Region& message) {
  constexpr auto kAllRights = static_cast<std::uint32_t>(Rights::kAll);
  if (message.rights() == 0 || message.rights() > kAllRights)
    return not_whole(message.name(), "its rights");
  if (message.lifetime() > static_cast<std::uint32_t>(Lifetime::kTtl) ||
      message.ttl_ms() > control::kMaxTtlMs ||
      (message.lifetime() == static_cast<std::uint32_t>(Lifetime::kTtl)) != (message.ttl_ms() != 0))
    return not_whole(message.name(), "its lifetime");
  if (static_cast<std::size_t>(message.access_size()) > kMaxRegionAccess)
    return not_whole(message.name(), "its access list");
  for (const warm::Access& entry : message.access())
    if (entry.rights() > kAllRights) return not_whole(message.name(), "its access list");
  return {};
}

Status check_pool(const KeptPool& pool) {
  const bool pages =
      std::has_single_bit(pool.page_bytes) && pool.page_bytes >= config::kPoolPageBytes;
  if (!pages || pool.piece_bytes == 0 || pool.piece_bytes % config::kPoolPageBytes != 0 ||
      pool.size_bytes == 0 || pool.size_bytes % config::kPoolPageBytes != 0)
    return not_whole("the numbers of the pool");
  return {};
}

Status check_region(const KeptRegion& region, std::uint64_t next_epoch) {
  const RegionInfo& info = region.info;
  if (!config::is_region_name(info.name)) return not_whole("the name of a region");
  if (!std::has_single_bit(info.block_bytes) || info.size_bytes == 0 ||
      info.size_bytes % info.block_bytes != 0)
    return not_whole(info.name, "its size");
  if (info.incarnation == 0 || info.epoch < info.incarnation || info.epoch >= next_epoch)
    return not_whole(info.name, "its epoch");
  if (info.atomic_domain.empty()) return not_whole(info.name, "its atomic domain");
  if (info.shm == region.memory.empty()) return not_whole(info.name, "its own memory");
  if (info.lifetime != Lifetime::kSession && region.session_id != 0)
    return not_whole(info.name, "the session that it belongs to");
  return {};
}

/// `taken`: the extents of the earlier regions, by offset.
Status check_extents(const KeptRegion& region, const KeptPool& pool,
                     std::map<std::uint64_t, std::uint64_t>& taken) {
  const std::string& name = region.info.name;
  std::uint64_t sum_bytes = 0;
  for (const PoolExtent& extent : region.extents) {
    const std::uint64_t at = extent.offset_bytes;
    const std::uint64_t length = extent.length_bytes;
    if (length == 0 || at % config::kPoolPageBytes != 0 || length % config::kPoolPageBytes != 0 ||
        at >= pool.size_bytes || length > pool.size_bytes - at)
      return not_whole(name, "an extent outside of the pool");
    if (at / pool.piece_bytes != (at + length - 1) / pool.piece_bytes)
      return not_whole(name, "an extent that crosses a piece of the pool");
    const auto next = taken.lower_bound(at);
    if (next != taken.end() && next->first < at + length)
      return not_whole(name, "an extent overlaps");
    if (next != taken.begin() && std::prev(next)->first + std::prev(next)->second > at)
      return not_whole(name, "an extent overlaps");
    taken.emplace(at, length);
    sum_bytes += length;
  }
  // The sum cannot wrap: the extents do not overlap.
  if (sum_bytes < region.info.size_bytes || sum_bytes - region.info.size_bytes >= pool.page_bytes)
    return not_whole(name, "its extents are not as long as it is");
  return {};
}

Status check_whole(const KeptCatalog& catalog) {
  if (auto pool = check_pool(catalog.pool); !pool) return pool;
  std::map<std::uint64_t, std::uint64_t> taken;
  std::set<std::string_view> names;
  std::set<std::uint64_t> incarnations;
  std::set<std::string_view> memories;
  for (const KeptRegion& region : catalog.regions) {
    if (auto status = check_region(region, catalog.next_epoch); !status) return status;
    if (!names.insert(region.info.name).second)
      return not_whole(region.info.name, "it is there twice");
    if (!incarnations.insert(region.info.incarnation).second)
      return not_whole(region.info.name, "another region has its incarnation");
    if (!region.memory.empty() && !memories.insert(region.memory).second)
      return not_whole(region.info.name, "another region has its memory");
    if (auto status = check_extents(region, catalog.pool, taken); !status) return status;
  }
  return {};
}

}  // namespace

std::vector<std::byte> encode(const KeptCatalog& catalog) {
  warm::Catalog message;
  message.set_version(catalog_version());
  message.set_oldest_reader(catalog_oldest_reader());
  message.set_memory_id(catalog.memory_id);
  warm::Pool& pool = *message.mutable_pool();
  pool.set_size_bytes(catalog.pool.size_bytes);
  pool.set_piece_bytes(catalog.pool.piece_bytes);
  pool.set_page_bytes(catalog.pool.page_bytes);
  pool.set_huge(catalog.pool.huge);
  pool.set_address(catalog.pool.address);
  message.set_next_epoch(catalog.next_epoch);
  for (const KeptRegion& region : catalog.regions) put_region(region, *message.add_regions());
  return serialised(message);
}

Result<KeptCatalog> decode_catalog(std::span<const std::byte> bytes) {
  warm::Catalog message;
  if (auto parsed = parse_record(bytes, message); !parsed) return parsed.error();
  KeptCatalog catalog{.memory_id = message.memory_id(),
                      .pool = {.size_bytes = message.pool().size_bytes(),
                               .piece_bytes = message.pool().piece_bytes(),
                               .page_bytes = message.pool().page_bytes(),
                               .huge = message.pool().huge(),
                               .address = message.pool().address()},
                      .next_epoch = message.next_epoch(),
                      .regions = {}};
  catalog.regions.reserve(static_cast<std::size_t>(message.regions_size()));
  for (const warm::Region& region : message.regions()) {
    if (auto status = check_words(region); !status) return status.error();
    catalog.regions.push_back(to_region(region));
  }
  if (auto status = check_whole(catalog); !status) return status.error();
  return catalog;
}

std::vector<std::byte> encode(const KeptSessions& sessions) {
  warm::Sessions message;
  message.set_version(catalog_version());
  message.set_oldest_reader(catalog_oldest_reader());
  message.set_memory_id(sessions.memory_id);
  message.set_process_namespace(sessions.process_namespace);
  for (const KeptSession& session : sessions.sessions) {
    warm::Session& entry = *message.add_sessions();
    entry.set_id(session.id);
    entry.set_client_name(session.client_name);
    entry.set_proven(session.proven);
    entry.set_secret_digest(session.secret_digest);
    entry.set_transport(static_cast<std::uint32_t>(session.transport));
    entry.set_resumable(session.resumable);
    entry.set_process_id(session.process_id);
    entry.set_process_began(session.process_began);
  }
  return serialised(message);
}

Result<KeptSessions> decode_sessions(std::span<const std::byte> bytes) {
  warm::Sessions message;
  if (auto parsed = parse_record(bytes, message); !parsed) return parsed.error();
  KeptSessions sessions{.memory_id = message.memory_id(),
                        .process_namespace = message.process_namespace(),
                        .sessions = {}};
  std::set<std::uint64_t> ids;
  for (const warm::Session& entry : message.sessions()) {
    if (entry.id() == 0 || !ids.insert(entry.id()).second ||
        entry.client_name().size() > kMaxClientNameBytes ||
        (!entry.secret_digest().empty() && entry.secret_digest().size() != kDigestBytes) ||
        entry.transport() == 0 ||
        entry.transport() > static_cast<std::uint32_t>(TransportKind::kTcp))
      return not_whole("the list of sessions");
    sessions.sessions.push_back({.id = entry.id(),
                                 .client_name = entry.client_name(),
                                 .proven = entry.proven(),
                                 .secret_digest = entry.secret_digest(),
                                 .transport = static_cast<TransportKind>(entry.transport()),
                                 .resumable = entry.resumable(),
                                 .process_id = entry.process_id(),
                                 .process_began = entry.process_began()});
  }
  return sessions;
}

std::string digest_of(std::uint64_t lane_secret) {
  std::array<std::byte, sizeof lane_secret> bytes{};
  put_little_endian(bytes.data(), lane_secret);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  if (::EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, ::EVP_sha256(), nullptr) !=
          1 ||
      length != kDigestBytes)
    return {};
  return {reinterpret_cast<const char*>(digest.data()), length};
}

}  // namespace remora::detail
