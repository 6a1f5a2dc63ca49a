#pragma once

/// Result and Error: how every function of Remora says what happened.
///
/// A fallible function returns `Result<T>` (or `Status`, which is `Result<void>`). An `Error` is a
/// small, trivially copyable value: a code to branch on, a reason that refines it, the call that
/// failed, its errno, the NIC's completion status, what was asked and what is allowed, and the
/// thing it was about. Its text is made only when it is printed and names a remedy where one is
/// known.
///
/// Nothing here throws, except `Result::value()` on an error, which is meant for examples and
/// scripts: it throws `remora::Exception`. Where exceptions are off (-fno-exceptions) it writes the
/// error's text to stderr and ends the program by std::abort().
///
/// Thread safety: values; distinct objects may be used from distinct threads.

#if __cplusplus < 202002L
#error "Remora needs C++20: compile with -std=c++20 or later"
// Does not exist: it ends the compilation, before the rest of the headers adds hundreds of lines.
#include <end-of-compilation-see-the-error-above>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <ostream>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace remora {

/// The kind of a failure: the value a program branches on.
enum class Code : std::uint8_t {
  kInvalidArgument,    ///< the call itself is wrong (empty span, wrap-around, null, bad URI)
  kOutOfRange,         ///< bytes outside the region, the slice or the table
  kMisaligned,         ///< an atomic's offset or a block boundary is not aligned
  kNoRight,            ///< the grant or registration does not carry the right that was used
  kWrongAtomicDomain,  ///< the region's atomics belong to another device or to the CPU
  kUnsupported,        ///< device, transport or kernel cannot do this
  kLimitExceeded,      ///< a documented bound: asked() and allowed() carry both numbers
  kOutOfMemory,        ///< memory, or memory that may be pinned, is exhausted
  kPermissionDenied,   ///< the operating system refused
  kNotFound,           ///< a device, file, host or entry that does not exist
  kUnknownRegion,      ///< the server has no region of that name
  kAlreadyExists,      ///< the name is taken
  kBusy,               ///< another user holds it; try again later
  kAddressInUse,       ///< another process listens there
  kUnreachable,        ///< no route, no such address, no answer
  kConnectionRefused,  ///< the peer said no: nothing listens, or it rejected us
  kConnectionLost,     ///< the session ended; the operation had no effect that matters (reads)
  kProtocol,           ///< the peer sent bytes that do not follow the protocol
  kAccessRefused,      ///< the peer's NIC or server refused the access; see reason()
  kStaleRegion,        ///< the memory behind the region is a new one: its old contents are gone
  kTimedOut,           ///< the deadline passed; provably without remote effect
  kCancelled,          ///< cancelled; provably without remote effect
  kIndeterminate,      ///< the lane broke after posting: the effect cannot be known
  kWouldBlock,         ///< a bounded queue is full, or nothing is there yet
  kClosed,             ///< the object was closed, moved from, or made by a parent process
  kProvider,           ///< a verbs call failed; system_errno() is kept
  kSystem,             ///< a system call failed; system_errno() is kept
  kInternal,           ///< a bug of ours
};

/// Refines a code where the other side told more.
enum class Reason : std::uint8_t {
  kNone,
  kFenced,          ///< a newer grant fenced this one
  kRevoked,         ///< the grant was taken back
  kOutOfRange,      ///< outside the granted bytes
  kNoRight,         ///< the grant has no such right
  kPeerGone,        ///< the other process ended or hung up
  kLaneBroken,      ///< the connection of the lane ended, and neither side has said why
  kDraining,        ///< the server is shutting down
  kVersion,         ///< no protocol version in common
  kAuthentication,  ///< the peer did not accept our credentials
  kMemlock,         ///< RLIMIT_MEMLOCK is too small for what has to be pinned
  kPoolFull,        ///< the server's pool has no room for the region
  kNoAtomics,       ///< the region was created with the atomic domain "none"
  kNotOffered,      ///< the server does not offer the transport that this needs
  kUnknownDevice,   ///< the server uses no device of that name
  kOtherUser,       ///< file, folder or process of another user
  kWorldWritable,   ///< a folder in which every user may replace files
  kGidUnset,        ///< a GID of the pair is empty
  kGidFamily,       ///< one GID of the pair is IPv4, the other IPv6
  kGidScope,        ///< one GID reaches its host or segment only, the other does not
  kNoNeighbour,     ///< the kernel has no route or no neighbour for the pair of GIDs
  kNewMemory,       ///< the server runs with new memory: what the old one held is gone
  kLapsed,          ///< the server had not heard from this client for its lease, and gave it up
  kSilent,          ///< the peer has not answered for longer than it may
  kTooOften,        ///< the session has broken more often than the server allows
  kNoThread,        ///< the system refused a thread: a limit on threads or processes
  kUnreachable,     ///< no connection to the server came about: no route, no answer, refused
  kExpired,         ///< the operation's own deadline passed, not that of another one
  kLaneVictim,      ///< another operation on the same lane expired or was refused, which broke it
  kZeroLength,      ///< argument: the length is 0
  kNullPointer,     ///< argument: the local memory is a null pointer
  kEmptySlot,       ///< argument: the slot is empty: the pool had none, or it was moved from
  kOutsideMemory,   ///< argument: the part lies outside the registered memory it is a part of
  kPieces,          ///< argument: no pieces of local memory, or more than kPiecesMax
  kHeld,            ///< another client holds the lock
  kNotRemora,       ///< the other side speaks another protocol
  kHttp,            ///< the other side speaks HTTP, as the metrics endpoint does
  kLocalShortage,   ///< this process or its host has run out of what the call needs (errno says)
  kForked,          ///< a parent process made the handle, before fork()
};

