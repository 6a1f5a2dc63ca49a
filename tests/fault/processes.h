#pragma once

/// The other processes of fault tests: servers and loads, each with a baseline of its own.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <signal.h>
#include <string>
#include <vector>

#include <remora/engine/types.h>

#include "load.h"
#include "support/child.h"

namespace remora::fault {

/// Size of the regions that servers of fault tests have from the start: "t0", "t1", …
inline constexpr std::uint64_t kRegionBytes = 4U << 20U;

struct FaultServerOptions {
  std::uint16_t port = 0;
  std::uint32_t regions = 1;
  std::uint32_t sessions_max = 64;
  std::chrono::milliseconds lease = std::chrono::seconds{10};
  std::chrono::milliseconds keep = std::chrono::seconds{10};
  std::chrono::milliseconds handshake = std::chrono::seconds{5};
  std::chrono::milliseconds grace = std::chrono::seconds{1};
  std::string log{};       ///< a file for stderr, at level debug; empty: warnings, to ours
  std::string faketime{};  ///< a file that libfaketime reads the time from; empty: the real one
  /// RLIMIT_MEMLOCK holds for it: it has no CAP_IPC_LOCK.
  bool unprivileged = false;
  /// The kernel divides the processors between the server and this process (autogroup), as if each
  /// had a host of its own; else among the threads of both.
  bool apart = false;
  bool shm_too = false;   ///< it offers shm, too, where it can
  std::string notices{};  ///< a region whose notices are handled; see `notices` below
};

/// Helper "fault-server": says "listening PORT", then answers each line of its parent:
///
/// | line | answer |
/// |------|--------|
/// | `counts` | what it holds of the system: descriptors, threads, mappings, pinned memory |
/// | `status` | "sessions N grants N regions N freeing N" |
/// | `lapsed` | sessions whose clients were not heard of for the lease |
/// | `unwritten` | "1" where a line of the log could not be written since it was asked, else "0" |
/// | `heap` | bytes in live allocations |
/// | `clock` | the time of day, in seconds |
/// | `remove NAME`, `create NAME` | "ok", or the error: a region of kRegionBytes, at once |
/// | `create-shm NAME` | the same: a region with memory of its own, also where shm is off |
/// | `handshake MS` | "ok", or the error: another limits.handshake_timeout |
/// | `limit RESOURCE NUMBER` | "ok": a soft RLIMIT_* is what it has plus NUMBER; -1: the hard one |
/// | `notices hold`, `notices go` | "ok": the handler of notices stands still, or takes them |
/// | `notices handled FIRST COUNT` | how often each of these notices was, a digit each |
///
/// It ends with its stdin.
int fault_server(const test::HelperArguments& arguments);

/// Helper "load": run_load() by `key=value`; says "ready", at its end the report. A line of its
/// parent ends it early. What it holds afterwards is compared with what it held before (I8).
int fault_load(const test::HelperArguments& arguments);

/// Helper "poor": a client that runs out of address space; see limits_test.cc.
int fault_poor(const test::HelperArguments& arguments);

/// Helper "pinner": a client without CAP_IPC_LOCK that opens `uri`; see memlock_test.cc.
int fault_pinner(const test::HelperArguments& arguments);

/// Takes CAP_IPC_LOCK from this thread and those it starts. False: it could not.
bool give_up_ipc_lock() noexcept;
/// Sets this process's soft RLIMIT_NOFILE, RLIMIT_AS or RLIMIT_MEMLOCK to what it uses plus `more`
/// bytes or descriptors; below 0: to the hard one.
bool set_limit(const std::string& name, std::int64_t more);

/// Where libfaketime is; empty: it is not installed.
[[nodiscard]] std::string faketime_library();

/// Helper "lock-holder": see pause_test.cc.
int lock_holder(const test::HelperArguments& arguments);

/// A server in a process of its own.
class FaultServer {
 public:
  FaultServer(TransportKind transport, const FaultServerOptions& options);

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Sends a line, returns the answer; "no answer" where none comes within 20 s.
  std::string ask(const std::string& line);
  /// Asks until it has so many sessions, for 20 s at most.
  bool soon_sessions(std::uint64_t wanted);
  void kill() { child_.kill(); }
  void pause() const { child_.pause(); }
  void resume() const { child_.send_signal(SIGCONT); }
  /// Ends it in order; its exit status.
  int stop();

 private:
  test::Child child_;
  std::uint16_t port_ = 0;
};

/// A load in a process of its own.
class LoadProcess {
 public:
  /// `words`: `key=value` of fault_load(), `uri` among them. Returns when it is under way.
  /// `faketime`: a file that libfaketime reads its time from; empty: the real one.
  explicit LoadProcess(const std::vector<std::string>& words, const std::string& faketime = {});
  /// Says that it is enough, and waits for the report; nothing where none comes.
  std::optional<LoadReport> finish();
  void kill() { child_.kill(); }
  void pause() const { child_.pause(); }
  void resume() const { child_.send_signal(SIGCONT); }

 private:
  test::Child child_;
};

}  // namespace remora::fault
