"""Enumerations and descriptions that the other modules share."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from ._native import text

__all__ = ["Lifetime", "RegionInfo", "Removal", "Rights", "ServerInfo", "Transport"]


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
