"""The client: one engine, connected to one server."""

from __future__ import annotations

import json
import os
import types
import weakref
from typing import Any

from . import errors
from ._native import NULL, Handle, check, ffi, lib, nanoseconds, new_error, place, sized, text
from .region import Region
from .types import (DrainState, Lifetime, RegionInfo, Removal, Rights, ServerInfo, SessionInfo,
                    Transport)

__all__ = ["Client", "connect"]


def connect(uri: str, *, client_name: str | None = None,
            key_file: str | os.PathLike[str] | None = None, key_hex: str | None = None,
            deadline: float = 10.0, control_deadline: float = 10.0, connect_for: float = 0.0,
            reconnect_for: float = 30.0, spin: float = 50e-6, lanes: int = 1,
            device: str | None = None, payload_crc: bool = False, rails: str | None = None,
            rdma: str | None = None) -> Client:
    """Connects to the server of `uri`, "remora://HOST[:7471][?transport=rdma|shm|tcp]".

    Times are seconds. deadline: of an operation that names none, 0.001 to 3600. control_deadline: of
    connecting, opening and each control request. connect_for: how long connecting and opening are
    tried again. reconnect_for: how long a broken session connects again. spin: how long a waiting
    call polls before it sleeps. lanes: data paths of a session, 1 to 8. device: the only RDMA device
    to use. payload_crc: over tcp, payload is checked by CRC32C. rails: how many devices a session
    over rdma uses, "1" to "8" or "auto", or their names. rdma: how it uses the fabric, such as
    "traffic_class=106,mtu=1024". key_file, key_hex: the client's key, where the server wants one.

    Blocks, at most control_deadline after connect_for; other Python threads run, Ctrl-C is handled
    when it returns. One client a process is the usual number. Errors: InvalidArgumentError (URI, an
    option, a key), UnsupportedError (no transport fits), ConnectionRefusedError, UnreachableError,
    TimedOutError; NotFoundError, PermissionDeniedError (key_file).
    """
    if "/" in uri.partition("://")[2].partition("?")[0].rstrip("/"):
        raise errors.make(errors.Code.INVALID_ARGUMENT, errors.Reason.NONE,
                          f"{uri}: this names a region; connect to the server, remora://HOST, and "
                          "give the name to open_region()")
    engine = open_engine(
        client_name=client_name, key_file=key_file, key_hex=key_hex, deadline=deadline,
        control_deadline=control_deadline, connect_for=connect_for, reconnect_for=reconnect_for,
        spin=spin, lanes=lanes, device=device, payload_crc=payload_crc, rails=rails, rdma=rdma)
    try:
        session = Handle.made_by("client", "session", engine, lib.remora_engine_connect, uri.encode())
    except BaseException:
        engine.close()
        raise
    return Client(uri, engine, session, nanoseconds(spin))


def open_engine(*, client_name: str | None, key_file: str | os.PathLike[str] | None,
                key_hex: str | None, deadline: float, control_deadline: float, connect_for: float,
                reconnect_for: float, spin: float, lanes: int, device: str | None,
                payload_crc: bool, rails: str | None, rdma: str | None) -> Handle:
    """An engine with the options of connect()."""
    error = new_error()
    check(lib.remora_require_api(lib.REMORA_C_API, error), error)
    options = ffi.new("remora_engine_options*")
    check(lib.remora_engine_options_init(options, ffi.sizeof("remora_engine_options")), error)
    options.operation_deadline_ns = nanoseconds(deadline)
    options.control_deadline_ns = nanoseconds(control_deadline)
    options.connect_for_ns = nanoseconds(connect_for)
    options.reconnect_for_ns = nanoseconds(reconnect_for)
    options.spin_ns = nanoseconds(spin)
    options.lanes = lanes
    options.tcp_payload_crc = payload_crc
    texts = {"client_name": client_name, "key_hex": key_hex, "device": device,
             "rails": rails, "rdma": rdma,
             "key_file": None if key_file is None else os.fspath(key_file)}
    kept = {name: ffi.new("char[]", value.encode()) for name, value in texts.items()
            if value is not None}  # the struct has their addresses only
    for name, value in kept.items():
        setattr(options, name, value)
    engine = Handle("client", "engine")
    check(lib.remora_engine_open(options, engine.place, error), error)
    return engine


