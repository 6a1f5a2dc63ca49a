"""A volume: one address space over the memory of several servers."""

from __future__ import annotations

import concurrent.futures
import os
import types
from typing import Callable

from . import errors
from ._native import NULL, Handle, check, ffi, lib, nanoseconds, new_error, place, sized
from .client import open_engine
from .memory import Memory
from .types import (RepairReport, Rights, Transport, VolumeChange, VolumeEvent, VolumeGroup,
                    VolumeInfo)

__all__ = ["Claim", "Volume", "open_volume"]

#: How often a repair tells how far it has come.
PROGRESS_S = 0.1
#: Events that one call takes.
EVENTS_AT_ONCE = 64
CHANGES = frozenset(VolumeChange)

os.register_at_fork(after_in_child=lib.remora_py_forget_events)


def open_volume(uri: str, rights: Rights = Rights.ALL, *, transport: Transport = Transport.AUTO,
                partial: bool = False, store_deadline: float = 5.0,
                etcd_ca_file: str | os.PathLike[str] | None = None,
                etcd_certificate_file: str | os.PathLike[str] | None = None,
                etcd_key_file: str | os.PathLike[str] | None = None,
                etcd_user: str | None = None, etcd_password: str | None = None,
                client_name: str | None = None,
                key_file: str | os.PathLike[str] | None = None, key_hex: str | None = None,
                deadline: float = 10.0, control_deadline: float = 10.0, connect_for: float = 0.0,
                reconnect_for: float = 30.0, spin: float = 50e-6, lanes: int = 1,
                device: str | None = None, payload_crc: bool = False, rails: str | None = None,
                rdma: str | None = None) -> Volume:
    """Opens the volume of `uri`, "remora+etcd://HOST[:2379][,HOST2...]/CLUSTER/VOLUME[?tls=on]" or
    "remora+file:///PATH/NAME.json/VOLUME", with `rights`.

    transport: AUTO, RDMA or TCP. partial: opens it although groups cannot be opened, and operations
    on those fail. store_deadline: of each request to the store of the cluster, in seconds.
    etcd_...: certificates, user and password for etcd; None: those of the environment,
    REMORA_ETCD_CA_FILE and others. The other options are those of connect(), for all servers.

    Blocks, also for Ctrl-C: requests to the store, a session for each server, a request for each
    group; those of a mirror come with its first read and its claim. Errors: InvalidArgumentError
    (URI, an option), NotFoundError (no such volume, a file), BusyError (it is being created or
    removed), UnsupportedError (shm, no libcurl for etcd), ProtocolError (records that do not fit each
    other), StaleRegionError (a group is lost); those of connect() and Client.open_region().
    """
    options, error = sized("remora_volume_options"), new_error()
    options.rights = rights
    options.transport = transport
    options.partial = partial
    options.operation_deadline_ns = max(nanoseconds(deadline), 1)  # 0 is a default of the library
    options.store_deadline_ns = max(nanoseconds(store_deadline), 1)
    texts = {"etcd_ca_file": etcd_ca_file, "etcd_certificate_file": etcd_certificate_file,
             "etcd_key_file": etcd_key_file, "etcd_user": etcd_user,
             "etcd_password": etcd_password}
    kept = {name: ffi.new("char[]", os.fspath(value).encode()) for name, value in texts.items()
            if value is not None}  # the struct has their addresses only
    for name, value in kept.items():
        setattr(options, name, value)
    number = lib.remora_py_watch_events(options)
    engine = open_engine(
        client_name=client_name, key_file=key_file, key_hex=key_hex, deadline=deadline,
        control_deadline=control_deadline, connect_for=connect_for, reconnect_for=reconnect_for,
        spin=spin, lanes=lanes, device=device, payload_crc=payload_crc, rails=rails, rdma=rdma)
    made = Handle("volume", "volume")
    try:
        check(engine.call(lib.remora_engine_open_volume, uri.encode(), options, made.place, error),
              error)
    except BaseException:
        engine.close()
        raise
    return Volume(uri, engine, made, nanoseconds(spin), number)


