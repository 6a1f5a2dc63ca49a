"""Enumerations and descriptions that the other modules share."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from ._native import NULL, text
from .errors import code_of, reason_of

__all__ = ["DrainState", "Lifetime", "RegionInfo", "Removal", "RepairReport", "Rights", "ServerInfo",
           "SessionInfo", "Transport", "VolumeChange", "VolumeEvent", "VolumeGroup", "VolumeInfo"]


class Transport(enum.IntEnum):
    """How bytes travel."""

    AUTO = 0
    RDMA = 1
    SHM = 2
    TCP = 3


class Rights(enum.IntFlag):
    """The rights of a grant."""

    READ = 1
    WRITE = 2
    ATOMIC = 4
    ALL = 7


class Lifetime(enum.IntEnum):
    """When a region goes by itself."""

    PERSISTENT = 0
    SESSION = 1
    TTL = 2


class Removal(enum.IntEnum):
    """How a removal treats clients that have the region open."""

    #: The region is then not removed: BusyError.
    IF_UNUSED = 0
    #: They keep it until they close it; the name is free at once.
    WHEN_UNUSED = 1
    #: The server revokes their grants first.
    NOW = 2


@dataclasses.dataclass(frozen=True)
class RegionInfo:
    """A server's description of a region. Sizes are bytes."""

    name: str
    size: int
    block_size: int
    #: Greater after each fence, and each time the region becomes smaller.
    epoch: int
    #: Another one after the region was removed and created again.
    incarnation: int
    memory_id: int
    open_count: int
    lifetime: Lifetime
    rights: Rights
    #: Whether clients on the same host may map it.
    shm: bool
    #: "none", "cpu", or a device of the server.
    atomic_domain: str
    #: The client that created it; "": the server's own.
    owner: str

    @classmethod
    def of(cls, info: Any) -> RegionInfo:
        """Of a `remora_region_info` that a call has filled in."""
        return cls(name=text(info.name), size=info.size_bytes, block_size=info.block_bytes,
                   epoch=info.epoch, incarnation=info.incarnation, memory_id=info.memory_id,
                   open_count=info.open_count, lifetime=Lifetime(info.lifetime),
                   rights=Rights(info.rights), shm=bool(info.shm),
                   atomic_domain=text(info.atomic_domain), owner=text(info.owner))


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    """A server's description of itself. Sizes are bytes."""

    name: str
    boot_id: int
    memory_id: int
    pool_size: int
    pool_free: int
    transports: frozenset[Transport]

    @classmethod
    def of(cls, info: Any) -> ServerInfo:
        """Of a `remora_server_info` that a call has filled in."""
        return cls(name=text(info.name), boot_id=info.boot_id, memory_id=info.memory_id,
                   pool_size=info.pool_bytes, pool_free=info.pool_free_bytes,
                   transports=frozenset(each for each in Transport
                                        if info.transports >> each.value & 1))


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """A session of a server, as an administrator of the server sees it."""

    id: int
    client_name: str
    #: By its key.
    client_proven: bool
    transport: Transport
    #: The client's address or process, by the transport.
    peer: str
    #: The server's RDMA device; "" over shm and tcp.
    device: str
    #: Seconds since its connection was accepted; a resumption makes a new one.
    age: float
    #: A region that is open twice counts twice.
    open_regions: int
    #: Whether it waits for its client to resume it.
    lost: bool
    #: Whether it is the session that has asked.
    own: bool

    @classmethod
    def of(cls, info: Any) -> SessionInfo:
        """Of a `remora_session_info` that a call has filled in."""
        return cls(id=info.id, client_name=text(info.client_name),
                   client_proven=bool(info.client_proven), transport=Transport(info.transport),
                   peer=text(info.peer), device=text(info.device), age=info.age_ms / 1000,
                   open_regions=info.open_regions, lost=bool(info.lost), own=bool(info.own))


@dataclasses.dataclass(frozen=True)
class DrainState:
    """The progress of a server's drain."""

    draining: bool
    #: Seconds of the server's limits.drain_timeout that are left.
    remaining: float
    #: With a client, without the session that asks.
    sessions: int
    #: Those that wait for their clients to resume them.
    lost_sessions: int
    #: Of all sessions.
    open_regions: int

    @classmethod
    def of(cls, state: Any) -> DrainState:
        """Of a `remora_drain_state` that a call has filled in."""
        return cls(draining=bool(state.draining), remaining=state.remaining_ms / 1000,
                   sessions=state.sessions, lost_sessions=state.lost_sessions,
                   open_regions=state.open_regions)


