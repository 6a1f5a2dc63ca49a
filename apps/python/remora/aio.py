"""Operations as coroutines of an asyncio loop.

The loop waits for the event descriptor of one queue, and for its next deadline: no thread is started,
and the operations that tasks begin in one iteration of the loop are sent together.
"""

from __future__ import annotations

import asyncio
import time
import types
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterable

from . import errors
from ._native import NULL, UINT64, Buffer, Pairs, borrow, lib
from ._ring import QueueBase, Ring

if TYPE_CHECKING:
    from .memory import Memory

__all__ = ["AsyncQueue"]

#: Longer reads and writes are operations of this size.
CHUNK = 8 << 20
#: A deadline that has passed is looked at again after this time.
TIMER_S_MIN = 0.001


class AsyncQueue(QueueBase):
    """Operations on a region or a volume as coroutines. Made by Region.async_queue() and
    Volume.async_queue() in a running loop.

        async with region.async_queue(depth=64) as queue:
            pages = await asyncio.gather(*(queue.read(n * 4096, 4096) for n in range(1000)))

    Any number of tasks of that loop may use it: at most `depth` operations are in flight, and others
    wait. Each ends within its deadline plus two seconds. Offsets and lengths are bytes; errors are
    those of Region, or of Volume.

    Run the loop by asyncio.run(), which cancels its task at Ctrl-C. In other loops KeyboardInterrupt
    may come within asyncio itself: close the queue then; its buffers stay valid until it has ended.

    A task that is cancelled is told at once, but an operation that was sent cannot be called back:
    its buffer belongs to it until it has ended, and aclose() waits for that. The queue holds a
    reference until then.
    """

    def __init__(self, memory: Memory, make_ring: Callable[[], Ring]) -> None:
        self._loop = asyncio.get_running_loop()
        self._memory = memory  # stays open as long as the queue
        self._ring = make_ring()
        self._room = asyncio.Semaphore(self._ring.depth)
        self._gathering = asyncio.Lock()  # of the only task that has some of the places it needs
        self._submit_at: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._idle: asyncio.Event = asyncio.Event()
        self._idle.set()
        self._broken = False  # closed, or nothing can be asked of it any more
        self._loop.add_reader(self._ring.descriptor, _progress_of, weakref.ref(self))
        self._stop = weakref.finalize(self, _forget, self._loop, self._ring.descriptor)

    async def read_into(self, buffer: Buffer, offset: int = 0) -> int:
        """Fills `buffer`, which is writable and contiguous, from byte `offset`; returns its length."""
        data = borrow(buffer, writable=True)
        await self._transfer(lib.remora_queue_read, buffer, data, offset)
        return len(data)

    async def read(self, offset: int, length: int) -> bytearray:
        """`length` bytes from byte `offset`, in a new bytearray."""
        buffer = bytearray(length)
        await self._transfer(lib.remora_queue_read, buffer, borrow(buffer, writable=True), offset)
        return buffer

    async def write(self, offset: int, data: Buffer) -> int:
        """Writes the bytes of `data` at byte `offset`; returns their number."""
        source = borrow(data)
        await self._transfer(lib.remora_queue_write, data, source, offset)
        return len(source)

    async def read_many_into(self, pairs: Iterable[tuple[int, Buffer]]) -> int:
        """Fills each buffer of the `pairs` (offset, buffer) from its offset, as one operation; returns
        the bytes of all. Each pair has a place of the queue: at most `depth` pairs, for which the
        call waits. Errors: as Region.read_many_into(); WouldBlockError (more pairs than `depth`),
        UnsupportedError (the queue of a volume)."""
        return await self._many(lib.remora_queue_read_many, Pairs(pairs, writable=True))

    async def write_many(self, pairs: Iterable[tuple[int, Buffer]]) -> int:
        """Writes the bytes of each buffer of the `pairs` (offset, buffer) at its offset, as one
        operation; returns the bytes of all. Otherwise as read_many_into()."""
        return await self._many(lib.remora_queue_write_many, Pairs(pairs, writable=False))

    async def write_zeroes(self, offset: int, length: int) -> None:
        """Writes `length` zero bytes; over tcp and shm no bytes travel."""
        await self._run(lib.remora_queue_write_zeroes, None, None, offset, length)

    async def flush(self) -> None:
        """Ends when the writes that were awaited before are visible to the server's processor and
        devices."""
        await self._run(lib.remora_queue_flush_visible, None, None)

    async def compare_swap(self, offset: int, expected: int, desired: int) -> int:
        """See Region.compare_swap()."""
        return await self._run(lib.remora_queue_compare_swap, None, None, offset,
                               expected & UINT64, desired & UINT64)

    async def fetch_add(self, offset: int, delta: int) -> int:
        """See Region.fetch_add()."""
        return await self._run(lib.remora_queue_fetch_add, None, None, offset, delta & UINT64)

    async def aclose(self) -> None:
        """Waits, without blocking the loop, until all operations have ended, then closes."""
        try:
            if len(self._ring) and not self._broken:
                if self._submit_at is not None:
                    self._submit_at.cancel()
                self._submit()  # also operations left when a signal handler raised
            while len(self._ring) and not self._broken:
                await self._idle.wait()
        finally:
            self.close()

    def close(self) -> None:
        """Closes now: blocks until all operations have ended; tasks that wait for one get
        ClosedError. Call it in the thread of the loop, or when the loop is closed."""
        self._stop()
        for handle in (self._timer, self._submit_at):
            if handle is not None:
                handle.cancel()
        waiting = self._ring.tags()
        self._ring.close()
        self._fail(waiting, errors.make(errors.Code.CLOSED, errors.Reason.NONE,
                                        "the queue was closed while a task waited for it"))
        if not self._loop.is_closed():
            self._room.release()  # a task that waits for room is refused, and wakes the next one

    async def __aenter__(self) -> AsyncQueue:
        return self

    async def __aexit__(self, _kind: type[BaseException] | None, _error: BaseException | None,
                        _trace: types.TracebackType | None) -> None:
        await self.aclose()

    async def _transfer(self, call: Callable[..., int], buffer: Any, data: Any,
                        offset: int) -> None:
        length = len(data)
        if length <= CHUNK:
            await self._run(call, buffer, data, offset, data, length, NULL)
            return
        parts = [self._run(call, buffer, data, offset + start, data + start,
                           min(CHUNK, length - start), NULL)
                 for start in range(0, length, CHUNK)]
        for result in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _many(self, call: Callable[..., int], pairs: Pairs) -> int:
        """All pairs as one operation; their bytes."""
        self._check_takes_pairs()
        count = len(pairs)
        if count > self._ring.depth:
            raise errors.make(errors.Code.WOULD_BLOCK, errors.Reason.NONE,
                              f"{count} pairs in one call of a queue of depth {self._ring.depth}: "
                              "give it fewer, or make the queue deeper")
        if count != 0:
            await self._run(call, pairs.buffers, pairs, pairs.array, count, pairs.outcomes,
                            places=count)
        return pairs.length

    async def _gather(self, places: int) -> None:
        """Takes room for several operations. One task at a time: two that each had some of the places
        would wait for each other's."""
        async with self._gathering:
            taken = 0
            try:
                while taken < places and not self._broken:  # a queue that was closed has no room
                    await self._room.acquire()
                    taken += 1
            except BaseException:
                self._release(taken)
                raise

    def _release(self, places: int) -> None:
        for _ in range(places):
            self._room.release()

    async def _run(self, call: Callable[..., int], buffer: Any, data: Any, *arguments: Any,
                   places: int = 1) -> int:
        """One operation; its value."""
        future: asyncio.Future[int] = self._loop.create_future()
        if places == 1:
            await self._room.acquire()
        else:
            await self._gather(places)
        try:
            # Before the operation is in the ring: whatever take() raises, its end is looked for.
            self._idle.clear()
            if self._submit_at is None:
                self._submit_at = self._loop.call_soon(self._submit)
            self._ring.take(call, future, buffer, data, *arguments, more=places - 1)
        except BaseException:
            # A handler of a signal may raise when the operation has been taken: it has its place.
            if future not in self._ring.tags():
                self._release(places)
            raise
        return await future

    def _submit(self) -> None:
        """Sends the operations that tasks have begun in this iteration of the loop."""
        self._submit_at = None
        try:
            self._ring.submit()
        except errors.Error as error:
            self._fail(self._ring.tags(), error)
            return
        self._progress()  # over shm all of it has ended

    def _progress(self) -> None:
        try:
            self._ring.collect()
        except errors.Error as error:
            self._fail(self._ring.tags(), error)
            return
        while (completion := self._ring.next_ended(wait=False)) is not None:
            if completion._places == 1:
                self._room.release()
            else:
                self._release(completion._places)
            future = completion.tag
            if future.done():
                continue  # its task was cancelled
            if completion.error is None:
                future.set_result(completion.old_value)
            else:
                future.set_exception(completion.error)
        if not len(self._ring):
            self._idle.set()
        self._set_timer()

    def _set_timer(self) -> None:
        """Wakes the loop at the next deadline at the latest. One that comes too early is kept: it
        costs less than a new one for each operation."""
        at = self._ring.next_deadline_ns()
        if at is None or (self._timer is not None and self._timer_ns <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay = max(TIMER_S_MIN, at / 1e9 - time.monotonic())
        self._timer = self._loop.call_later(delay, _deadline_of, weakref.ref(self))
        self._timer_ns = at

    def _deadline(self) -> None:
        self._timer = None
        if not self._ring.closed:
            self._progress()

    def _fail(self, waiting: list[Any], error: errors.Error) -> None:
        """Each task gets an exception of its own: a shared one would collect their tracebacks."""
        self._broken = True
        if self._loop.is_closed():
            return
        self._idle.set()
        for future in waiting:
            if not future.done():
                future.set_exception(errors.make(error.code, error.reason, str(error)))


def _progress_of(queue: weakref.ref[AsyncQueue]) -> None:
    """The loop holds no reference to the queue: one that is dropped ends."""
    made = queue()
    if made is not None:
        made._progress()


def _deadline_of(queue: weakref.ref[AsyncQueue]) -> None:
    made = queue()
    if made is not None:
        made._deadline()


def _forget(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    if not loop.is_closed():
        loop.remove_reader(descriptor)
