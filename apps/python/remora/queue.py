"""Many operations in flight: fill a queue, then iterate over its completions."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator

from . import errors
from ._native import NULL, UINT64, Buffer, Pairs, borrow, lib
from ._ring import Completion, QueueBase, Ring

if TYPE_CHECKING:
    from .memory import Memory
    from .region import Region

__all__ = ["Completion", "Queue"]


class Queue(QueueBase):
    """Operations on a region or a volume, many at once. Made by Region.queue() and Volume.queue().

        with region.queue(depth=64) as queue:
            for page, buffer in enumerate(buffers):
                queue.read_into(buffer, page * 4096, tag=page)
            for completion in queue:
                completion.result()

    Each call that takes an operation returns its ticket and does not block. Nothing is sent before
    submit(), wait() or an iteration: one call then sends all. Operations in flight are unordered
    among each other; each ends exactly once, within its deadline plus two seconds.

    The queue holds a reference to each buffer until the operation has ended, also where the queue is
    dropped: it then waits. Until then a read's buffer must not be used, and a write's not be changed.

    Threads: one at a time; a call during another thread's is BusyError. Errors of an operation stand
    in its Completion; misuse of the queue is raised: WouldBlockError (full), ClosedError, ForkedError.
    """

    def __init__(self, memory: Memory, ring: Ring) -> None:
        self._memory = memory  # stays open as long as the queue
        self._ring = ring

    def read_into(self, buffer: Buffer, offset: int = 0, *, tag: Any = None) -> int:
        """Fills `buffer`, which is writable and contiguous, from byte `offset` of the region."""
        data = borrow(buffer, writable=True)
        return self._ring.take(lib.remora_queue_read, tag, buffer, data, offset, data, len(data),
                               NULL)

    def write(self, offset: int, data: Buffer, *, tag: Any = None) -> int:
        """Writes the bytes of `data` at byte `offset`."""
        source = borrow(data)
        return self._ring.take(lib.remora_queue_write, tag, data, source, offset, source,
                               len(source), NULL)

    def read_many_into(self, pairs: Iterable[tuple[int, Buffer]], *, tag: Any = None) -> int:
        """Takes all `pairs` (offset, buffer) as one operation, which fills each buffer from its offset,
        and has one ticket and one completion. Each pair needs a place of the queue: WouldBlockError
        where there is no room for all, and none is taken. Where pairs fail, `failed_pairs` of the
        completion's error has an error for each of them. Errors: also InvalidArgumentError (no
        pairs), UnsupportedError (the queue of a volume). See Region.read_many_into()."""
        return self._many(lib.remora_queue_read_many, tag, Pairs(pairs, writable=True))

    def write_many(self, pairs: Iterable[tuple[int, Buffer]], *, tag: Any = None) -> int:
        """Takes all `pairs` (offset, buffer) as one operation, which writes the bytes of each buffer at
        its offset. Otherwise as read_many_into()."""
        return self._many(lib.remora_queue_write_many, tag, Pairs(pairs, writable=False))

    def write_zeroes(self, offset: int, length: int, *, tag: Any = None) -> int:
        """Writes `length` zero bytes; over tcp and shm no bytes travel."""
        return self._ring.take(lib.remora_queue_write_zeroes, tag, None, None, offset, length)

    def flush(self, *, tag: Any = None) -> int:
        """Ends when writes that had completed before are visible to the server's processor and
        devices. Put a barrier() before it to flush the writes of this queue."""
        return self._ring.take(lib.remora_queue_flush_visible, tag, None, None)

    def compare_swap(self, offset: int, expected: int, desired: int, *, tag: Any = None) -> int:
        """See Region.compare_swap(); the value before is the completion's `old_value`."""
        return self._ring.take(lib.remora_queue_compare_swap, tag, None, None, offset,
                               expected & UINT64, desired & UINT64)

    def fetch_add(self, offset: int, delta: int, *, tag: Any = None) -> int:
        """See Region.fetch_add(); the value before is the completion's `old_value`."""
        return self._ring.take(lib.remora_queue_fetch_add, tag, None, None, offset, delta & UINT64)

    def select(self, region: Region) -> None:
        """Operations from now on are for `region`, another one of the same client and transport."""
        region._handle.call(self._ring.select)
        self._memory = region

    def barrier(self) -> None:
        """Operations taken after it are sent when all taken before it have ended."""
        self._ring.barrier()

    def submit(self) -> None:
        """Sends the operations taken so far. Over shm this call copies the bytes."""
        self._ring.submit()

    def cancel(self, ticket: int) -> None:
        """Ends an operation that was not sent: it completes with CancelledError.
        Errors: BusyError (it was sent), NotFoundError (it has ended)."""
        self._ring.cancel(ticket)

    def wait(self, at_least: int = 1) -> list[Completion]:
        """Submits, and blocks until `at_least` operations have ended or all that are in the queue.
        Signal handlers run meanwhile: after Ctrl-C (KeyboardInterrupt) the operations stay in the
        queue, and a later call has their completions."""
        return self._ring.wait(at_least)

    def progress(self) -> list[Completion]:
        """The operations that have ended by now; never waits. For an event loop: call it when
        fileno() is readable, and at next_deadline() at the latest."""
        return self._ring.progress()

    def fileno(self) -> int:
        """A descriptor that is readable when progress() has something to do; the queue owns it."""
        return self._ring.descriptor

    def next_deadline(self) -> float | None:
        """When the earliest operation in flight runs out of time, by time.monotonic(); None: nothing
        is in flight."""
        at = self._ring.next_deadline_ns()
        return None if at is None else at / 1e9

    def __iter__(self) -> Iterator[Completion]:
        """Completions until the queue is empty; the loop may put further operations into it. Where
        the loop is left, the completions that it has not come to stay in the queue."""
        while len(self._ring):
            completion = self._ring.next_ended(wait=True)
            if completion is None:
                return
            yield completion

    @property
    def full(self) -> bool:
        return not self._ring.has_room

    def _many(self, call: Callable[..., int], tag: Any, pairs: Pairs) -> int:
        self._check_takes_pairs()
        if not len(pairs):
            raise errors.make(errors.Code.INVALID_ARGUMENT, errors.Reason.NONE,
                              "no pairs: an operation of a queue needs at least one")
        return self._ring.take_many(call, tag, pairs)

    def close(self) -> None:
        """Waits for its operations, drops the results and releases the buffers. Errors: BusyError
        (another thread is in a call of the queue)."""
        self._ring.close()

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None,
                 _trace: types.TracebackType | None) -> None:
        self.close()
