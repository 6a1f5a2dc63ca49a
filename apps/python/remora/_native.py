"""The functions of the C API, and what every call of them needs.

cffi releases the GIL around each call of a function of `lib` and takes it again before the result is
converted: other Python threads run while a call waits for a server or copies bytes.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable

from . import errors
from ._remora import ffi, lib

if sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    #: An object with the buffer protocol: bytes, bytearray, memoryview, a numpy array, ...
    Buffer = Any

__all__ = ["Buffer", "Handle", "NULL", "UINT64", "borrow", "check", "closed_error", "error_of", "ffi",
           "lib", "nanoseconds", "new_error", "sized", "text"]

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


def nanoseconds(seconds: float | None) -> int:
    """None is 0: the default of the engine."""
    if seconds is None:
        return 0
    if not seconds >= 0:
        raise errors.make(errors.Code.INVALID_ARGUMENT, errors.Reason.NONE,
                          f"a time of {seconds} s: give seconds from 0 on")
    return int(min(seconds, 9e9) * 1e9)  # also of infinity: as long as the library can count


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


def closed_error(what: str) -> errors.Error:
    return errors.make(errors.Code.CLOSED, errors.Reason.NONE,
                       f"the {what} was closed: open it again")


def _free_unused(owned: list[Any], calls: list[None], free: Callable[[Any], None]) -> None:
    """Frees a handle once, unless a call uses it."""
    if calls:
        return
    try:
        pointer = owned.pop()
    except IndexError:
        return
    free(pointer)


class Handle:
    """A handle of the C API that any number of threads use: `with handle as pointer`.

    close() frees it once no call uses it: freeing it during a call in another thread would be a
    fault. So do the end of the object and the end of the interpreter, where handles that were made
    later are freed first. Appending to a list and taking from it are atomic in CPython, so no lock
    can be held when a process forks.
    """

    def __init__(self, what: str, pointer: Any, free: Callable[[Any], None]) -> None:
        self._what = what
        self._pointer = pointer
        self._owned = [pointer]
        self._calls: list[None] = []
        self._end = (self._owned, self._calls, free)
        weakref.finalize(self, _free_unused, *self._end)
        self.closed = False

    def __enter__(self) -> Any:
        self._calls.append(None)
        if self.closed:
            self.__exit__()
            raise closed_error(self._what)
        return self._pointer

    def __exit__(self, *_: object) -> None:
        self._calls.pop()
        if self.closed:
            _free_unused(*self._end)

    def close(self) -> None:
        """Ends the handle now, or with the last call that uses it. May be called again."""
        self.closed = True
        _free_unused(*self._end)