class Client:
    """A connection to one server. Made by connect(); close() or `with` ends it.

    A session that breaks connects again by itself, for `reconnect_for` seconds. Threads: any number
    at once. Control requests block, at most `control_deadline`, other Python threads run meanwhile,
    and Ctrl-C is handled when they return. Errors of all: ConnectionLostError, TimedOutError,
    ProtocolError, ClosedError.

    Fork: a child process that was made by fork() cannot use the client, its regions and queues:
    ForkedError. The child connects again, or multiprocessing starts it by "spawn".
    """

    def __init__(self, uri: str, engine: Handle, session: Handle, spin_ns: int) -> None:
        self._uri = uri
        self._engine = engine
        self._session = session
        self._spin_ns = spin_ns
        self._regions: weakref.WeakSet[Region] = weakref.WeakSet()

    # Regions.

    def open_region(self, name: str, rights: Rights = Rights.ALL, *, fence: bool = False) -> Region:
        """Opens the region `name` with `rights`. fence: the server first revokes every older grant of
        it. Errors: UnknownRegionError, NoRightError, UnsupportedError (no transport fits); with
        `fence` also BusyError (over shm: a client that has it mapped does not answer)."""
        call = lib.remora_engine_fence_region if fence else lib.remora_engine_open_region
        made = Handle.made_by("region", "region", self._engine, call, self._uri_of(name),
                              rights)
        return Region(self, name, made, self._spin_ns)

    def create_region(self, name: str, size: int, *, block_size: int = 4096, shm: bool = False,
                      lifetime: Lifetime = Lifetime.PERSISTENT, ttl: float = 0.0,
                      rights: Rights = Rights.ALL, atomic_domain: str = "auto") -> RegionInfo:
        """A new region of `size` bytes, a multiple of `block_size`, filled with zeroes. shm: clients
        on the server's host may map it. ttl: seconds, of Lifetime.TTL. rights: the most that a grant
        can carry. atomic_domain: "auto", "none", "cpu" or a device of the server. Errors:
        AlreadyExistsError, InvalidArgumentError, OutOfMemoryError (the server's pool is full),
        LimitExceededError, NoRightError, UnsupportedError."""
        spec, info, error = sized("remora_region_spec"), sized("remora_region_info"), new_error()
        texts = ffi.new("char[]", name.encode()), ffi.new("char[]", atomic_domain.encode())
        spec.name, spec.atomic_domain = texts
        spec.size_bytes, spec.block_bytes = size, block_size
        spec.ttl_ms = nanoseconds(ttl) // 1_000_000
        spec.lifetime, spec.rights, spec.shm = lifetime, rights, shm
        check(self._session.call(lib.remora_session_create_region, spec, info, error), error)
        return RegionInfo.of(info)

    def stat(self, name: str) -> RegionInfo:
        """Errors: UnknownRegionError."""
        info, error = sized("remora_region_info"), new_error()
        check(self._session.call(lib.remora_session_stat, name.encode(), info, error), error)
        return RegionInfo.of(info)

    def regions(self) -> list[RegionInfo]:
        """The regions that this client may use in some way, sorted by name."""
        made, error = place("region_list"), new_error()
        check(self._session.call(lib.remora_session_regions, made, error), error)
        info = sized("remora_region_info")
        names = []
        for index in range(lib.remora_region_list_count(made[0])):
            check(lib.remora_region_list_get(made[0], index, info, error), error)
            names.append(RegionInfo.of(info))
        return names

    def resize_region(self, name: str, size: int) -> RegionInfo:
        """`size`: bytes, a multiple of the block size. Smaller: the server revokes all grants first.
        Errors: UnknownRegionError, NoRightError, InvalidArgumentError, OutOfMemoryError,
        LimitExceededError, BusyError, UnsupportedError (a region for shm)."""
        info, error = sized("remora_region_info"), new_error()
        check(self._session.call(lib.remora_session_resize_region, name.encode(), size, info, error),
              error)
        return RegionInfo.of(info)

    def remove_region(self, name: str, removal: Removal = Removal.IF_UNUSED) -> None:
        """Errors: UnknownRegionError, BusyError (a client has it open), NoRightError."""
        error = new_error()
        check(self._session.call(lib.remora_session_remove_region, name.encode(), removal, error),
              error)

    # The administration of the server. All but ping() need the right `clients[].admin`, where the
    # server's clients have keys: NoRightError. An older server: UnsupportedError.

    def ping(self) -> float:
        """Seconds until the server's control thread has answered, without waiting for requests of
        other clients. Errors: ConnectionLostError, also while the client connects again."""
        took, error = ffi.new("uint64_t*"), new_error()
        check(self._session.call(lib.remora_session_ping, took, error), error)
        return took[0] / 1e9  # type: ignore[no-any-return]

    def sessions(self) -> list[SessionInfo]:
        """The server's sessions, sorted by id, also those that wait for their clients. Errors:
        NoRightError, UnsupportedError."""
        made, error = place("session_list"), new_error()
        check(self._session.call(lib.remora_session_sessions, made, error), error)
        info = sized("remora_session_info")
        found = []
        for index in range(lib.remora_session_list_count(made[0])):
            check(lib.remora_session_list_get(made[0], index, info, error), error)
            found.append(SessionInfo.of(info))
        return found

    def end_session(self, id: int) -> None:
        """Ends the session `id`, a SessionInfo.id, which its client cannot resume. On return no
        request of it reaches memory. Its client may open regions again, in a new session. Errors:
        NotFoundError, InvalidArgumentError (the session of this client), NoRightError,
        UnsupportedError."""
        error = new_error()
        check(self._session.call(lib.remora_session_end_session, id, error), error)

    def drain(self) -> DrainState:
        """Begins a drain: the server tells each session that it should leave, and refuses to create
        and open regions, for every client: BusyError with Reason.DRAINING. Open regions stay open,
        regions can be fenced, and the server ends no session by itself. A restart ends the drain.
        Errors: NoRightError, UnsupportedError."""
        return self._drain(lib.remora_session_drain)

    def end_drain(self) -> DrainState:
        """Ends the drain: regions can be created and opened again. Errors: as drain()."""
        return self._drain(lib.remora_session_end_drain)

    def drain_state(self) -> DrainState:
        """The present state; changes nothing. Errors: as drain()."""
        return self._drain(lib.remora_session_drain_state)

    # The connection. None of these waits for the server.

    @property
    def server(self) -> ServerInfo:
        """The server's description of itself when the client connected."""
        info, error = sized("remora_server_info"), new_error()
        check(self._session.call(lib.remora_session_server, info, error), error)
        return ServerInfo.of(info)

    @property
    def transport(self) -> Transport:
        return Transport(self._session.call(lib.remora_session_transport))

    @property
    def connected(self) -> bool:
        """False while the engine connects again, and after the session has ended for good."""
        return bool(self._session.call(lib.remora_session_connected))

    def status(self) -> dict[str, Any]:
        """Sessions, transports and open regions (engine/docs/status.md)."""
        return json.loads(self._text(lib.remora_engine_status_json))  # type: ignore[no-any-return]

    def metrics(self) -> str:
        """All series of the engine in Prometheus' text format."""
        return self._text(lib.remora_engine_metrics)

    def close(self) -> None:
        """Closes its regions and their queues, after their operations have ended, and the
        connection. May be called again. Errors: BusyError (another thread is in a call of a queue)."""
        for region in list(self._regions):
            region.close()
        self._session.close()
        self._engine.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None,
                 _trace: types.TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<remora.Client {self._uri!r}{' closed' if self._engine.closed else ''}>"

    def _uri_of(self, name: str) -> bytes:
        if not name or any(letter in "/?#" for letter in name):
            raise errors.make(errors.Code.INVALID_ARGUMENT, errors.Reason.NONE,
                              f"{name!r} is no name of a region: 1 to 64 of A-Z a-z 0-9 . _ -")
        server, mark, query = self._uri.partition("?")
        return f"{server.rstrip('/')}/{name}{mark}{query}".encode()

    def _drain(self, call: Any) -> DrainState:
        """A request about the server's drain, which fills in its state."""
        state, error = sized("remora_drain_state"), new_error()
        check(self._session.call(call, state, error), error)
        return DrainState.of(state)

    def _text(self, call: Any) -> str:
        """A text of the engine's."""
        made, error = place("text"), new_error()
        check(self._engine.call(call, made, NULL, error), error)
        return text(made[0])