/// The last of the enumeration: numbers above it, from a newer peer, are not known here.
inline constexpr Reason kReasonLast = Reason::kForked;

/// The NIC's verdict on one work request: `ibv_wc_status` in our own words, so that no verbs header
/// is needed to read an error. Values equal the verbs enumeration. Source: ibv_poll_cq(3).
enum class CompletionStatus : std::uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalEeContextOperationError = 3,
  kLocalProtectionError = 4,
  kFlushed = 5,
  kMemoryWindowBindError = 6,
  kBadResponse = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kLocalRddViolation = 14,
  kRemoteInvalidRdRequest = 15,
  kRemoteAborted = 16,
  kInvalidEeContext = 17,
  kInvalidEeContextState = 18,
  kFatal = 19,
  kResponseTimeout = 20,
  kGeneral = 21,
};

[[nodiscard]] constexpr std::string_view to_string(Code code) noexcept {
  switch (code) {
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kOutOfRange: return "out of range";
    case Code::kMisaligned: return "misaligned";
    case Code::kNoRight: return "no right";
    case Code::kWrongAtomicDomain: return "wrong atomic domain";
    case Code::kUnsupported: return "unsupported";
    case Code::kLimitExceeded: return "limit exceeded";
    case Code::kOutOfMemory: return "out of memory";
    case Code::kPermissionDenied: return "permission denied";
    case Code::kNotFound: return "not found";
    case Code::kUnknownRegion: return "unknown region";
    case Code::kAlreadyExists: return "already exists";
    case Code::kBusy: return "busy";
    case Code::kAddressInUse: return "address in use";
    case Code::kUnreachable: return "unreachable";
    case Code::kConnectionRefused: return "connection refused";
    case Code::kConnectionLost: return "connection lost";
    case Code::kProtocol: return "protocol violation";
    case Code::kAccessRefused: return "access refused";
    case Code::kStaleRegion: return "stale region";
    case Code::kTimedOut: return "timed out";
    case Code::kCancelled: return "cancelled";
    case Code::kIndeterminate: return "indeterminate";
    case Code::kWouldBlock: return "would block";
    case Code::kClosed: return "closed";
    case Code::kProvider: return "verbs call failed";
    case Code::kSystem: return "system call failed";
    case Code::kInternal: return "internal error";
  }
  return "unknown code";
}

[[nodiscard]] constexpr std::string_view to_string(Reason reason) noexcept {
  switch (reason) {
    case Reason::kNone: return "none";
    case Reason::kFenced: return "fenced by a newer grant";
    case Reason::kRevoked: return "grant revoked";
    case Reason::kOutOfRange: return "outside the granted bytes";
    case Reason::kNoRight: return "grant without that right";
    case Reason::kPeerGone: return "the peer is gone";
    case Reason::kLaneBroken: return "the connection of the lane broke";
    case Reason::kDraining: return "the server is shutting down";
    case Reason::kVersion: return "no protocol version in common";
    case Reason::kAuthentication: return "authentication refused";
    case Reason::kMemlock: return "the limit on locked memory is too small";
    case Reason::kPoolFull: return "the server's pool has no room for it";
    case Reason::kNoAtomics: return "the region was created without atomics";
    case Reason::kNotOffered: return "the server does not offer that transport";
    case Reason::kUnknownDevice: return "the server uses no device of that name";
    case Reason::kOtherUser: return "it is another user's";
    case Reason::kWorldWritable: return "every user may write to it";
    case Reason::kGidUnset: return "a GID is empty";
    case Reason::kGidFamily: return "one GID is IPv4, the other IPv6";
    case Reason::kGidScope: return "one GID is of its host or segment only, the other is not";
    case Reason::kNoNeighbour: return "no route or no neighbour between these GIDs";
    case Reason::kNewMemory: return "the server runs with new memory, the old contents are gone";
    case Reason::kLapsed: return "the server no longer has this session";
    case Reason::kSilent: return "the peer has not answered for too long";
    case Reason::kTooOften: return "the session broke more often than the server allows";
    case Reason::kNoThread: return "no thread can be started";
    case Reason::kUnreachable: return "the server cannot be reached";
    case Reason::kExpired: return "its own deadline passed";
    case Reason::kLaneVictim: return "another operation on its lane expired or was refused";
    case Reason::kZeroLength: return "the length is 0";
    case Reason::kNullPointer: return "the local memory is a null pointer";
    case Reason::kEmptySlot: return "the slot is empty";
    case Reason::kOutsideMemory: return "the part lies outside its registered memory";
    case Reason::kPieces: return "the number of pieces is 0 or too large";
    case Reason::kHeld: return "another client holds the lock";
    case Reason::kNotRemora: return "not a Remora server: it speaks another protocol";
    case Reason::kHttp: return "not a Remora server: it speaks HTTP";
    case Reason::kLocalShortage: return "this process or its host has run out of what that needs";
    case Reason::kForked:
      return "the handle belongs to the parent process, which made it before fork()";
  }
  return "unknown reason";
}

