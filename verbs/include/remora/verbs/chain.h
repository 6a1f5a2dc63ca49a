#pragma once

/// ChainStorage: preallocated room for the requests of a batch, already linked to each other.
///
/// Thread safety: for one batch, and so for one thread, at a time.

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <utility>

#include <remora/result.h>
#include <remora/verbs/transport.h>

namespace remora::verbs {

template <Transport T>
class Batch;
template <typename Target>
class BasicReceiveBatch;

namespace detail {

/// The array behind a batch: requests already linked to each other, each with its gather list right
/// behind it, so that no pointer must be read to find it.
template <typename WorkRequest>
struct Chain {
  std::unique_ptr<std::byte[]> block;  ///< capacity + 1: the last is for refused requests
  WorkRequest* spare = nullptr;        ///< that last one, which nothing follows
  std::size_t stride_bytes = 0;
  std::uint32_t capacity = 0;
  std::uint32_t elements_per_request = 0;
  const void* owner = nullptr;  ///< the batch that has requests in it

  static std::unique_ptr<Chain> allocate(std::uint32_t capacity,
                                         std::uint32_t elements_per_request) noexcept;
  /// Request `index`, below capacity; at capacity: the spare one.
  [[nodiscard]] WorkRequest* at(std::size_t index) const noexcept {
    return reinterpret_cast<WorkRequest*>(block.get() + index * stride_bytes);
  }
  /// The inverse of at().
  [[nodiscard]] std::uint32_t index_of(const WorkRequest* request) const noexcept {
    return static_cast<std::uint32_t>(
        static_cast<std::size_t>(reinterpret_cast<const std::byte*>(request) - block.get()) /
        stride_bytes);
  }
  /// The request in front of it. Not for the first one.
  [[nodiscard]] WorkRequest* before(WorkRequest* request) const noexcept {
    return reinterpret_cast<WorkRequest*>(reinterpret_cast<std::byte*>(request) - stride_bytes);
  }
  /// Its gather list, of elements_per_request elements.
  [[nodiscard]] static ibv_sge* elements_of(WorkRequest* request) noexcept {
    return reinterpret_cast<ibv_sge*>(request + 1);
  }
};
extern template struct Chain<ibv_send_wr>;
extern template struct Chain<ibv_recv_wr>;

/// The wrong part of a request, if its code alone does not tell.
enum class MisuseOf : std::uint8_t { kRequest, kSlices, kInlineBytes, kInlineRead };

/// The first misuse of a batch, which post() returns.
struct Misuse {
  Code code;
  MisuseOf what;
  std::uint32_t request_index;
  std::uint32_t size;  ///< of the batch, which takes no more
  std::uint64_t asked;
  std::uint64_t allowed;
  /// What post() returns, as an error of `operation`.
  [[nodiscard]] Error error(Operation operation) const;
};

/// The error of a post that returned `result`; the provider has taken `taken` of `count` requests.
[[nodiscard]] Error post_error(Operation operation, int result, std::size_t taken,
                               std::size_t count);

}  // namespace detail

/// Preallocated room for the requests of one batch at a time. Move-only; a batch that uses it stays
/// valid when it is moved.
template <typename WorkRequest>
class ChainStorage {
 public:
  /// Room for `requests` requests (at least one) of up to `elements_per_request` slices each.
  /// Errors: kInvalidArgument (zero); kOutOfMemory.
  [[nodiscard]] static Result<ChainStorage> allocate(std::uint32_t requests,
                                                     std::uint32_t elements_per_request) {
    if (requests == 0 || elements_per_request == 0)
      return Error{Code::kInvalidArgument, "ChainStorage::allocate"};
    auto chain = detail::Chain<WorkRequest>::allocate(requests, elements_per_request);
    if (!chain) return Error{Code::kOutOfMemory, "ChainStorage::allocate"};
    return ChainStorage{std::move(chain)};
  }
  /// The most requests of one batch.
  [[nodiscard]] std::uint32_t capacity() const noexcept { return chain_->capacity; }

 private:
  template <Transport T>
  friend class Batch;
  template <typename Target>
  friend class BasicReceiveBatch;
  explicit ChainStorage(std::unique_ptr<detail::Chain<WorkRequest>> chain) noexcept
      : chain_{std::move(chain)} {}
  std::unique_ptr<detail::Chain<WorkRequest>> chain_;
};
/// Storage for a Batch, and for receives.
using BatchStorage = ChainStorage<ibv_send_wr>;
using ReceiveStorage = ChainStorage<ibv_recv_wr>;

}  // namespace remora::verbs
