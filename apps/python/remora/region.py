"""An open region, and the blocking operations on it."""

from __future__ import annotations

import types
import weakref
from typing import TYPE_CHECKING, Any, Callable

from . import errors
from ._native import (NULL, UINT64, Buffer, Handle, borrow, check, closed_error, deadline_ns, ffi,
                      lib, nanoseconds, new_error, sized, text)
from ._ring import Completion, Ring
from .aio import AsyncQueue
from .queue import Queue
from .types import RegionInfo, Rights, Transport

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Region"]

#: Longer reads and writes are operations of this size, so that Ctrl-C need not wait for all.
CHUNK = 8 << 20
#: Operations in flight of one blocking call.
CHUNKS_IN_FLIGHT = 4
#: Queues that are kept for later blocking calls.
IDLE_MAX = 8
#: How long a call that is interrupted waits for its operations in flight.
GIVE_UP_S = 0.05


class Region:
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
        self._client = client
        self._name = name
        self._spin_ns = spin_ns
        self._handle = handle
        self._idle: list[Ring] = []
        self._unfinished: list[Ring] = []
        self._queues: weakref.WeakSet[Queue | AsyncQueue] = weakref.WeakSet()
        client._regions.add(self)

    # Blocking operations.

    def read_into(self, buffer: Buffer, offset: int = 0, *, deadline: float | None = None) -> int:
        """Fills `buffer`, which is writable, from byte `offset`; returns its length."""
        data = borrow(buffer, writable=True)
        self._transfer(lib.remora_queue_read, buffer, data, offset, deadline)
        return len(data)

    def read(self, offset: int, length: int, *, deadline: float | None = None) -> bytearray:
        """`length` bytes from byte `offset`, in a new bytearray."""
        buffer = bytearray(length)
        self._transfer(lib.remora_queue_read, buffer, borrow(buffer, writable=True), offset,
                       deadline)
        return buffer

    def write(self, offset: int, data: Buffer, *, deadline: float | None = None) -> int:
        """Writes the bytes of `data` at byte `offset`; returns their number."""
        source = borrow(data)
        self._transfer(lib.remora_queue_write, data, source, offset, deadline)
        return len(source)

    def write_zeroes(self, offset: int, length: int, *, deadline: float | None = None) -> None:
        """Writes `length` zero bytes; over tcp and shm no bytes travel."""
        self._run(lib.remora_queue_write_zeroes, deadline, offset, length)

    def flush(self, *, deadline: float | None = None) -> None:
        """Returns when the writes that have completed are visible to the server's processor and all
        of its devices. Needs Rights.READ. Nothing becomes durable by it."""
        self._run(lib.remora_queue_flush_visible, deadline)

    def compare_swap(self, offset: int, expected: int, desired: int, *,
                     deadline: float | None = None) -> int:
        """Puts `desired` into the 8 bytes at `offset`, a multiple of 8, if they are `expected`.
        Returns the previous value: equal to `expected` means swapped. Values are modulo 2**64.
        Errors: also MisalignedError, WrongAtomicDomainError."""
        return self._run(lib.remora_queue_compare_swap, deadline, offset, expected & UINT64,
                         desired & UINT64)

    def fetch_add(self, offset: int, delta: int, *, deadline: float | None = None) -> int:
        """Adds `delta`, which may be negative, to the 8 bytes at `offset`, a multiple of 8. Returns
        the previous value. Values are modulo 2**64. Errors: as compare_swap()."""
        return self._run(lib.remora_queue_fetch_add, deadline, offset, delta & UINT64)

    # Many operations in flight.

    def queue(self, depth: int = 64, *, deadline: float | None = None) -> Queue:
        """A queue for up to `depth` operations, 1 to 65,536. Does not block for the server."""
        made = Queue(self, self._ring(depth, deadline_ns(deadline)))
        self._queues.add(made)
        return made

    def async_queue(self, depth: int = 64, *, deadline: float | None = None) -> AsyncQueue:
        """Coroutines for the running asyncio loop, up to `depth` operations at once. Errors:
        RuntimeError (no loop is running)."""
        made = AsyncQueue(self, lambda: self._ring(depth, deadline_ns(deadline)))
        self._queues.add(made)
        return made

    # The region itself. None of these waits for the server, unless it says so.

    @property
    def name(self) -> str:
        return self._name

    @property
    def size(self) -> int:
        """Bytes."""
        return self._handle.call(lib.remora_region_size_bytes)  # type: ignore[no-any-return]

    @property
    def rights(self) -> Rights:
        """The rights that this grant carries."""
        return Rights(self._handle.call(lib.remora_region_rights))

    @property
    def transport(self) -> Transport:
        return Transport(self._handle.call(lib.remora_region_transport))

    @property
    def transport_reason(self) -> str:
        """Why that transport was chosen."""
        return self._handle.call(  # type: ignore[no-any-return]
            lambda region: text(lib.remora_region_transport_reason(region)))

    @property
    def connected(self) -> bool:
        """False while the engine connects again, and for good once the session has ended."""
        return bool(self._handle.call(lib.remora_region_connected))

    @property
    def info(self) -> RegionInfo:
        """The region as the server described it when it was opened."""
        info, error = sized("remora_region_info"), new_error()
        check(self._handle.call(lib.remora_region_info_of, info, error), error)
        return RegionInfo.of(info)

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

    def settled(self, deadline: float = 10.0) -> None:
        """Blocks, `deadline` seconds at most, until no operation that has ended as
        IndeterminateError can take effect any more. Errors: ConnectionLostError (this cannot be
        known)."""
        error = new_error()
        check(self._handle.call(lib.remora_region_settled, nanoseconds(deadline), error), error)

    def close(self) -> None:
        """Closes its queues, after their operations have ended, and ends the grant. May be called
        again. A call in another thread ends as usual. Errors: BusyError (another thread is in
        a call of one of its queues)."""
        for queue in list(self._queues):
            queue.close()
        self._handle.close()
        for rings in (self._idle, self._unfinished):
            while rings:
                rings.pop().close()

    def __enter__(self) -> Region:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None,
                 _trace: types.TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<remora.Region {self._name!r}{' closed' if self._handle.closed else ''}>"

    # The queues of blocking calls: each call has one for itself while it runs.

    def _ring(self, depth: int, within_ns: int) -> Ring:
        return self._handle.call(  # type: ignore[no-any-return]
            Ring, depth, within_ns, self._spin_ns)

    def _check_out(self, within_ns: int) -> Ring:
        if self._handle.closed:
            raise closed_error("region")
        for _ in range(len(self._unfinished)):
            try:
                ring = self._unfinished.pop(0)
            except IndexError:  # other threads have them
                break
            (self._idle if ring.give_up(0) else self._unfinished).append(ring)
        for ring in list(self._idle):
            if ring.deadline_ns == within_ns:
                try:
                    self._idle.remove(ring)
                except ValueError:  # another thread has it
                    continue
                return ring
        return self._ring(CHUNKS_IN_FLIGHT, within_ns)

    def _check_in(self, ring: Ring) -> None:
        if not ring.give_up(GIVE_UP_S):
            self._unfinished.append(ring)  # with its buffers
        elif self._handle.closed:
            ring.close()
        else:
            self._idle.append(ring)
            if len(self._idle) > IDLE_MAX:
                self._idle.pop(0).close()

    def _run(self, call: Callable[..., int], deadline: float | None, *arguments: int) -> int:
        """One operation without a buffer; its value."""
        ring = self._check_out(deadline_ns(deadline))
        try:
            ring.take(call, None, None, None, *arguments)
            return first_of(ring.wait(1)).result()
        finally:
            self._check_in(ring)

    def _transfer(self, call: Callable[..., int], buffer: Any, data: Any, offset: int,
                  deadline: float | None) -> None:
        """Reads or writes all of `data`."""
        length = len(data)
        ring = self._check_out(deadline_ns(deadline))
        try:
            if length <= CHUNK:
                ring.take(call, None, buffer, data, offset, data, length, NULL)
                first_of(ring.wait(1)).result()
            else:
                transfer_chunks(ring, call, buffer, data, offset)
        finally:
            self._check_in(ring)


def transfer_chunks(ring: Ring, call: Callable[..., int], buffer: Any, data: Any,
                    offset: int) -> None:
    """A long read or write. After an error nothing more is sent; operations in flight end first."""
    start, length = 0, len(data)
    failure: errors.Error | None = None
    while len(ring) or (start < length and failure is None):
        while start < length and failure is None and ring.has_room:
            size = min(CHUNK, length - start)
            ring.take(call, None, buffer, data, offset + start, data + start, size, NULL)
            start += size
        for completion in ring.wait(1):
            failure = failure or completion.error
    if failure is not None:
        raise failure


def first_of(completions: list[Completion]) -> Completion:
    """The only completion of a blocking call."""
    if not completions:
        raise errors.make(errors.Code.INTERNAL, errors.Reason.NONE,
                          "an operation ended without a completion: please report it")
    return completions[0]