[[nodiscard]] constexpr std::string_view to_string(CompletionStatus status) noexcept {
  switch (status) {
    case CompletionStatus::kSuccess: return "success";
    case CompletionStatus::kLocalLengthError: return "local length error";
    case CompletionStatus::kLocalQpOperationError: return "local queue pair operation error";
    case CompletionStatus::kLocalEeContextOperationError: return "local EE context operation error";
    case CompletionStatus::kLocalProtectionError: return "local protection error";
    case CompletionStatus::kFlushed: return "flushed";
    case CompletionStatus::kMemoryWindowBindError: return "memory window bind error";
    case CompletionStatus::kBadResponse: return "bad response";
    case CompletionStatus::kLocalAccessError: return "local access error";
    case CompletionStatus::kRemoteInvalidRequest: return "remote invalid request";
    case CompletionStatus::kRemoteAccessError: return "remote access error";
    case CompletionStatus::kRemoteOperationError: return "remote operation error";
    case CompletionStatus::kRetryExceeded: return "transport retry counter exceeded";
    case CompletionStatus::kRnrRetryExceeded: return "RNR retry counter exceeded";
    case CompletionStatus::kLocalRddViolation: return "local RDD violation";
    case CompletionStatus::kRemoteInvalidRdRequest: return "remote invalid RD request";
    case CompletionStatus::kRemoteAborted: return "remote aborted";
    case CompletionStatus::kInvalidEeContext: return "invalid EE context number";
    case CompletionStatus::kInvalidEeContextState: return "invalid EE context state";
    case CompletionStatus::kFatal: return "fatal error";
    case CompletionStatus::kResponseTimeout: return "response timeout";
    case CompletionStatus::kGeneral: return "general error";
  }
  return "unknown completion status";
}

/// Names the call that failed. Built from string literals only (checked at compile time), so an
/// Error can carry it without owning it.
class Operation {
 public:
  constexpr Operation() noexcept = default;
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is the natural way to name a call.
  consteval Operation(const char (&literal)[N]) noexcept : text_{literal} {}

  [[nodiscard]] constexpr std::string_view text() const noexcept { return text_; }
  friend constexpr bool operator==(Operation a, Operation b) noexcept {
    return a.text() == b.text();
  }

 private:
  const char* text_ = "";
};

/// The operation that failed, its subject, the reason and the remedy. Trivially copyable, at most
/// three cache lines.
///
/// Built with `Error{Code, "call"}` and the `with_…` functions, each of which returns a copy.
class [[nodiscard]] Error {
 public:
  /// Longest subject that is kept; longer ones end in "...".
  static constexpr std::size_t kSubjectBytes = 88;  ///< two IPv6 addresses
  /// Longest server that is kept; of a longer one the beginning and the port.
  static constexpr std::size_t kServerBytes = 48;  ///< an IPv6 address in brackets and a port

  constexpr explicit Error(Code code, Operation operation = {}) noexcept
      : operation_{operation}, code_{code} {}

  [[nodiscard]] constexpr Error with_reason(Reason reason) const noexcept {
    Error copy = *this;
    copy.reason_ = reason;
    return copy;
  }
  [[nodiscard]] constexpr Error with_errno(int system_errno) const noexcept {
    Error copy = *this;
    copy.errno_ = system_errno;
    return copy;
  }
  [[nodiscard]] constexpr Error with_completion(CompletionStatus status,
                                                std::uint32_t vendor_error) const noexcept {
    Error copy = *this;
    copy.completion_ = status;
    copy.vendor_error_ = vendor_error;
    return copy;
  }
  /// The amount asked for and the bound that it exceeds; the unit follows from the operation.
  [[nodiscard]] constexpr Error with_limit(std::uint64_t asked,
                                           std::uint64_t allowed) const noexcept {
    Error copy = *this;
    copy.asked_ = asked;
    copy.allowed_ = allowed;
    copy.has_limit_ = true;
    return copy;
  }
  /// The thing it was about: an address, a path, a device, a region's name. Copied, cut at
  /// kSubjectBytes; unprintable bytes become '?'.
  [[nodiscard]] constexpr Error with_subject(std::string_view subject) const noexcept {
    Error copy = *this;
    const std::size_t length = std::min(subject.size(), kSubjectBytes);
    for (std::size_t i = 0; i < length; ++i) copy.subject_[i] = printable(subject[i]);
    if (subject.size() > kSubjectBytes)
      for (std::size_t i = kSubjectBytes - 3; i < kSubjectBytes; ++i) copy.subject_[i] = '.';
    copy.subject_length_ = static_cast<std::uint8_t>(length);
    return copy;
  }

