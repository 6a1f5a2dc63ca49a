"""One queue of the C API, with the buffers of its operations.

A Ring holds every buffer from before an operation is taken until its completion is there. When the
Ring ends, by close(), by being dropped or with the interpreter, the C API first waits for the
operations in flight; the buffers are released after that.

Waits are slices of SLICE_NS: between two of them, and at once where a signal comes, the interpreter
runs signal handlers. cffi releases the GIL around each call of a function of `lib`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, Callable

from . import errors
from ._native import (NULL, Pairs, check, closed_error, error_of, ffi, lib, new_error, place,
                      sized)

__all__ = ["Completion", "Operation", "QueueBase", "Ring"]

#: The longest time without a look at signals.
SLICE_NS = 50_000_000
#: Most completions of one call.
BATCH = 256
#: The operations that return a value.
ATOMICS = (lib.remora_queue_compare_swap, lib.remora_queue_fetch_add)


class Completion:
    """How one operation ended.

    tag: the object that was given with the operation.
    buffer: the buffer of a read or write; of many pairs the list of their buffers; None for other
    operations.
    old_value: of an atomic operation that succeeded, the value before it; otherwise 0.
    error: None, or the exception of the operation, which is not raised by itself. Of many pairs, that
    of the first one that failed; its `failed_pairs` has all of them.
    """

    __slots__ = ("_places", "buffer", "error", "old_value", "tag", "ticket")

    def __init__(self, operation: Operation, old_value: int, error: errors.Error | None) -> None:
        self.tag = operation.tag
        self.buffer = operation.buffer
        self.ticket = operation.ticket
        self._places = operation.more + 1  # that it has had in the queue
        self.old_value = old_value
        self.error = error

    @property
    def ok(self) -> bool:
        return self.error is None

    def result(self) -> int:
        """The value before an atomic operation, else 0. Raises the error of the operation."""
        if self.error is not None:
            raise self.error
        return self.old_value

    def __repr__(self) -> str:
        return f"<Completion tag={self.tag!r} {'ok' if self.ok else repr(self.error)}>"


class Operation:
    """One operation that a queue has taken, with the objects that must live as long as it."""

    __slots__ = ("buffer", "call", "data", "more", "tag", "ticket")

    def __init__(self, call: Callable[..., int], tag: Any, buffer: Any, data: Any,
                 more: int) -> None:
        self.call = call
        self.tag = tag
        self.buffer = buffer
        self.data = data
        self.more = more  # places beside its own: each of many pairs has one
        self.ticket = 0


def _end(owned: list[Any], held: dict[int, Operation], lock: threading.Lock) -> bool:
    """Waits for all operations, then releases the buffers. False: another thread is in a call."""
    if lock.locked():
        return False  # at the end of the interpreter: a daemon thread, whose frames keep the buffers
    with lock:
        # A signal handler may raise after each call: the buffers are held until C has let them go.
        owned.clear()  # which frees the queue
        held.clear()
    return True


class Ring:
    """Takes operations, submits and collects them. One thread at a time; others get BusyError."""

    def __init__(self, memory: Any, create: Callable[..., int], depth: int, deadline_ns: int,
                 spin_ns: int) -> None:
        if not 1 <= depth <= 65536:
            raise errors.make(errors.Code.INVALID_ARGUMENT, errors.Reason.NONE,
                              f"a queue of depth {depth}: give 1 to 65536")
        options = sized("remora_queue_options")
        options.depth = depth
        options.deadline_ns = deadline_ns
        made = place("queue")
        self._error = new_error()
        check(create(memory, options, made, self._error), self._error)
        self.depth = depth
        self.deadline_ns = deadline_ns
        self._spin_ns = spin_ns
        self._made_in = os.getpid()
        self._queue = made[0]
        self._owned = [made]  # nothing else refers to it
        self._held: dict[int, Operation] = {}
        self._more = 0  # places of the operations held, beside one for each
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _end, self._owned, self._held, self._lock)
        self._next_key = 1
        self._capacity = min(depth, BATCH)
        self._completions = ffi.new("remora_completion[]", self._capacity)
        self._count = ffi.new("size_t*")
        self._ready: list[Completion | None] = []  # ended; None: handed out
        self._handed = 0  # of these
        descriptor = ffi.new("int*")
        check(lib.remora_queue_event_fd(self._queue, descriptor, self._error), self._error)
        self.descriptor: int = descriptor[0]

    def __len__(self) -> int:
        """Operations that were taken and whose completions were not handed out yet."""
        return len(self._held) + len(self._ready) - self._handed

    def tags(self) -> list[Any]:
        """Of the operations that have not ended."""
        return [operation.tag for operation in list(self._held.values())]

    @property
    def has_room(self) -> bool:
        return len(self._held) + self._more < self.depth

    @property
    def closed(self) -> bool:
        return not self._owned

    def _check_free(self) -> None:
        """Call it before `with self._lock`. A `with` on a lock, unlike acquire() and `try`, leaves no
        point at which a signal handler can raise with the lock taken and not given back."""
        if not self._owned:
            raise closed_error("queue")
        if self._lock.locked():
            raise self._busy_error()

    def _busy_error(self) -> errors.Error:
        if self._made_in != os.getpid():  # a thread of the parent was in a call during fork()
            return errors.make(errors.Code.CLOSED, errors.Reason.FORKED,
                               "a parent process made this queue, before fork()")
        return errors.make(errors.Code.BUSY, errors.Reason.NONE,
                           "another thread is in a call of this queue, which has one owner at a "
                           "time: give each thread a queue of its own")

    def take(self, call: Callable[..., int], tag: Any, buffer: Any, data: Any,
             *arguments: Any, more: int = 0) -> int:
        """Takes one operation, `call` being its function; returns the ticket. more: the places that it
        needs beside its own."""
        self._check_free()
        with self._lock:
            if len(self._held) + self._more + more >= self.depth:
                raise self._full_error(more)
            key = self._next_key
            self._next_key = key + 1
            operation = Operation(call, tag, buffer, data, more)
            self._held[key] = operation  # before C has the address
            self._more += more
            try:
                operation.ticket = call(self._queue, *arguments, key)
            except (TypeError, OverflowError):  # an argument that C cannot have: nothing was taken
                del self._held[key]
                self._more -= more
                raise
            if not operation.ticket:
                del self._held[key]
                self._more -= more
                check(lib.remora_queue_submit(self._queue, self._error), self._error)
                if isinstance(data, Pairs):  # there are places for them
                    raise errors.make(errors.Code.OUT_OF_MEMORY, errors.Reason.NONE,
                                      f"no memory for a call with {more + 1} pairs: give it fewer")
                raise closed_error("queue")
            return operation.ticket

    def take_many(self, call: Callable[..., int], tag: Any, pairs: Pairs) -> int:
        """Takes all pairs as one operation, or none; returns the ticket."""
        count = len(pairs)
        return self.take(call, tag, pairs.buffers, pairs, pairs.array, count, pairs.outcomes,
                         more=count - 1)

    def _full_error(self, more: int) -> errors.Error:
        if not more:
            text = f"the queue is full: {self.depth} operations are in it; take completions first"
        else:
            text = (f"{more + 1} pairs need as many places of the queue, which has "
                    f"{self.depth - len(self._held) - self._more} of {self.depth} left; take "
                    "completions first, give it fewer pairs")
        return errors.make(errors.Code.WOULD_BLOCK, errors.Reason.NONE,
                           f"{text}, or make it deeper")

    def submit(self) -> None:
        self._check_free()
        with self._lock:
            check(lib.remora_queue_submit(self._queue, self._error), self._error)

    def barrier(self) -> None:
        self._check_free()
        with self._lock:
            code = lib.remora_queue_barrier(self._queue)
        if code:
            raise errors.make(code, errors.Reason.NONE,
                              "the queue of a volume has no barrier: wait for its operations")

    def select(self, region: Any) -> None:
        self._check_free()
        with self._lock:
            check(lib.remora_queue_select(self._queue, region, self._error), self._error)

    def cancel(self, ticket: int) -> None:
        self._check_free()
        with self._lock:
            check(lib.remora_queue_cancel(self._queue, ticket, self._error), self._error)

    def next_deadline_ns(self) -> int | None:
        """By CLOCK_MONOTONIC; None: nothing is in flight."""
        at: int = lib.remora_queue_next_deadline(self._queue) if self._owned else 2**64 - 1
        return None if at == 2**64 - 1 else at

    def _collect(self) -> None:
        """Makes Completions of those that C has written. A signal handler may raise wherever a function
        is called: the next call collects the rest."""
        for index in range(self._count[0]):
            ended = self._completions[index]
            key = ended.tag
            operation = self._held.get(key)
            if operation is None:
                continue  # collected before a handler raised
            error = None
            if ended.code:
                lib.remora_queue_completion_error(self._queue, ffi.addressof(ended), self._error)
                error = error_of(self._error)
                if isinstance(operation.data, Pairs):
                    error.failed_pairs = operation.data.failed()
            value = ended.old_value
            if value and operation.call not in ATOMICS:
                value = 0  # of an atomic that had the place of the queue before
            completion = Completion(operation, value, error)
            self._ready += [completion]  # no call from here on: a second one would be made of it
            del self._held[key]
            self._more -= operation.more
        self._count[0] = 0

    def _step(self, slice_ns: int, spin_ns: int) -> int:
        """One wait of at most a slice; how many completions it found. The lock is held."""
        self._collect()
        code = lib.remora_py_wait(self._queue, self.descriptor, spin_ns, slice_ns,
                                  self._completions, self._capacity, self._count, self._error)
        found: int = self._count[0]
        self._collect()
        check(code, self._error)
        return found

    def wait(self, at_least: int) -> list[Completion]:
        """Submits, and waits for `at_least` completions or all that are in flight."""
        self._wait_for(at_least)
        return self._hand_out()

    def _wait_for(self, at_least: int) -> None:
        self._check_free()
        with self._lock:
            check(lib.remora_queue_submit(self._queue, self._error), self._error)
            while len(self._ready) - self._handed < at_least and self._held:
                found = self._step(SLICE_NS, self._spin_ns)
                if found == 0 and self.next_deadline_ns() is None:
                    self._more = 0
                    self._held.clear()  # a handler raised before they were taken

    def progress(self) -> list[Completion]:
        """Those that have ended by now; asks for the next event of the descriptor. Never waits."""
        self.collect()
        return self._hand_out()

    def collect(self) -> None:
        """As progress(), for the next calls of next_ended()."""
        self._check_free()
        with self._lock:
            while self._step(0, 0) == self._capacity:
                pass

    # A signal handler raises, and another thread runs, only where a function is called. No function is
    # called between the removal of completions from the ring and the return: they arrive, or stay.

    def _hand_out(self) -> list[Any]:
        handed = self._ready[self._handed:]
        self._ready, self._handed = [], 0
        return handed

    def next_ended(self, wait: bool) -> Completion | None:
        """One completion; the others stay in the ring. None: nothing has ended, and with `wait`
        nothing is in flight any more."""
        try:
            completion = self._ready[self._handed]
        except IndexError:  # all were handed out
            self._ready, self._handed = [], 0
            if not wait:
                return None
            self._wait_for(1)
            return self.next_ended(wait=False)
        self._ready[self._handed] = None
        self._handed += 1
        return completion

    def give_up(self, seconds: float) -> bool:
        """Cancels operations that were not posted and waits for the rest, `seconds` at most; drops the
        results. True: nothing is in flight any more, and the queue may be used again."""
        if not self._held:
            self._drop_ended()
            return not self.closed
        until = time.monotonic() + seconds
        self._check_free()
        with self._lock:
            for operation in list(self._held.values()):
                if operation.ticket:
                    lib.remora_queue_cancel(self._queue, operation.ticket, NULL)
            lib.remora_queue_submit(self._queue, NULL)
            while self._held:
                found = self._step(10_000_000 if seconds else 0, 0)
                if found == 0 and self.next_deadline_ns() is None:
                    self._more = 0
                    self._held.clear()  # a handler raised before they were taken
                elif found == 0 and time.monotonic() >= until:
                    return False
            self._drop_ended()
            return True

    def close(self) -> None:
        """Waits for the operations in flight (their deadline plus two seconds at most), drops the
        results and releases the buffers. May be called again. Errors: BusyError."""
        if not self._owned:
            return
        if not _end(self._owned, self._held, self._lock):
            raise self._busy_error()
        self._drop_ended()

    def _drop_ended(self) -> None:
        self._ready, self._handed = [], 0


class QueueBase:
    """The common base of Queue and AsyncQueue."""

    _ring: Ring
    _memory: Any

    def __len__(self) -> int:
        """Operations in the queue whose completions were not handed out yet."""
        return len(self._ring)

    def __bool__(self) -> bool:
        return True

    @property
    def depth(self) -> int:
        """Most operations in the queue; of many pairs, each is one."""
        return self._ring.depth

    def _check_takes_pairs(self) -> None:
        if self._memory._handle.what != "region":
            raise errors.make(errors.Code.UNSUPPORTED, errors.Reason.NONE,
                              "the queue of a volume takes no calls with many pairs: give it one "
                              "operation for each pair")