@dataclasses.dataclass(frozen=True)
class VolumeInfo:
    """A volume as its record was when it was opened. Sizes are bytes."""

    name: str
    size: int
    block_size: int
    #: An operation within a stripe unit is one operation on one server.
    stripe_size: int
    #: Of the region of a group.
    group_size: int
    group_count: int
    #: Groups of one row, over which stripe units go round.
    width: int
    #: That the grants carry.
    rights: Rights
    #: Those that open groups are known to use.
    transports: frozenset[Transport]
    #: Of each byte. 1: the volume is striped; more: a mirror.
    copies: int

    @classmethod
    def of(cls, info: Any) -> VolumeInfo:
        """Of a `remora_volume_info` that a call has filled in."""
        return cls(name=text(info.name), size=info.size_bytes, block_size=info.block_bytes,
                   stripe_size=info.stripe_bytes, group_size=info.group_bytes,
                   group_count=info.group_count, width=info.width, rights=Rights(info.rights),
                   transports=frozenset(each for each in Transport
                                        if info.transports >> each.value & 1),
                   copies=info.copies)


class VolumeChange(enum.IntEnum):
    """What has happened to a group of a volume: `remora_volume_change` of <remora/c/volume.h>."""

    #: Its server has other memory: its bytes are gone.
    GROUP_LOST = 1
    #: The session with its server is lost.
    GROUP_UNREACHABLE = 2
    #: The grant on its region was revoked, or fenced.
    GROUP_REVOKED = 3
    #: Of a claimed mirror: the group goes on without that server.
    MEMBER_REMOVED = 4
    #: Of a claimed mirror: another client has claimed it.
    WRITER_LOST = 5
    #: repair() makes a copy on that server.
    COPY_BEGUN = 6
    #: The group has that copy.
    COPY_DONE = 7
    #: That copy was given up, also where the repair was stopped.
    COPY_FAILED = 8


@dataclasses.dataclass(frozen=True)
class VolumeEvent:
    """A change of one group of a volume."""

    change: VolumeChange
    #: Its index; 0 with WRITER_LOST.
    group: int
    #: Its name in the cluster, or "".
    server: str
    #: Of the operation that noticed it: a Code and a Reason, or a number of a newer library. Code.OK:
    #: nothing has failed.
    code: int
    reason: int

    @classmethod
    def of(cls, event: Any) -> VolumeEvent:
        """Of a `remora_py_event`."""
        return cls(change=VolumeChange(event.change), group=event.group, server=text(event.server),
                   code=code_of(event.code), reason=reason_of(event.reason))


@dataclasses.dataclass(frozen=True)
class VolumeGroup:
    """A group of a volume as this process has it open. Of a mirror, the server that is read."""

    index: int
    #: The name of its server in the cluster.
    server: str
    region: str
    #: AUTO: it is not open. Of a claimed mirror: RDMA where any of its servers is reached over it.
    transport: Transport
    connected: bool
    #: That are equal; of a mirror that is not claimed: as its record was. Fewer than
    #: VolumeInfo.copies: Volume.repair() makes the others.
    copies: int
    #: Why it is not open, where the volume is open with `partial`; "": it is open.
    error: str

    @classmethod
    def of(cls, group: Any) -> VolumeGroup:
        """Of a `remora_volume_group` that a call has filled in."""
        return cls(index=group.index, server=text(group.server), region=text(group.region),
                   transport=Transport(group.transport), connected=bool(group.connected),
                   copies=group.copies, error=text(group.error))


@dataclasses.dataclass(frozen=True)
class RepairReport:
    """What Volume.repair() has done."""

    #: That were looked at.
    groups: int
    copies_made: int
    bytes_copied: int
    #: Which no group used any more.
    regions_removed: int
    #: What could not be done, a sentence each. Empty: all is done.
    left: tuple[str, ...]

    @classmethod
    def of(cls, report: Any, left: Any) -> RepairReport:
        """Of a `remora_volume_repair_report` and a text that a call has filled in."""
        sentences: tuple[str, ...] = () if left == NULL else tuple(text(left).splitlines())
        return cls(groups=report.groups, copies_made=report.copies_made,
                   bytes_copied=report.bytes_copied, regions_removed=report.regions_removed,
                   left=sentences)