  /// The server it was about, "host:port". Copied, cut in its middle at kServerBytes.
  [[nodiscard]] constexpr Error with_server(std::string_view server) const noexcept {
    constexpr std::size_t kTailBytes = 12;
    constexpr std::string_view kGap = "...";
    Error copy = *this;
    const bool cut = server.size() > kServerBytes;
    const std::size_t head = cut ? kServerBytes - kGap.size() - kTailBytes : server.size();
    std::size_t end = 0;
    for (const char c : server.substr(0, head)) copy.server_[end++] = printable(c);
    if (cut) {
      for (const char c : kGap) copy.server_[end++] = c;
      for (const char c : server.substr(server.size() - kTailBytes))
        copy.server_[end++] = printable(c);
    }
    copy.server_length_ = static_cast<std::uint8_t>(end);
    return copy;
  }
  /// The bytes of the region, which is the subject, that the operation was for.
  [[nodiscard]] constexpr Error with_place(std::uint64_t offset_bytes,
                                           std::uint64_t length_bytes) const noexcept {
    Error copy = *this;
    copy.offset_ = offset_bytes;
    copy.length_ = length_bytes;
    copy.has_place_ = true;
    return copy;
  }

  [[nodiscard]] constexpr Code code() const noexcept { return code_; }
  [[nodiscard]] constexpr Reason reason() const noexcept { return reason_; }
  [[nodiscard]] constexpr std::string_view operation() const noexcept { return operation_.text(); }
  /// errno of the failed call, 0 where there was none.
  [[nodiscard]] constexpr int system_errno() const noexcept { return errno_; }
  [[nodiscard]] constexpr CompletionStatus completion_status() const noexcept {
    return completion_;
  }
  [[nodiscard]] constexpr std::uint32_t vendor_error() const noexcept { return vendor_error_; }
  [[nodiscard]] constexpr bool has_limit() const noexcept { return has_limit_; }
  [[nodiscard]] constexpr std::uint64_t asked() const noexcept { return asked_; }
  [[nodiscard]] constexpr std::uint64_t allowed() const noexcept { return allowed_; }
  [[nodiscard]] constexpr std::string_view subject() const noexcept {
    return {subject_.data(), subject_length_};
  }
  /// "host:port", or empty where no server has to do with it.
  [[nodiscard]] constexpr std::string_view server() const noexcept {
    return {server_.data(), server_length_};
  }
  /// Whether offset_bytes() and length_bytes() say which bytes of a region it was about.
  [[nodiscard]] constexpr bool has_place() const noexcept { return has_place_; }
  [[nodiscard]] constexpr std::uint64_t offset_bytes() const noexcept { return offset_; }
  [[nodiscard]] constexpr std::uint64_t length_bytes() const noexcept { return length_; }

  /// One line for a person: what, where, why, and what to do. Allocates.
  [[nodiscard]] std::string message() const;
  /// The remedy, or an empty string where no general one is known.
  [[nodiscard]] std::string_view remedy() const noexcept;

 private:
  [[nodiscard]] static constexpr char printable(char c) noexcept {
    return (c >= 0x20 && c != 0x7f) || (static_cast<unsigned char>(c) >= 0x80) ? c : '?';
  }
  void append_place(std::string& text) const;
  void append_limit(std::string& text) const;

  Operation operation_;
  std::uint64_t asked_ = 0;
  std::uint64_t allowed_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t length_ = 0;
  int errno_ = 0;
  std::uint32_t vendor_error_ = 0;
  Code code_;
  Reason reason_ = Reason::kNone;
  CompletionStatus completion_ = CompletionStatus::kSuccess;
  bool has_limit_ = false;
  bool has_place_ = false;
  std::uint8_t subject_length_ = 0;
  std::uint8_t server_length_ = 0;
  std::array<char, kSubjectBytes> subject_{};
  std::array<char, kServerBytes> server_{};
};
static_assert(std::is_trivially_copyable_v<Error>);
static_assert(sizeof(Error) <= 192);