class Volume(Memory):
    """Remote memory over several servers. Made by open_volume(); close() or `with` ends it.

    The operations are those of Region, with its rules for buffers, deadlines, Ctrl-C, threads and
    errors. One that goes beyond a stripe unit is cut there: when it fails, other parts may have taken
    effect; it may take twice its deadline. Its queues have neither barrier() nor select() nor
    cancel(): UnsupportedError.

    Of a striped volume, a group is lost with the memory of its server: StaleRegionError, and all
    other groups continue. Open the volume again after StaleRegionError and ConnectionLostError, and
    to reach what was added since.

    A mirror has each byte on several servers, and goes on when one of them is lost. Any number of
    clients read it; the one that writes claims it first:

        with volume.claim():
            volume.write(4096, b"hello")

    Without a claim all but reads and flush() is NoRightError; once another client has taken the
    claim, AccessRefusedError with Reason.FENCED. Other clients' reads are BusyError while a claim is
    `exclusive`. An operation may take 3 s more for each server that does not answer. repair() makes
    the copies anew that the mirror has lost.
    """

    def __init__(self, uri: str, engine: Handle, handle: Handle, spin_ns: int,
                 number: int) -> None:
        super().__init__(handle, lib.remora_volume_queue_create, spin_ns)
        self._engine = engine
        self._number = number
        self._uri = uri

    # None of these waits for a server, unless it says so.

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def info(self) -> VolumeInfo:
        """The volume as its record was when it was opened."""
        info, error = sized("remora_volume_info"), new_error()
        check(self._handle.call(lib.remora_volume_info_of, info, error), error)
        return VolumeInfo.of(info)

    @property
    def groups(self) -> list[VolumeGroup]:
        """Its groups, in their order."""
        count, error = ffi.new("size_t*"), new_error()
        check(self._handle.call(lib.remora_volume_groups, NULL, 0, count, error), error)
        found = ffi.new("remora_volume_group[]", count[0])
        check(self._handle.call(lib.remora_volume_groups, found, len(found), count, error), error)
        return [VolumeGroup.of(group) for group in found]

    def events(self) -> list[VolumeEvent]:
        """What has happened since the last call, the oldest first: groups that were lost, copies that
        were lost, begun, done or given up, and another client's claim. An operation or a repair has
        noticed it, or the thread that renews the claim: an idle striped volume notices nothing.

        Also after close(). The package keeps 1,024 events, of all volumes of the process; the oldest
        go first."""
        taken = ffi.new("remora_py_event[]", EVENTS_AT_ONCE)
        found: list[VolumeEvent] = []
        count = len(taken)
        while count == len(taken):
            count = lib.remora_py_take_events(self._number, taken, len(taken))
            # A newer library may know more changes.
            found.extend(VolumeEvent.of(taken[i]) for i in range(count)
                         if taken[i].change in CHANGES)
        return found

    def claim(self, *, steal: bool = False, exclusive: bool = False,
              identity: str | None = None) -> Claim:
        """Makes this client the one writer of a mirror, then makes the bytes equal that a writer
        before has left unequal. It stays the writer until release(), the end of a `with` on the
        result, or close(); a thread of the library renews the claim.

        steal: also while another client has the claim, whose operations then fail. exclusive: no
        other client reads meanwhile, and writes take less time. identity: in other clients' errors, up
        to 200 printable ASCII characters; None: "HOST-PID-RANDOM".

        Blocks, also for Ctrl-C: two requests for each group, and a copy of each MiB that may differ.
        In asyncio: `await asyncio.to_thread(volume.claim)`. Errors: BusyError with Reason.HELD (another
        client has the claim: `subject` is its identity; one that has died loses it after 10 s),
        AlreadyExistsError (this volume has it), NoRightError (opened with Rights.READ alone),
        UnsupportedError (a striped volume), InvalidArgumentError (identity), StaleRegionError (a
        group is lost)."""
        options, error = sized("remora_volume_claim_options"), new_error()
        options.steal = steal
        options.exclusive = exclusive
        text = ffi.NULL if identity is None else ffi.new("char[]", identity.encode())
        options.identity = text  # the struct has its address only
        check(self._ask("claim", options, error), error)
        return Claim(self)

    def release(self) -> None:
        """Ends the claim; operations in flight end first. Errors: NotFoundError (not claimed),
        AccessRefusedError with Reason.FENCED (another client has claimed it); those of the store,
        where the claim ends by itself after 10 s."""
        error = new_error()
        check(self._ask("release", error), error)

    def repair(self, *, bytes_per_second: int = 0, groups_at_once: int = 4, zones_at_once: int = 4,
               step_deadline: float = 30.0,
               progress: Callable[[int, int], None] | None = None) -> RepairReport:
        """Makes the copies anew that a claimed mirror has lost, on servers with room, and removes
        regions that no group uses. Operations of other threads and tasks go on meanwhile. The client
        needs the right to create regions.

        bytes_per_second: of all copies together; 0: no limit. groups_at_once, zones_at_once: groups,
        and MiB of each of them, that are copied at once, 1 to 64. step_deadline: of each step that
        waits for servers or the store. progress: called with the bytes that are copied, and those of
        the whole work as far as it is known, ten times a second, by the thread that calls repair().

        Blocks until all is done that can be done: `left` of the report has the rest, such as a server
        that has no room. Ctrl-C, or an exception of `progress`, ends it: complete copies stay, the
        others are removed. In asyncio: `await asyncio.to_thread(volume.repair)`. Errors:
        InvalidArgumentError (not claimed, an option), UnsupportedError (a striped volume), BusyError
        (another thread repairs it), StaleRegionError (another client has claimed it); those of the
        servers and of the store."""
        options, report = sized("remora_volume_repair_options"), sized("remora_volume_repair_report")
        error, left, watched = new_error(), place("text"), ffi.new("remora_py_repair*")
        options.bytes_per_second_max = bytes_per_second
        options.step_deadline_ns = max(nanoseconds(step_deadline), 1)  # 0 is a default of the library
        options.groups_at_once = groups_at_once
        options.zones_at_once = zones_at_once

        def run() -> int:
            lib.remora_py_watch_repair(watched, options)  # here: the thread keeps both alive
            code: int = self._handle.call(lib.remora_volume_repair, options, report, left, error)
            return code

        # In a thread of its own: a signal handler of Python runs in the main thread, between its calls.
        with concurrent.futures.ThreadPoolExecutor(1, "remora-repair") as worker:
            try:  # a signal handler may raise as soon as the thread runs
                running = worker.submit(run)
                ended = False
                while not ended:
                    concurrent.futures.wait([running], PROGRESS_S)
                    ended = running.done()  # before the look: the last one is at the end
                    if progress is not None:
                        done = lib.remora_py_repaired(watched)
                        progress(done, lib.remora_py_to_repair(watched))
            finally:
                lib.remora_py_stop_repair(watched)
        check(running.result(), error)
        return RepairReport.of(report, left[0])

    @property
    def claimed(self) -> bool:
        """True while this volume has the claim, and has not noticed another client's."""
        return bool(self._ask("claimed"))

    def close(self) -> None:
        """Closes its queues, after their operations have ended, and the volume, and ends its claim.
        May be called again. Errors: BusyError (another thread is in a call of one of its queues)."""
        super().close()
        self._engine.close()

    def __repr__(self) -> str:
        return f"<remora.Volume {self._uri!r}{' closed' if self._handle.closed else ''}>"


class Claim:
    """The claim of a mirror, for `with`, whose end releases it. Made by Volume.claim().

    Where another client has taken the claim meanwhile, the end of the block raises
    AccessRefusedError, unless the block raises something itself.
    """

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def __enter__(self) -> Volume:
        return self._volume

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None,
                 _trace: types.TracebackType | None) -> None:
        try:
            self._volume.release()
        except (errors.ClosedError, errors.NotFoundError):
            pass  # the block has released it, or closed the volume
        except errors.Error:
            if error is None:
                raise
