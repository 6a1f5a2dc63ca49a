#pragma once

/// The client's side of grants whose keys differ from lane to lane, and change when a lane is
/// replaced: what an operation carries is a *token*, a small number of its extent that stays as it
/// is, and the lane looks the key up when it posts.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::transport {

/// The keys of one session, by lane and token. It outlives connections: the lanes of the next one
/// use the same table, with other keys in it.
///
/// Thread-safe, but for set() and forget_keys() of tokens that a lane is posting with at that
/// moment: such a lane is to be broken.
class RkeyTable {
 public:
  /// Of extents that a session has open. What is not used takes address space only.
  static constexpr std::size_t kMaxTokens = std::size_t{1} << 20U;
  static constexpr std::size_t kMaxLanes = 8;
  /// A key that no device assigns: the device refuses a request with it.
  static constexpr std::uint32_t kNoKey = 0;

  /// Errors: kOutOfMemory (of address space).
  [[nodiscard]] static Result<std::shared_ptr<RkeyTable>> create();
  ~RkeyTable();
  RkeyTable(const RkeyTable&) = delete;
  RkeyTable& operator=(const RkeyTable&) = delete;

  /// Unassigned tokens, without keys. Errors: kLimitExceeded (kMaxTokens).
  [[nodiscard]] Result<std::vector<std::uint32_t>> take(std::size_t count);
  /// The caller posts no request that carries them any more.
  void give_back(std::span<const std::uint32_t> tokens) noexcept;
  /// `lane` < kMaxLanes, the token one that take() gave.
  void set(std::uint32_t token, std::size_t lane, std::uint32_t key) noexcept;
  /// The lanes they were of are gone: no token has a key until it is set again.
  void forget_keys() noexcept;
  /// The keys of a lane, by token; as long as the table lives.
  [[nodiscard]] const std::uint32_t* of_lane(std::size_t lane) const noexcept {
    return keys_ + lane * kMaxTokens;
  }
  [[nodiscard]] static std::uint32_t key_of(const std::uint32_t* lane,
                                            std::uint32_t token) noexcept {
    return __atomic_load_n(lane + token, __ATOMIC_RELAXED);
  }
  /// Assigned tokens.
  [[nodiscard]] std::size_t used() const;

 private:
  explicit RkeyTable(std::uint32_t* keys) noexcept : keys_{keys} {}
  void put(std::uint32_t token, std::size_t lane, std::uint32_t key) noexcept {
    __atomic_store_n(keys_ + lane * kMaxTokens + token, key, __ATOMIC_RELAXED);
  }

  std::uint32_t* const keys_;  ///< lane by lane; mapped, and zero where never touched
  mutable remora::detail::Mutex mutex_;
  std::vector<std::uint32_t> free_ REMORA_GUARDED_BY(mutex_);
  /// Tokens from here on were never used. 0 is never assigned, so that a request without a token
  /// has no key.
  std::uint32_t next_ REMORA_GUARDED_BY(mutex_) = 1;
};

}  // namespace remora::transport