namespace detail {

/// The remedy for one part of a URI; empty for other operations.
[[nodiscard]] constexpr std::string_view remedy_of_uri(std::string_view operation) noexcept {
  if (operation == "URI scheme")
    return "a URI is remora://HOST[:PORT][/REGION][?transport=rdma|shm|tcp]";
  if (operation == "URI host")
    return "behind remora:// stands a name, an IPv4 address, or an IPv6 address in brackets";
  if (operation == "URI port") return "a port is a number from 1 to 65535";
  if (operation == "URI region")
    return "a region's name has 1 to 64 of A-Z a-z 0-9 . _ - and is neither . nor ..";
  if (operation == "URI option")
    return "options are transport=rdma, transport=shm, transport=tcp or transport=auto, and "
           "crc=payload with transport=tcp";
  if (operation == "URI transport") return "a transport is rdma, shm, tcp or auto";
  return {};
}

[[nodiscard]] constexpr std::string_view remedy_of(Reason reason) noexcept {
  switch (reason) {
    case Reason::kMemlock:
      return "raise the locked-memory limit: 'ulimit -l unlimited', LimitMEMLOCK= in the service "
             "unit, or --ulimit memlock=-1 for a container";
    case Reason::kPoolFull:
      return "ask for less, remove regions ('remora ls' and 'remora rm'), or raise pool.size in "
             "the server's file";
    case Reason::kNoAtomics:
      return "atomics need a region created with an atomic domain: RegionSpec::atomic_domain, or "
             "'atomics' of the region in the server's file";
    case Reason::kNotOffered:
      return "'remora stat' of the server shows what it offers; transports in its file changes it";
    case Reason::kUnknownDevice:
      return "an atomic domain is auto, none, cpu or one of the server's devices (the log of its "
             "start names them)";
    case Reason::kAuthentication:
      return "EngineOptions::client_name and key have to be those of one of 'clients' in the "
             "server's file, and without 'auth: keys' there a client must have no key";
    case Reason::kNoThread:
      return "raise the limit on threads: 'ulimit -u' (RLIMIT_NPROC), pids.max of the cgroup "
             "(TasksMax= in the service unit, --pids-limit for a container), or 'sysctl "
             "kernel.threads-max kernel.pid_max'";
    case Reason::kForked:
      return "make a new Engine, Server or verbs::Device in this process, or fork before the "
             "first; a program that is started by exec needs neither";
    case Reason::kGidUnset:
    case Reason::kGidFamily:
    case Reason::kGidScope:
      return "choose GIDs of one kind on both sides (gid_index): 'ibv_devinfo -v' lists them";
    case Reason::kNoNeighbour:
      return "check 'ip route get ADDRESS' and 'ip neigh' on the GID's interface, and that the "
             "peer answers 'ping'";
    case Reason::kZeroLength: return "an operation moves at least one byte";
    case Reason::kNullPointer: return "give it memory of that length";
    case Reason::kEmptySlot:
      return "SlotPool::take() gives an empty slot when all are out, and a slot that was moved "
             "from "
             "is empty";
    case Reason::kOutsideMemory:
      return "offset and length of the part have to lie within RegisteredMemory::bytes()";
    case Reason::kPieces: return "an operation takes 1 to 1024 pieces (kPiecesMax)";
    case Reason::kNotRemora:
      return "give the port of remora-server's listen.port (7471 by default)";
    case Reason::kHttp:
      return "is it the port of metrics.address? Clients connect to remora-server's listen.port "
             "(7471 by default)";
    case Reason::kTooOften:
      return "limits.resumes_per_minute in the server's file bounds it: look for the cause of the "
             "interruptions in the client's log";
    default: return {};
  }
}

/// A chain of requests that was refused before anything was posted, or met a full queue. The end of
/// the subject says what of the request it was.
[[nodiscard]] constexpr std::string_view remedy_of_post(std::string_view operation, Code code,
                                                        std::string_view subject) noexcept {
  if (code == Code::kWouldBlock && operation.starts_with("ibv_post_"))
    return "the queue is full: take completions first, a signaled one frees all before it";
  const bool batch = operation == "Batch::post" || operation == "ReceiveBatch::post";
  if (!batch && operation != "MemoryRegion::slice") return {};
  switch (code) {
    case Code::kLimitExceeded:
      if (subject.ends_with("inline bytes"))
        return "ask for more when the queue pair is built (QueuePairBuilder::inline_bytes; "
               "capabilities() tells what was granted), or send registered memory";
      if (subject.ends_with("inline read"))
        return "only sends and writes can be inline: give it registered memory";
      if (subject.ends_with("slices"))
        return "ask for more with QueuePairBuilder::send_sge or receive_sge, or a storage of your "
               "own";
      return "post in parts, or take more room: QueuePairBuilder::batch_requests, or a storage of "
             "your own";
    case Code::kOutOfRange:
      return "cut slices inside their registration (checked_slice tells at once), and let the "
             "remote one be as long as the local";
    case Code::kInvalidArgument:
      return "an atomic takes 8 local bytes; a window is bound by its own queue pair, to a "
             "registration with kWindowBind";
    case Code::kBusy:
      return "post or drop the other batch first, or start this one in a storage of its own";
    case Code::kClosed: return "the window went with its queue pair or registration: allocate one";
    default: return {};
  }
}

inline constexpr std::string_view kRemedyOfZone =
    "fe80:: addresses exist on each interface: append the one that is meant, as in fe80::1%eth0 "
    "('ip -6 addr' lists them)";

/// An argument that verbs/ or the driver refused.
[[nodiscard]] constexpr std::string_view remedy_of_argument(std::string_view operation,
                                                            std::string_view subject) noexcept {
  if (subject.starts_with("port of "))
    return "ports count from 1: 'rdma link' and 'ibv_devinfo' show those of the device";
  if (subject.starts_with("no bytes") || subject.ends_with("wrap around"))
    return "a range has at least one byte and ends before the address space does: take pointer and "
           "length from the same buffer";
  if (operation == "ibv_create_cq")
    return "a completion queue has at least one entry, a vector below "
           "Device::completion_vector_count(), and events or channel, not both, of its own device";
  if (operation == "ibv_req_notify_cq" || operation == "ibv_get_cq_event" ||
      operation == "CompletionQueue::wait")
    return "create the queue with CompletionQueueOptions::events or channel; to wait on it, with "
           "events and a storage that is not empty";
  if (operation == "ibv_start_poll")
    return "create the queue with CompletionQueueOptions::fields, or use poll()";
  if (operation == "QueuePairBuilder::build")
    return subject.find(" port ") != std::string_view::npos
               ? "'rdma link' shows the state of ports: on Ethernet it is the interface's ('ip "
                 "link "
                 "set IF up')"
               : "queue_pair.h has the range of each option";
  if (operation == "rdma_set_option") return "the time-out is a code of 0 to 31: 4.096 us * 2^n";
  if (operation == "PreparedQueuePair::connect")
    return "an endpoint comes from the peer's endpoint(), over Endpoint::to_wire and from_wire";
  if (operation == "rdma_connect" || operation == "rdma_accept")
    return "create_queue_pair() comes first";
  if (operation == "Address::parse") return "an address is 192.0.2.1, 2001:db8::1 or fe80::1%eth0";
  if (operation == "link-local address without a zone") return kRemedyOfZone;
  if (operation == "Address::resolve") return "give a host's name or an address";
  if (operation == "ChainStorage::allocate")
    return "it has room for one request of one slice at least";
  if (operation == "Device::borrow") return "take the context of an open device";
  if (!operation.starts_with("ibv_") && !operation.starts_with("MemoryRegion::") &&
      !operation.starts_with("MrCache::"))
    return {};
  return "an object that is empty or of another device or domain, or a value out of its range: the "
         "header of the call says what it takes";
}

/// The remedy where the process or the host has run out of a resource.
[[nodiscard]] constexpr std::string_view remedy_of_errno(int number) noexcept {
  if (number == EMFILE)
    return "this process has as many open files as it may: raise its limit ('ulimit -n', "
           "LimitNOFILE= of a unit, --ulimit nofile of a container)";
  if (number == ENFILE)
    return "this host has as many open files as it may: 'sysctl fs.file-nr fs.file-max'";
  return {};
}

/// The remedy for a connection over tcp that this host, not the server, refused.
[[nodiscard]] constexpr std::string_view remedy_of_connect(std::string_view operation, Code code,
                                                           int number) noexcept {
  if (operation != "connect over tcp") return {};
  if (number == EADDRNOTAVAIL)
    return "every local port is in use towards that server: 'ss -tan' shows by what; widen "
           "'sysctl net.ipv4.ip_local_port_range'";
  if (number == ENOBUFS || number == ENOMEM)
    return "the kernel of this host has no memory for another socket: see 'ss -s' and "
           "'sysctl net.ipv4.tcp_mem'";
  if (number == ENETUNREACH || number == EHOSTUNREACH || number == ENETDOWN)
    return "this host has no way to that address: see 'ip route get ADDRESS' and 'ip addr'";
  if (code == Code::kUnreachable)
    return "check the address, the route ('ip route get ADDRESS') and firewalls between";
  return {};
}

/// The remedy for a verbs call that tells no more than its errno.
[[nodiscard]] constexpr std::string_view remedy_of_verb(std::string_view operation, Code code,
                                                        int number,
                                                        std::string_view subject) noexcept {
  if (!operation.starts_with("ibv_") && !operation.starts_with("rdma_")) return {};
  switch (code) {
    case Code::kLimitExceeded:
      if (subject == "private data") return "send the rest once connected";
      return "ask for less: 'ibv_devinfo -v' shows the device's limits";
    case Code::kUnsupported:
      return "neither device nor driver can do it: 'ibv_devinfo -v' shows what they can";
    case Code::kOutOfMemory:
      return "device or host has no more: 'rdma resource show' lists the processes that hold them";
    case Code::kPermissionDenied:
      return "the user needs read and write access to /dev/infiniband/*";
    case Code::kProvider: break;
    default: return {};
  }
  if (number == EINVAL && subject.find(" inline bytes on ") != std::string_view::npos)
    return "no command shows how many inline bytes a device takes: ask for fewer, capabilities() "
           "of the queue pair then tells what was granted";
  if (number == EINVAL) return "the driver refused an argument: compare it with 'ibv_devinfo -v'";
  if (number == EBUSY) return "something made from it is still in use";
  return "'dmesg' and 'rdma resource show' may tell more";
}

/// An operation on the bytes of a region.
[[nodiscard]] constexpr bool is_region_operation(std::string_view operation) noexcept {
  return operation == "read" || operation == "write" || operation == "compare_swap" ||
         operation == "fetch_add" || operation == "write_zeroes" || operation == "write_notify" ||
         operation == "flush_visible";
}

/// Where the call that failed tells more than the code.
[[nodiscard]] constexpr std::string_view remedy_of(std::string_view operation, Code code) noexcept {
  if (operation == "connect over shm" &&
      (code == Code::kConnectionRefused || code == Code::kPermissionDenied))
    return "remora-server must run on this host as the same user, with that port and the same "
           "REMORA_RUNTIME_DIR (else XDG_RUNTIME_DIR, else /tmp/remora-UID)";
  if (operation == "socket folder")
    return "make it a folder of the server's user with mode 0700, or let REMORA_RUNTIME_DIR name "
           "one, for server and clients alike";
  if (code == Code::kUnreachable && operation.starts_with("rdma_"))
    return "check the address, the route and the device with 'ibv_devinfo'";
  if (code == Code::kConnectionRefused && operation == "find the server over shm")
    return "name the address at which the server listens";
  if (code == Code::kTimedOut && operation.starts_with("connect over "))
    return "the server stands still, is overloaded, or something else listens on that port";
  if (code == Code::kNoRight && is_region_operation(operation))
    return "open the region with the right: reads and flush_visible need Rights::kRead, writes "
           "kWrite, compare_swap and fetch_add kAtomic";
  if (code == Code::kLimitExceeded && operation == "allocate_slots")
    return "allocate several pools";
  if (code == Code::kNoRight && operation == "open")
    return "the region's rights or its access list give this client less: 'remora stat' shows the "
           "rights, its owner knows the list";
  if (code == Code::kAlreadyExists && operation == "create")
    return "choose another name, or remove it first ('remora rm')";
  if (code == Code::kBusy && operation == "remove")
    return "clients have it open, or may come back to it within limits.session_keep: 'remora stat' "
           "counts them; try again, or take it from them (Removal::kNow), or let them keep it "
           "until they close it (Removal::kWhenUnused)";
  if (code == Code::kBusy && operation == "fence")
    return "a client over shm stands still and keeps it mapped; the server cannot unmap it there: "
           "try again when that client goes on, or end it";
  if (code == Code::kUnreachable && operation == "bind")
    return "it is no address of this host ('ip addr' lists them): correct listen.address, or "
           "metrics.address";
  if (operation == "listen.address" || operation == "metrics.address") {
    if (code == Code::kUnreachable)
      return "it is no address of this machine: 'ip addr' lists those, 0.0.0.0 and :: stand for "
             "all";
    if (code == Code::kInvalidArgument) return kRemedyOfZone;
    if (code == Code::kNotFound || code == Code::kTimedOut)
      return "the name does not resolve here: correct it ('getent hosts NAME' looks it up), or "
             "give an address of this machine ('ip addr')";
  }
  if (operation.ends_with("larger than the memory limit"))
    return "lower pool.size, or raise the limit of the server's control group (MemoryMax= of a "
           "unit, --memory of a container)";
  if (operation == "region that no transport opens")
    return "set 'shm: true' for the region, or let the server offer rdma or tcp (transports)";
  if (code == Code::kUnsupported && operation == "resize")
    return "create another region of that size, copy what is in this one ('remora get' and "
           "'remora put'), and remove it";
  if (code == Code::kUnsupported && operation.starts_with("open over shm"))
    return "use another transport, or create the region anew with RegionSpec::shm";
  if (code == Code::kOutOfRange && is_region_operation(operation))
    return "offset and length have to lie within the region";
  if (operation == "rdma_create_event_channel")
    return "load the kernel module rdma_ucm and check /dev/infiniband/rdma_cm; '?transport=tcp' "
           "needs "
           "neither, nor does '?transport=shm' on the server's own host";
  if (operation == "MrCache::acquire" && code == Code::kLimitExceeded)
    return "ask for less, or raise the budget (MrCacheOptions)";
  if (operation == "MrCache::acquire" && code == Code::kOutOfMemory)
    return "drop leases, whose registrations cannot go, or raise the budget (MrCacheOptions)";
  if (code != Code::kNotFound) return {};
  if (operation == "key file")
    return "'remora key generate FILE' makes one; REMORA_KEY_FILE names that of the command line "
           "program, key_file that of a server";
  if (operation == "DeviceList::find") return "'rdma link' lists the devices of this host";
  if (operation == "choose_gid")
    return "give the port's interface an address ('ip addr add'), or choose a GID by its index";
  if (operation == "RDMA device of this network namespace")
    return "each network namespace of this host has RDMA devices of its own ('rdma system': netns "
           "exclusive): move one here by 'rdma dev set DEVICE netns NAME' where it is now, or let "
           "all use all by 'rdma system set netns shared'; '?transport=tcp' needs none";
  if (operation == "rdma setting that the port does not have")
    return "pkeys and gids of /sys/class/infiniband/DEVICE/ports/PORT are what it has";
  if (operation == "QueuePairBuilder::build") return "'ibv_devinfo -v' lists the port's GIDs";
  if (operation == "getaddrinfo") return "check the host's name ('getent hosts NAME')";
  if (operation == "ibv_get_device_list" || operation == "rdma_get_devices")
    return "no RDMA device: install the NIC's driver, or 'rdma link add rxe0 type rxe netdev IF'; "
           "'?transport=tcp' needs none, nor does '?transport=shm' on the server's own host";
  return {};
}

[[nodiscard]] constexpr std::string_view remedy_of(Code code) noexcept {
  switch (code) {
    case Code::kAddressInUse:
      return "stop the other process or choose another port ('ss -lntp' and 'rdma resource show "
             "cm_id' show the processes that listen)";
    case Code::kConnectionRefused: return "check that remora-server runs there and on that port";
    case Code::kUnreachable: return "check the address and the route ('ip route get ADDRESS')";
    case Code::kUnknownRegion: return "'remora ls' shows the regions of a server";
    case Code::kMisaligned: return "the offset of an atomic must be a multiple of 8";
    case Code::kIndeterminate:
      return "the operation may or may not have taken effect: read back before you repeat it";
    case Code::kWrongAtomicDomain:
      return "open the region over the transport its atomics belong to ('remora stat' shows it)";
    case Code::kStaleRegion:
      return "the server lost its memory: open the region again and refill it";
    default: return {};
  }
}

}  // namespace detail

