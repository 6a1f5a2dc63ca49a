"""What Region and Volume share: the blocking operations, and queues."""

from __future__ import annotations

import types
import weakref
from typing import Any, Callable, Self

from . import errors
from ._native import (NULL, UINT64, Buffer, Handle, borrow, check, closed_error, deadline_ns, lib,
                      nanoseconds, new_error)
from ._ring import Completion, Ring
from .aio import AsyncQueue
from .queue import Queue
from .types import Rights

__all__ = ["Memory"]

#: Longer reads and writes are operations of this size, so that Ctrl-C need not wait for all.
CHUNK = 8 << 20
#: Operations in flight of one blocking call.
CHUNKS_IN_FLIGHT = 4
#: Queues that are kept for later blocking calls.
IDLE_MAX = 8
#: Queues of more places than this are not kept: only a call with as many pairs needs one.
IDLE_DEPTH_MAX = 1024
#: How long a call that is interrupted waits for its operations in flight.
GIVE_UP_S = 0.05


class Memory:
    """Remote memory: the base of Region and Volume, which have the rules of the operations."""

    def __init__(self, handle: Handle, create_queue: Callable[..., int], spin_ns: int) -> None:
        self._handle = handle
        self._create_queue = create_queue
        self._spin_ns = spin_ns
        self._idle: list[Ring] = []
        self._unfinished: list[Ring] = []
        self._queues: weakref.WeakSet[Queue | AsyncQueue] = weakref.WeakSet()

    # None of these waits for a server.

    @property
    def size(self) -> int:
        """Bytes."""
        return self._ask("size_bytes")  # type: ignore[no-any-return]

    @property
    def rights(self) -> Rights:
        """The rights of its grants."""
        return Rights(self._ask("rights"))

    @property
    def connected(self) -> bool:
        """False while the engine connects again, and for good once a session has ended; of a volume,
        while one of its groups is not connected."""
        return bool(self._ask("connected"))

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

    def settled(self, deadline: float = 10.0) -> None:
        """Blocks, `deadline` seconds at most, of a volume for each of its open groups, until no
        operation that has ended as IndeterminateError can take effect any more. Errors:
        ConnectionLostError (this cannot be known); of a volume, the first of all groups."""
        error = new_error()
        check(self._ask("settled", nanoseconds(deadline), error), error)

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

    def close(self) -> None:
        """Closes its queues, after their operations have ended, and ends its grants. May be called
        again. A call in another thread ends as usual. Errors: BusyError (another thread is in
        a call of one of its queues)."""
        for queue in list(self._queues):
            queue.close()
        self._handle.close()
        for rings in (self._idle, self._unfinished):
            while rings:
                rings.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None,
                 _trace: types.TracebackType | None) -> None:
        self.close()

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Calls remora_region_... or remora_volume_...: the handle is of one of them."""
        return self._handle.call(getattr(lib, f"remora_{self._handle.what}_{name}"), *arguments)

    # The queues of blocking calls: each call has one for itself while it runs.

    def _ring(self, depth: int, within_ns: int) -> Ring:
        return self._handle.call(  # type: ignore[no-any-return]
            Ring, self._create_queue, depth, within_ns, self._spin_ns)

    def _check_out(self, within_ns: int, places: int = 1) -> Ring:
        if self._handle.closed:
            raise closed_error(self._handle.what)
        for _ in range(len(self._unfinished)):
            try:
                ring = self._unfinished.pop(0)
            except IndexError:  # other threads have them
                break
            if ring.give_up(0):
                self._keep(ring)
            else:
                self._unfinished.append(ring)
        for ring in list(self._idle):
            if ring.deadline_ns == within_ns and ring.depth >= places:
                try:
                    self._idle.remove(ring)
                except ValueError:  # another thread has it
                    continue
                return ring
        depth = 1 << (places - 1).bit_length()  # a few sizes, so that a later call finds it
        return self._ring(max(depth, CHUNKS_IN_FLIGHT), within_ns)

    def _check_in(self, ring: Ring) -> None:
        if ring.give_up(GIVE_UP_S):
            self._keep(ring)
        else:
            self._unfinished.append(ring)  # with its buffers

    def _keep(self, ring: Ring) -> None:
        """For a later call, unless there are enough."""
        if self._handle.closed or ring.depth > IDLE_DEPTH_MAX:
            ring.close()
            return
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
