"""Exceptions: one class for each code of the C API, all below Error.

Each carries the text of the library: the failure, its place, its cause and the remedy.
"""

from __future__ import annotations

import builtins
import enum
from types import MappingProxyType
from typing import Mapping

__all__ = [
    "AccessRefusedError", "AddressInUseError", "AlreadyExistsError", "BusyError", "CancelledError",
    "ClosedError", "Code", "ConnectionLostError", "ConnectionRefusedError", "Error", "ForkedError",
    "IndeterminateError", "InternalError", "InvalidArgumentError", "LimitExceededError",
    "MisalignedError", "NoRightError", "NotFoundError", "OutOfMemoryError", "OutOfRangeError",
    "PermissionDeniedError", "ProtocolError", "ProviderError", "Reason", "StaleRegionError",
    "SystemCallError", "TimedOutError", "UnknownRegionError", "UnreachableError", "UnsupportedError",
    "WouldBlockError", "WrongAtomicDomainError",
]


class Code(enum.IntEnum):
    """The code of an error: `remora_code` of <remora/c/error.h>. The numbers never change."""

    OK = 0
    INVALID_ARGUMENT = 1
    OUT_OF_RANGE = 2
    MISALIGNED = 3
    NO_RIGHT = 4
    WRONG_ATOMIC_DOMAIN = 5
    UNSUPPORTED = 6
    LIMIT_EXCEEDED = 7
    OUT_OF_MEMORY = 8
    PERMISSION_DENIED = 9
    NOT_FOUND = 10
    UNKNOWN_REGION = 11
    ALREADY_EXISTS = 12
    BUSY = 13
    ADDRESS_IN_USE = 14
    UNREACHABLE = 15
    CONNECTION_REFUSED = 16
    CONNECTION_LOST = 17
    PROTOCOL = 18
    ACCESS_REFUSED = 19
    STALE_REGION = 20
    TIMED_OUT = 21
    CANCELLED = 22
    INDETERMINATE = 23
    WOULD_BLOCK = 24
    CLOSED = 25
    PROVIDER = 26
    SYSTEM = 27
    INTERNAL = 28


class Reason(enum.IntEnum):
    """Refines a code: `remora_reason` of <remora/c/error.h>. The numbers never change."""

    NONE = 0
    FENCED = 1
    REVOKED = 2
    OUT_OF_RANGE = 3
    NO_RIGHT = 4
    PEER_GONE = 5
    LANE_BROKEN = 6
    DRAINING = 7
    VERSION = 8
    AUTHENTICATION = 9
    MEMLOCK = 10
    POOL_FULL = 11
    NO_ATOMICS = 12
    NOT_OFFERED = 13
    UNKNOWN_DEVICE = 14
    OTHER_USER = 15
    WORLD_WRITABLE = 16
    GID_UNSET = 17
    GID_FAMILY = 18
    GID_SCOPE = 19
    NO_NEIGHBOUR = 20
    NEW_MEMORY = 21
    LAPSED = 22
    SILENT = 23
    TOO_OFTEN = 24
    NO_THREAD = 25
    UNREACHABLE = 26
    EXPIRED = 27
    LANE_VICTIM = 28
    ZERO_LENGTH = 29
    NULL_POINTER = 30
    EMPTY_SLOT = 31
    OUTSIDE_MEMORY = 32
    PIECES = 33
    HELD = 34
    NOT_REMORA = 35
    HTTP = 36
    LOCAL_SHORTAGE = 37
    FORKED = 38


class Error(Exception):
    """A failed call or operation. `str()` of it is one line with the remedy.

    A newer library may have codes and reasons that this package does not know: they are plain
    numbers then, and the exception is an Error of no subclass.
    """

    code: int = Code.INTERNAL
    reason: int = Reason.NONE
    #: errno of the system call that failed; 0: none.
    system_errno: int = 0
    #: The function of the C API that failed.
    operation: str = ""
    #: An address, a path, a device, a region's name; may be "".
    subject: str = ""
    #: "host:port"; "" where no server has to do with it.
    server: str = ""
    #: Which bytes of a region; None where it is no operation on bytes.
    offset: int | None = None
    length: int | None = None
    #: The number of the request, and the bound that it exceeds; None: no bound.
    asked: int | None = None
    allowed: int | None = None
    #: Of a call with many pairs, an error of each pair that failed, by its index; otherwise empty.
    #: The error that has them describes the first of these pairs in full.
    failed_pairs: Mapping[int, Error] = MappingProxyType({})


class InvalidArgumentError(Error, ValueError):
    """The call itself is wrong: a bad URI, a length of 0, an option. Nothing was sent."""

    code = Code.INVALID_ARGUMENT


