#pragma once

/// The data that a process leaves to the next one, and its encoding (remora_warm.proto).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <remora/engine/region.h>
#include <remora/engine/types.h>
#include <remora/result.h>

#include "server/memory/pool_share.h"

namespace remora::detail {

struct KeptPool {
  std::uint64_t size_bytes = 0;
  std::uint64_t piece_bytes = 0;
  std::uint64_t page_bytes = 0;  ///< a region uses whole pages
  bool huge = false;
  std::uint64_t address = 0;  ///< where the process had mapped it
};

struct KeptRegion {
  RegionInfo info{};
  std::uint64_t session_id = 0;  ///< of Lifetime::kSession: the session that created it
  std::vector<PoolExtent> extents{};
  std::string memory{};  ///< the name of its own memfd (shm) in the store; empty: none
  std::uint64_t memory_address = 0;
};

struct KeptCatalog {
  std::uint64_t memory_id = 0;
  KeptPool pool{};
  std::uint64_t next_epoch = 0;
  std::vector<KeptRegion> regions{};
};

/// A session whose client may attach again, or whose process may have memory mapped (shm).
struct KeptSession {
  std::uint64_t id = 0;
  std::string client_name{};
  bool proven = false;          ///< by a key
  std::string secret_digest{};  ///< of its lane secret: digest_of()
  TransportKind transport = TransportKind::kAuto;
  bool resumable = false;
  std::uint64_t process_id = 0;  ///< over shm; 0: not known
  std::uint64_t process_began = 0;
};

struct KeptSessions {
  std::uint64_t memory_id = 0;
  std::uint64_t process_namespace = 0;  ///< that of the process ids: see process_namespace()
  std::vector<KeptSession> sessions{};
};

[[nodiscard]] std::vector<std::byte> encode(const KeptCatalog& catalog);
[[nodiscard]] std::vector<std::byte> encode(const KeptSessions& sessions);

/// Also checks that the catalog is consistent: create() could have made every region, the extents
/// lie in pieces of the pool, are as long as the region, and do not overlap. Errors: kProtocol,
/// kVersion; the subject says what is wrong.
Result<KeptCatalog> decode_catalog(std::span<const std::byte> bytes);
/// Errors: kProtocol; the subject says what is wrong.
Result<KeptSessions> decode_sessions(std::span<const std::byte> bytes);

/// The SHA-256 of the secret. Empty if the library refuses it.
[[nodiscard]] std::string digest_of(std::uint64_t lane_secret);

}  // namespace remora::detail
