#pragma once

/// The client's table of remote keys for grants whose keys differ from lane to lane and change when
/// a lane is replaced. An operation carries a *token*, a small number of its extent that does not
/// change; the lane looks up the key when it posts.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::transport {

/// The keys of one session, by lane and token. It outlives connections: the lanes of the next
/// connection use the same table, with other keys in it.
///
/// Thread-safe, except that set() and forget_keys() must not change tokens with which a lane is
/// posting, unless that lane is broken.
class RkeyTable {
 public:
  /// The most tokens of extents that a session has open. Unused entries take address space only.
  static constexpr std::size_t kMaxTokens = std::size_t{1} << 20U;
  static constexpr std::size_t kMaxLanes = 8;
  /// A key that no device assigns: a device refuses a request with this key.
  static constexpr std::uint32_t kNoKey = 0;

  /// Errors: kOutOfMemory (of address space).
  [[nodiscard]] static Result<std::shared_ptr<RkeyTable>> create();
  ~RkeyTable();
  RkeyTable(const RkeyTable&) = delete;
  RkeyTable& operator=(const RkeyTable&) = delete;

  /// Takes `count` unassigned tokens, without keys. Errors: kLimitExceeded (kMaxTokens).
  [[nodiscard]] Result<std::vector<std::uint32_t>> take(std::size_t count);
  /// Returns tokens. The caller posts no request with them any more.
  void give_back(std::span<const std::uint32_t> tokens) noexcept;
  /// Sets the key of `token`, which take() has returned, for `lane` < kMaxLanes.
  void set(std::uint32_t token, std::size_t lane, std::uint32_t key) noexcept;
  /// The lanes have ended: no token has a key until set() sets one.
  void forget_keys() noexcept;
  /// The keys of a lane, by token; valid as long as the table lives.
  [[nodiscard]] const std::uint32_t* of_lane(std::size_t lane) const noexcept {
    return keys_ + lane * kMaxTokens;
  }
  [[nodiscard]] static std::uint32_t key_of(const std::uint32_t* lane,
                                            std::uint32_t token) noexcept {
    return __atomic_load_n(lane + token, __ATOMIC_RELAXED);
  }
  /// The number of assigned tokens.
  [[nodiscard]] std::size_t used() const;

 private:
  explicit RkeyTable(std::uint32_t* keys) noexcept : keys_{keys} {}
  void put(std::uint32_t token, std::size_t lane, std::uint32_t key) noexcept {
    __atomic_store_n(keys_ + lane * kMaxTokens + token, key, __ATOMIC_RELAXED);
  }

  std::uint32_t* const keys_;  ///< one row for each lane; mapped memory, initially zero
  mutable remora::detail::Mutex mutex_;
  std::vector<std::uint32_t> free_ REMORA_GUARDED_BY(mutex_);
  /// Tokens from here on were never used. Token 0 is never assigned, so that a request without a
  /// token has no key.
  std::uint32_t next_ REMORA_GUARDED_BY(mutex_) = 1;
};

}  // namespace remora::transport