inline std::string_view Error::remedy() const noexcept {
  // From what says most to what says least.
  std::string_view remedy = detail::remedy_of_errno(errno_);
  if (remedy.empty()) remedy = detail::remedy_of(reason_);
  if (remedy.empty()) remedy = detail::remedy_of_connect(operation(), code_, errno_);
  if (remedy.empty()) remedy = detail::remedy_of_uri(operation());
  if (remedy.empty()) remedy = detail::remedy_of(operation(), code_);
  if (remedy.empty() && code_ == Code::kLimitExceeded && subject().starts_with("limits."))
    remedy = "the server's file sets it";
  if (remedy.empty() && code_ == Code::kLimitExceeded && subject().starts_with("bytes left of the"))
    remedy = "'remora usage' shows what the client has; 'quota' in the server's file bounds it";
  if (remedy.empty()) remedy = detail::remedy_of_post(operation(), code_, subject());
  if (remedy.empty() && code_ == Code::kInvalidArgument)
    remedy = detail::remedy_of_argument(operation(), subject());
  if (remedy.empty()) remedy = detail::remedy_of_verb(operation(), code_, errno_, subject());
  if (remedy.empty()) remedy = detail::remedy_of(code_);
  return remedy;
}

/// "host:7471/cache, offset 4096, length 64: ", or what there is of it.
inline void Error::append_place(std::string& text) const {
  const bool both = !server().empty() && !subject().starts_with(server());
  if (both) text.append(server());
  if (both && !subject().empty()) text.append(has_place_ ? "/" : ": ");
  text.append(subject());
  if (has_place_)
    text.append(", offset ")
        .append(std::to_string(offset_))
        .append(", length ")
        .append(std::to_string(length_));
  if (both || !subject().empty()) text.append(": ");
}

