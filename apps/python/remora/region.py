"""An open region, and the blocking operations on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Iterable

from ._native import (Buffer, Handle, Pairs, check, closed_error, deadline_ns, ffi, lib, new_error,
                      sized, text)
from .memory import Memory, first_of
from .types import RegionInfo, Transport

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Region"]


class Region(Memory):
    """Named remote memory. Made by Client.open_region(); close() or `with` ends the grant.

    Offsets and lengths are bytes. Buffers are objects with the buffer protocol, contiguous: bytes,
    bytearray, memoryview, numpy arrays. Remora's Python code copies none of them.

    The operations block until done, at most their deadline (seconds, 0.001 to 3600; others, also 0,
    are raised or lowered to that; None: that of connect()) plus two seconds, and other Python threads
    run meanwhile. A read or write of more than 8 MiB is several operations: each has the deadline,
    and where one fails, the error says which bytes, and others may have been written.

    After Ctrl-C a call raises KeyboardInterrupt within about 0.1 s. Its operations have been cancelled
    or have ended by then. Where the server does not answer, they have not: the region then keeps the
    buffer until they have ended; do not use the buffer before close().

    Threads: any number at once. Errors of all operations: OutOfRangeError, NoRightError,
    InvalidArgumentError (nothing was sent); TimedOutError, ConnectionLostError, StaleRegionError
    (without remote effect); IndeterminateError (a write or atomic whose effect cannot be known);
    AccessRefusedError (fenced, revoked); ClosedError, ForkedError. A buffer that is read-only or not
    contiguous: BufferError or ValueError, as the buffer says it.
    """

    def __init__(self, client: Client, name: str, handle: Handle, spin_ns: int) -> None:
        super().__init__(handle, lib.remora_queue_create, spin_ns)
        self._client = client
        self._name = name
        client._regions.add(self)

    # None of these waits for the server, unless it says so.

    @property
    def name(self) -> str:
        return self._name

    @property
    def transport(self) -> Transport:
        return Transport(self._handle.call(lib.remora_region_transport))

    @property
    def transport_reason(self) -> str:
        """Why that transport was chosen."""
        return self._handle.call(  # type: ignore[no-any-return]
            lambda region: text(lib.remora_region_transport_reason(region)))

    @property
    def info(self) -> RegionInfo:
        """The region as the server described it when it was opened."""
        info, error = sized("remora_region_info"), new_error()
        check(self._handle.call(lib.remora_region_info_of, info, error), error)
        return RegionInfo.of(info)

    # Many pairs in one call.

    def read_many_into(self, pairs: Iterable[tuple[int, Buffer]], *,
                       deadline: float | None = None) -> int:
        """Fills each buffer of the `pairs` (offset, buffer) from its offset; returns the bytes of all.

            region.read_many_into((place * 64, block) for place, block in zip(places, blocks))

        0 to 65,536 pairs go to the server together, in no order: the least cost of each operation.
        Each pair is an operation of its own, which is not cut, and its buffer is as in read_into().
        The deadline is one for all. Where pairs fail, the others are carried out, and the error of the
        first one that failed is raised: `failed_pairs` of it has an error for each of them, by its
        index. Errors: also LimitExceededError (too many pairs; nothing was sent)."""
        return self._many(lib.remora_queue_read_many, Pairs(pairs, writable=True), deadline)

    def write_many(self, pairs: Iterable[tuple[int, Buffer]], *,
                   deadline: float | None = None) -> int:
        """Writes the bytes of each buffer of the `pairs` (offset, buffer) at its offset; returns the
        bytes of all. The rules and errors are those of read_many_into(). Where pairs overlap in the
        region, either may be the one that stays."""
        return self._many(lib.remora_queue_write_many, Pairs(pairs, writable=False), deadline)

    def _many(self, call: Callable[..., int], pairs: Pairs, deadline: float | None) -> int:
        within_ns = deadline_ns(deadline)
        if not len(pairs):
            if self._handle.closed:
                raise closed_error(self._handle.what)
            return 0
        ring = self._check_out(within_ns, len(pairs))
        try:
            ring.take_many(call, None, pairs)
            first_of(ring.wait(1)).result()
        finally:
            self._check_in(ring)
        return pairs.length

    # A new grant.

    def fence(self) -> Region:
        """A new grant of the region with the same rights, after the server has revoked every older
        one, also this one. Blocks for the server, at most `control_deadline`, also for Ctrl-C.
        Errors: BusyError (over shm: a client that has it mapped does not answer)."""
        made = Handle.made_by("region", "region", self._handle, lib.remora_region_fence)
        return Region(self._client, self._name, made, self._spin_ns)

    def reopen(self) -> tuple[Region, bool]:
        """Opens it again, after StaleRegionError, ConnectionLostError or a revoked grant. The bool says
        whether it has the same memory as before, with its contents. Blocks as fence()."""
        same = ffi.new("int*")
        made = Handle.made_by("region", "region", self._handle, lib.remora_region_reopen,
                              behind=(same,))
        return Region(self._client, self._name, made, self._spin_ns), bool(same[0])

    def __repr__(self) -> str:
        return f"<remora.Region {self._name!r}{' closed' if self._handle.closed else ''}>"
