#pragma once

/// A proxy for tcp that cuts, holds up and swallows what goes through it.

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

namespace remora::fault {

/// Listens on a loopback port of the system's choice and relays to another one, in a thread of its
/// own until it is destroyed. Thread-safe.
class TcpProxy {
 public:
  explicit TcpProxy(std::uint16_t target);
  ~TcpProxy();
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Connections that were accepted so far.
  [[nodiscard]] std::uint64_t accepted() const noexcept { return accepted_; }
  /// Of these, such as were reset when they had carried what cut_new_after() said.
  [[nodiscard]] std::uint64_t cut_short() const noexcept { return cut_short_; }
  /// Connections that go through it now.
  [[nodiscard]] std::size_t pairs() const {
    const std::lock_guard lock{mutex_};
    return pairs_.size();
  }
  /// Resets every connection, both ways. How many there were.
  std::size_t cut_all();
  /// Resets one of them, the `which`th modulo their number. False: there is none.
  bool cut_one(std::uint64_t which);
  /// New connections are reset when they have carried so many bytes, either way; 0: at once.
  void cut_new_after(std::uint64_t bytes) noexcept { cut_after_ = bytes; }
  /// Those that were to be cut and are still there are not, either.
  void cut_no_more();
  /// New connections are accepted, and nothing that they say is passed on.
  void be_silent(bool silent) noexcept { silent_ = silent; }
  /// Nothing that the target says is passed on, while the target gets everything: cut one way. The
  /// target's bytes are passed on when this ends.
  void hold_answers(bool hold) noexcept { hold_answers_ = hold; }
  /// What the target says is passed on at this many bytes in 10 ms; 0: as it comes.
  void slow_down(std::uint64_t bytes_each_10_ms) noexcept { slow_ = bytes_each_10_ms; }

 private:
  static constexpr std::uint64_t kNever = UINT64_MAX;
  struct Pair {
    int client = -1;
    int target = -1;
    bool silent = false;
    std::uint64_t left = kNever;
  };

  void serve();
  void take_newcomer();
  bool relay(int from, int to, Pair& pair, std::uint64_t most);
  static void reset(Pair& pair) noexcept;

  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::uint16_t target_;
  std::atomic<std::uint64_t> accepted_{0};
  std::atomic<std::uint64_t> cut_short_{0};
  std::atomic<std::uint64_t> cut_after_{kNever};
  std::atomic<std::uint64_t> slow_{0};
  std::atomic<bool> silent_{false};
  std::atomic<bool> hold_answers_{false};
  std::atomic<bool> over_{false};
  mutable std::mutex mutex_;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace remora::fault