inline void Error::append_limit(std::string& text) const {
  if (!has_limit_) return;
  if (has_place_ && code_ == Code::kOutOfRange)
    text.append(" (the region has ").append(std::to_string(allowed_)).append(" bytes)");
  else
    text.append(" (asked ")
        .append(std::to_string(asked_))
        .append(", allowed ")
        .append(std::to_string(allowed_))
        .append(")");
}

inline std::string Error::message() const {
  std::string text;
  if (!operation().empty()) text.append(operation()).append(": ");
  append_place(text);
  text.append(to_string(code_));
  append_limit(text);
  if (reason_ != Reason::kNone) text.append(": ").append(to_string(reason_));
  if (completion_ != CompletionStatus::kSuccess) {
    text.append(": ").append(to_string(completion_));
    if (vendor_error_ != 0) text.append(", vendor error ").append(std::to_string(vendor_error_));
  }
  if (errno_ != 0) {
    std::array<char, 128> buffer{};
    // The GNU strerror_r: may return a static string, never fails.
    text.append(": ").append(::strerror_r(errno_, buffer.data(), buffer.size()));
  }
  if (!remedy().empty()) text.append("; ").append(remedy());
  return text;
}

inline std::ostream& operator<<(std::ostream& out, const Error& error) {
  return out << error.message();
}

