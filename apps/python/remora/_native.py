"""The functions of the C API, and the objects that every call of them needs.

cffi releases the GIL around each call of a function of `lib` and takes it again before the result is
converted: other Python threads run while a call waits for a server or copies bytes.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, Iterable

from . import errors
from ._remora import ffi, lib

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    #: An object with the buffer protocol: bytes, bytearray, memoryview, a numpy array, ...
    Buffer = Any

__all__ = ["Buffer", "Handle", "NULL", "Pairs", "UINT64", "borrow", "check", "closed_error",
           "deadline_ns", "error_of", "ffi", "lib", "nanoseconds", "new_error", "place", "sized",
           "text"]

NULL: Any = ffi.NULL
#: The words of atomic operations are modulo 2**64.
UINT64 = 2**64 - 1


def text(value: Any) -> str:
    """A C string."""
    return ffi.string(value).decode("utf-8", "replace")  # type: ignore[no-any-return]


def sized(type_name: str) -> Any:
    """A struct of the C API that begins with its size."""
    made = ffi.new(type_name + "*")
    made.size = ffi.sizeof(type_name)
    return made


def new_error() -> Any:
    return sized("remora_error")


def nanoseconds(seconds: float) -> int:
    if not seconds >= 0:
        raise errors.make(errors.Code.INVALID_ARGUMENT, errors.Reason.NONE,
                          f"a time of {seconds} s: give seconds from 0 on")
    return int(min(seconds, 9e9) * 1e9)  # also of infinity: as long as the library can count


def deadline_ns(seconds: float | None) -> int:
    """Of an operation: None is 0, which the engine takes as its default. The shortest one is 1 ms; a
    deadline of 0 s, as of a program whose time is over, must not become the default."""
    return 0 if seconds is None else max(nanoseconds(seconds), 1_000_000)


def error_of(error: Any) -> errors.Error:
    """The exception for a struct that a call has filled in."""
    made = errors.make(error.code, error.reason, text(error.message))
    made.system_errno = error.system_errno
    made.operation = text(error.operation)
    made.subject = text(error.subject)
    made.server = text(error.server)
    if error.has_place:
        made.offset, made.length = error.offset, error.length
    if error.has_limit:
        made.asked, made.allowed = error.asked, error.allowed
    return made


def check(code: int, error: Any) -> None:
    """Raises the exception of a call that failed."""
    if code:
        raise error_of(error)


def borrow(buffer: Buffer, writable: bool = False) -> Any:
    """The bytes of `buffer`, in place. It cannot be resized while the result lives.

    Errors: TypeError (no buffer protocol), BufferError or ValueError (read-only, not contiguous).
    """
    return ffi.from_buffer("char[]", buffer, require_writable=writable)


class Pairs:
    """The pairs of one call with many pairs, (offset, buffer), with the bytes of the buffers in place.

    array: for the C API. outcomes: what it writes about each pair. Errors: those of borrow();
    LimitExceededError; OverflowError, TypeError and ValueError (no pair of an offset and a buffer).
    """

    __slots__ = ("array", "buffers", "length", "outcomes", "_borrowed")

    def __init__(self, pairs: Iterable[tuple[int, Buffer]], writable: bool) -> None:
        given = list(pairs)
        if len(given) > lib.REMORA_PAIRS_MAX:
            error = errors.make(errors.Code.LIMIT_EXCEEDED, errors.Reason.NONE,
                                f"{len(given)} pairs in one call: give at most "
                                f"{lib.REMORA_PAIRS_MAX}, and the others in further calls")
            error.asked, error.allowed = len(given), lib.REMORA_PAIRS_MAX
            raise error
        self.buffers = [buffer for _, buffer in given]
        self._borrowed = [borrow(buffer, writable) for buffer in self.buffers]
        lengths = [len(data) for data in self._borrowed]
        self.length = sum(lengths)
        # The parts of a remora_pair: the offset, and a piece of memory that is not registered.
        self.array = ffi.new("remora_pair[]", [
            (offset, (data, length, NULL))
            for (offset, _), data, length in zip(given, self._borrowed, lengths)])
        self.outcomes = ffi.new("remora_pair_outcome[]", len(given))

    def __len__(self) -> int:
        return len(self.buffers)

    def failed(self) -> dict[int, errors.Error]:
        """The error of each pair that failed, by its index. For a call that has ended."""
        found = {}
        for index, ended in enumerate(self.outcomes):
            if ended.code:
                why = "" if not ended.reason else f" ({text(lib.remora_reason_name(ended.reason))})"
                found[index] = errors.make(
                    ended.code, ended.reason,
                    f"pair {index}: {text(lib.remora_code_name(ended.code))}{why}")
        return found


def closed_error(what: str) -> errors.Error:
    return errors.make(errors.Code.CLOSED, errors.Reason.NONE,
                       f"the {what} was closed: open it again")


def place(kind: str) -> Any:
    """NULL, until a function of the C API stores its result in it: an object of `kind`, or a "text".
    The result is freed when nothing refers to the place any more.

    A signal handler may raise as soon as such a function has returned. The place exists by then, so
    that the result is freed.
    """
    made = ffi.new("char**" if kind == "text" else f"remora_{kind}**")
    return ffi.gc(made, getattr(lib, f"remora_py_end_{kind}"))


class Handle:
    """A handle of the C API that any number of threads use: handle.call(function, ...).

    close() frees it once no call uses it: freeing it during a call in another thread would be a
    fault. So do the end of the object and the end of the interpreter, where handles that were made
    later are freed first. CPython counts the calls, as references to the place of the handle: no
    lock can be held when a process forks, and no count is wrong after a signal handler has raised.
    """

    def __init__(self, what: str, kind: str) -> None:
        self._what = what
        self._owned = [place(kind)]
        weakref.finalize(self, self._owned.clear)

    @classmethod
    def made_by(cls, what: str, kind: str, owner: Handle, function: Callable[..., int],
                *arguments: Any, behind: tuple[Any, ...] = ()) -> Handle:
        """A handle that `function` of `owner` makes. `behind`: its arguments after the place."""
        made, error = cls(what, kind), new_error()
        try:
            check(owner.call(function, *arguments, made.place, *behind, error), error)
        except BaseException:
            made.close()
            raise
        return made

    @property
    def place(self) -> Any:
        """For the function that makes the handle."""
        return self._owned[0]

    @property
    def what(self) -> str:
        """What it is, in errors."""
        return self._what

    @property
    def closed(self) -> bool:
        return not self._owned

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls `function` with the handle as its first argument, and returns its result."""
        try:
            used = self._owned[0]
        except IndexError:
            raise closed_error(self._what) from None
        try:
            return function(used[0], *arguments)
        finally:
            del used, arguments  # which a traceback would keep, and with them the handle

    def close(self) -> None:
        """Ends the handle now, or with the last call that uses it. May be called again."""
        self._owned.clear()
