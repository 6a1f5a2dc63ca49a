#pragma once

/// Lets handles know the process that made them.
///
/// A child of fork(2) has copies of its parent's handles, and shares the parent's sockets, queue
/// pairs and mappings. The answer to a request that the child sends through them goes to the
/// parent. So every handle refuses all work in a process that has not made it, and its destructor
/// does nothing there.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <pthread.h>
#include <utility>

#include <remora/result.h>

namespace remora::detail {

/// Counts the forks between the process that loaded the library and this one, from 1 on. Read on
/// the data path, written in the child's only thread before fork(2) returns.
[[gnu::visibility("default")]] inline constinit std::atomic<std::uint32_t> g_process{1};

/// The count of forks of this process, as Owned stores it.
[[nodiscard, gnu::always_inline]] inline std::uint32_t this_process() noexcept {
  return g_process.load(std::memory_order_relaxed);
}

/// Registers the count of forks, once. False: the C library had no memory for it, and forks are not
/// noticed.
inline bool count_forks() noexcept {
  static const bool counted = ::pthread_atfork(nullptr, nullptr, [] {
                                g_process.fetch_add(1, std::memory_order_relaxed);
                              }) == 0;
  return counted;
}

/// The number of the present process, for objects that store it themselves: 0 is no process.
[[nodiscard]] inline std::uint32_t made_here() noexcept {
  count_forks();
  return this_process();
}

/// An object of a parent process, kept reachable in its children, so that no leak checker reports
/// it.
struct Unreleased {
  Unreleased* next = nullptr;
};
[[gnu::visibility("default")]] inline constinit std::atomic<Unreleased*> g_unreleased{nullptr};

/// Keeps the object of `pointer` until the process ends and leaves `pointer` empty; the deleter is
/// not called. Without memory for the list the object stays, too, but unreachable.
template <typename Pointer>
[[gnu::cold]] void keep_unreleased(Pointer& pointer) noexcept {
  struct Kept : Unreleased {
    explicit Kept(Pointer&& left) noexcept : pointer{std::move(left)} {}
    Pointer pointer;
  };
  if (auto* const kept = new (std::nothrow) Kept{std::move(pointer)}) {
    kept->next = g_unreleased.load(std::memory_order_relaxed);
    while (!g_unreleased.compare_exchange_weak(kept->next, kept, std::memory_order_relaxed)) {
    }
  }
  // Without memory the pointer's life ends here without its destructor.
  std::construct_at(&pointer);
}

/// The pointer of a handle, and the process that made it. Equal to null if the handle is empty or
/// this is another process: one load and one comparison for both.
template <typename Pointer>
class Owned {
 public:
  using element_type = typename Pointer::element_type;

  /// Empty: equal to null in every process.
  Owned() noexcept = default;
  /// Empty.
  // NOLINTNEXTLINE(google-explicit-constructor): stands in for the pointer.
  Owned(std::nullptr_t) noexcept {}
  /// Takes `pointer`, as made by this process.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Owned(Pointer pointer) noexcept
      : pointer_{std::move(pointer)}, made_in_{pointer_ == nullptr ? 0 : made_here()} {}
  Owned(const Owned&) = default;
  Owned(Owned&& other) noexcept
      : pointer_{std::move(other.pointer_)}, made_in_{std::exchange(other.made_in_, 0)} {}
  Owned& operator=(const Owned& other) {
    if (this == &other) return *this;
    Owned copy{other};
    return *this = std::move(copy);
  }
  Owned& operator=(Owned&& other) noexcept {
    if (this == &other) return *this;
    reset();
    pointer_ = std::move(other.pointer_);
    made_in_ = std::exchange(other.made_in_, 0);
    return *this;
  }
  ~Owned() {
    if (foreign()) [[unlikely]]
      keep_unreleased(pointer_);
  }

  /// Keeps an object of a parent process, without releasing it.
  void reset() noexcept {
    if (foreign())
      keep_unreleased(pointer_);
    else
      pointer_ = Pointer{};
    made_in_ = 0;
  }

  /// True: empty, or made by another process.
  [[nodiscard, gnu::always_inline]] friend bool operator==(const Owned& owned,
                                                           std::nullptr_t) noexcept {
    return owned.made_in_ != this_process();
  }
  /// False: as operator==().
  [[nodiscard]] explicit operator bool() const noexcept { return *this != nullptr; }
  /// Whether a parent process made the object.
  [[nodiscard]] bool foreign() const noexcept {
    return made_in_ != 0 && made_in_ != this_process();
  }

  /// Null if operator== says so.
  [[nodiscard]] element_type* get() const noexcept {
    return *this == nullptr ? nullptr : pointer_.get();
  }
  /// Only if it is not null.
  [[nodiscard]] element_type* operator->() const noexcept { return pointer_.get(); }
  /// Only if it is not null; not checked.
  [[nodiscard]] element_type& operator*() const noexcept { return *pointer_; }
  /// The pointer itself, also in a process that has not made it.
  [[nodiscard]] const Pointer& pointer() const noexcept { return pointer_; }
  /// Another pointer that was made in the same process as this one.
  template <typename Other>
  [[nodiscard]] Owned<Other> share(Other pointer) const noexcept {
    Owned<Other> shared;
    shared.made_in_ = pointer == nullptr ? 0 : made_in_;
    shared.pointer_ = std::move(pointer);
    return shared;
  }

 private:
  template <typename Other>
  friend class Owned;
  Pointer pointer_;
  std::uint32_t made_in_ = 0;  ///< 0: empty
};

template <typename T>
using OwnedShared = Owned<std::shared_ptr<T>>;
template <typename T, typename Deleter = std::default_delete<T>>
using OwnedUnique = Owned<std::unique_ptr<T, Deleter>>;

/// State of a process: a child of fork(2) has its own, made at its first use, independent of locks
/// that the parent's other threads held and of changes that they were making. Never destroyed.
template <typename T>
class PerProcess {
 public:
  /// The object is made at the first get().
  constexpr PerProcess() noexcept = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  /// The object of this process. In a child of fork(2) the first call makes a new one.
  [[nodiscard]] T& get() {
    Node* first = first_.load(std::memory_order_acquire);
    if (first != nullptr && first->made_in == this_process()) return first->value;
    auto made = std::make_unique<Node>(first, made_here());
    while (!first_.compare_exchange_weak(first, made.get(), std::memory_order_acq_rel)) {
      if (first != nullptr && first->made_in == this_process()) return first->value;
      made->parent = first;
    }
    return made.release()->value;
  }

 private:
  struct Node {
    Node(Node* parents, std::uint32_t process) : parent{parents}, made_in{process} {}
    Node* parent;  ///< reachable, for leak checkers
    std::uint32_t made_in;
    T value{};
  };
  std::atomic<Node*> first_{nullptr};
};

/// The error of a handle that is null: kClosed, with Reason::kForked if a parent process made it.
/// Not inlined, so that the data path contains no code that builds an error.
[[nodiscard, gnu::cold, gnu::noinline]] inline Error closed_handle(Operation operation,
                                                                   bool foreign) noexcept {
  const Error closed{Code::kClosed, operation};
  if (foreign) return closed.with_reason(Reason::kForked);
  return closed.with_subject("this handle was moved from");
}

}  // namespace remora::detail