/// Thrown by `Result::value()` on an error, and by nothing else in the library.
class Exception : public std::exception {
 public:
  explicit Exception(const Error& error) : error_{error}, text_{error.message()} {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] const Error& error() const noexcept { return error_; }

 private:
  Error error_;
  std::string text_;
};

namespace detail {

/// Two functions, of which a source has one: so a program may have sources with and without
/// exceptions, and each keeps its own.
#if defined(__cpp_exceptions)
[[noreturn, gnu::cold]] inline void throw_error(const Error& error) { throw Exception{error}; }
#else
[[noreturn, gnu::cold]] inline void end_program(const Error& error) noexcept {
  std::fprintf(stderr, "remora: value() of an error: %s\n", error.message().c_str());
  std::abort();
}
#endif

/// For Result::value().
[[noreturn, gnu::always_inline]] inline void refuse_value(const Error& error) {
#if defined(__cpp_exceptions)
  throw_error(error);
#else
  end_program(error);
#endif
}

}  // namespace detail

/// A value or an Error. Must be looked at.
///
/// `if (!result) return result.error();` is the idiom; `result.value()` throws `Exception` on an
/// error, or ends the program where exceptions are off (see the top of this file); `*result` and
/// `result->` on an error are programmer errors (undefined).
template <typename T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  // NOLINTNEXTLINE(google-explicit-constructor): functions return plain values and errors.
  Result(T value) : state_{std::move(value)} {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(const Error& error) : state_{tl::unexpect, error} {}

  [[nodiscard]] bool ok() const noexcept { return state_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }

  /// Only when !ok().
  [[nodiscard]] const Error& error() const noexcept { return state_.error(); }

  /// Inline always: a source with exceptions and one without them do not share these.
  [[gnu::always_inline]] T& value() & { return check(), *state_; }
  [[gnu::always_inline]] const T& value() const& { return check(), *state_; }
  [[gnu::always_inline]] T value() && { return check(), std::move(*state_); }

  T& operator*() & noexcept { return *state_; }
  const T& operator*() const& noexcept { return *state_; }
  T&& operator*() && noexcept { return std::move(*state_); }
  T* operator->() noexcept { return &*state_; }
  const T* operator->() const noexcept { return &*state_; }

 private:
  [[gnu::always_inline]] void check() const {
    if (!ok()) detail::refuse_value(state_.error());
  }
  tl::expected<T, Error> state_;
};

/// Success or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() noexcept = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(const Error& error) : state_{tl::unexpect, error} {}

  [[nodiscard]] bool ok() const noexcept { return state_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] const Error& error() const noexcept { return state_.error(); }
  [[gnu::always_inline]] void value() const {
    if (!ok()) detail::refuse_value(state_.error());
  }

 private:
  tl::expected<void, Error> state_;
};

using Status = Result<void>;

/// The success of a function that returns Status.
[[nodiscard]] inline Status ok_status() noexcept { return {}; }

}  // namespace remora
