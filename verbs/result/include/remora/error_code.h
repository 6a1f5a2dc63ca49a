#pragma once

/// The parts of an Error: its code, the reason that refines it, and the NIC's completion status.

#if __cplusplus < 202002L
#error "Remora needs C++20: compile with -std=c++20 or later"
// This file does not exist: the include ends the compilation, before the other headers add hundreds
// of lines.
#include <end-of-compilation-see-the-error-above>
#endif

#include <cstdint>
#include <string_view>

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
  kBusy,               ///< in use by another client, thread or process; retry later
  kAddressInUse,       ///< another process listens there
  kUnreachable,        ///< no route, no such address, no answer
  kConnectionRefused,  ///< the peer refused: no listener, or it rejected this client
  kConnectionLost,     ///< the session ended; the operation has changed nothing
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
  kInternal,           ///< a bug of the library
};

/// Refines a code if the other side has told more.
enum class Reason : std::uint8_t {
  kNone,
  kFenced,          ///< a newer grant fenced this one
  kRevoked,         ///< the grant was revoked
  kOutOfRange,      ///< outside the granted bytes
  kNoRight,         ///< the grant has no such right
  kPeerGone,        ///< the other process ended or disconnected
  kLaneBroken,      ///< the connection of the lane ended, and neither side has said why
  kDraining,        ///< the server stops, or is being drained
  kVersion,         ///< no protocol version in common
  kAuthentication,  ///< the peer did not accept the credentials
  kMemlock,         ///< RLIMIT_MEMLOCK is too small for the memory to pin
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
  kNewMemory,       ///< the server runs with new memory: the old contents are gone
  kLapsed,          ///< the client sent no message for its lease, so the server ended the session
  kSilent,          ///< the peer has not answered for longer than it may
  kTooOften,        ///< the session has broken more often than the server allows
  kNoThread,        ///< the system refused a thread: a limit on threads or processes
  kUnreachable,     ///< no connection to the server: no route, no answer, refused
  kExpired,         ///< the operation's own deadline passed, not that of another one
  kLaneVictim,      ///< another operation on the same lane expired or was refused, which broke it
  kZeroLength,      ///< argument: the length is 0
  kNullPointer,     ///< argument: the local memory is a null pointer
  kEmptySlot,       ///< argument: the slot is empty: the pool had none, or it was moved from
  kOutsideMemory,   ///< argument: the part lies outside the registered memory it is a part of
  kPieces,          ///< argument: no pieces of local memory, or more than kMaxPieces
  kHeld,            ///< another client holds the lock
  kNotRemora,       ///< the other side speaks another protocol
  kHttp,            ///< the other side speaks HTTP, as the metrics endpoint does
  kLocalShortage,   ///< this process or its host lacks a resource of the call (errno says which)
  kForked,          ///< a parent process made the handle, before fork()
};

/// The last enumerator: larger numbers, from a newer peer, are unknown.
inline constexpr Reason kReasonLast = Reason::kForked;

/// The NIC's completion status of one work request: a copy of `ibv_wc_status`, so that no verbs
/// header is needed to read an error. Values equal the verbs enumeration. Source: ibv_poll_cq(3).
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

/// The code in words, as messages have it.
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

/// The reason in words, as messages have it; "none" for kNone.
[[nodiscard]] constexpr std::string_view to_string(Reason reason) noexcept {
  switch (reason) {
    case Reason::kNone: return "none";
    case Reason::kFenced: return "fenced by a newer grant";
    case Reason::kRevoked: return "grant revoked";
    case Reason::kOutOfRange: return "outside the granted bytes";
    case Reason::kNoRight: return "grant without that right";
    case Reason::kPeerGone: return "the peer is gone";
    case Reason::kLaneBroken: return "the connection of the lane broke";
    case Reason::kDraining: return "the server stops, or is being drained";
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

/// The status in words, as messages have it.
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

}  // namespace remora