class OutOfRangeError(Error, ValueError):
    """Bytes outside the region. Nothing was sent."""

    code = Code.OUT_OF_RANGE


class MisalignedError(Error, ValueError):
    """The offset of an atomic operation is no multiple of 8. Nothing was sent."""

    code = Code.MISALIGNED


class NoRightError(Error):
    """The grant does not carry the right that was used."""

    code = Code.NO_RIGHT


class WrongAtomicDomainError(Error):
    """The region's atomics belong to another device or to the CPU."""

    code = Code.WRONG_ATOMIC_DOMAIN


class UnsupportedError(Error):
    """Device, transport, server or library cannot do this."""

    code = Code.UNSUPPORTED


class LimitExceededError(Error):
    """A documented bound: `asked` and `allowed` have both numbers."""

    code = Code.LIMIT_EXCEEDED


class OutOfMemoryError(Error, MemoryError):
    """Memory, or memory that may be pinned, is exhausted."""

    code = Code.OUT_OF_MEMORY


class PermissionDeniedError(Error, PermissionError):
    """The operating system refused."""

    code = Code.PERMISSION_DENIED


class NotFoundError(Error, LookupError):
    """A device, file, host or entry that does not exist."""

    code = Code.NOT_FOUND


class UnknownRegionError(Error, LookupError):
    """The server has no region of that name."""

    code = Code.UNKNOWN_REGION


class AlreadyExistsError(Error):
    """The name is taken."""

    code = Code.ALREADY_EXISTS


class BusyError(Error):
    """Another user holds it, or another thread is in a call of the same queue."""

    code = Code.BUSY


class AddressInUseError(Error):
    """Another process listens there."""

    code = Code.ADDRESS_IN_USE


class UnreachableError(Error, ConnectionError):
    """No route, no such address, no answer."""

    code = Code.UNREACHABLE


class ConnectionRefusedError(Error, builtins.ConnectionRefusedError):
    """The peer said no: nothing listens there, or it rejected this client."""

    code = Code.CONNECTION_REFUSED


class ConnectionLostError(Error, ConnectionError):
    """The session ended; the operation has changed nothing."""

    code = Code.CONNECTION_LOST


class ProtocolError(Error):
    """The peer sent bytes that do not follow the protocol."""

    code = Code.PROTOCOL


class AccessRefusedError(Error):
    """The server, or its NIC, refused the access; `reason` says why."""

    code = Code.ACCESS_REFUSED


class StaleRegionError(Error):
    """The memory behind the region is new: the old contents are gone. See Region.reopen()."""

    code = Code.STALE_REGION


class TimedOutError(Error, TimeoutError):
    """The deadline passed; provably without remote effect."""

    code = Code.TIMED_OUT


class CancelledError(Error):
    """Cancelled before it was posted; provably without remote effect."""

    code = Code.CANCELLED


class IndeterminateError(Error):
    """A write or an atomic operation whose effect cannot be known: call settled(), then read back."""

    code = Code.INDETERMINATE


class WouldBlockError(Error):
    """A bounded queue is full."""

    code = Code.WOULD_BLOCK


class ClosedError(Error):
    """The object was closed."""

    code = Code.CLOSED


class ForkedError(ClosedError):
    """A parent process made the object, before fork(): connect again in this process."""

    reason = Reason.FORKED


class ProviderError(Error):
    """A verbs call failed; `system_errno` has its errno."""

    code = Code.PROVIDER


class SystemCallError(Error):
    """A system call failed; `system_errno` has its errno."""

    code = Code.SYSTEM


class InternalError(Error):
    """A bug of Remora."""

    code = Code.INTERNAL


_CLASSES: dict[int, type[Error]] = {
    each.code: each for each in Error.__subclasses__()
}
_IN_A_CHILD = ("; in Python: call remora.connect() in the child process, or start it with "
               "multiprocessing's method 'spawn'")


def code_of(number: int) -> int:
    """The Code of that number; one that this package does not know stays a number."""
    return Code(number) if number in Code._value2member_map_ else number


def reason_of(number: int) -> int:
    """The Reason of that number; one that this package does not know stays a number."""
    return Reason(number) if number in Reason._value2member_map_ else number


def class_of(code: int, reason: int = Reason.NONE) -> type[Error]:
    """The exception class for a code and a reason."""
    if code == Code.CLOSED and reason == Reason.FORKED:
        return ForkedError
    return _CLASSES.get(code, Error)


def make(code: int, reason: int, message: str) -> Error:
    """An exception with this text; codes and reasons that are known become enumerators."""
    if reason == Reason.FORKED and _IN_A_CHILD not in message:
        message += _IN_A_CHILD
    error = class_of(code, reason)(message)
    error.code = code_of(code)
    error.reason = reason_of(reason)
    return error
