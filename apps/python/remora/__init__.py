"""Remora: the memory of other machines, read, written and atomically changed.

    import remora

    with remora.connect("remora://localhost") as client:
        region = client.open_region("demo")
        region.write(4096, b"hello")
        print(region.read(4096, 5))

Region has the blocking operations, Region.queue() many in flight, Region.async_queue() coroutines for
asyncio. open_volume() opens a Volume, which is memory of several servers and has the same operations;
a mirror among them is written under its claim: `with volume.claim():`.
Every error is a remora.Error, of a class for its code, and names the remedy.

The GIL is released in every call of the library, so other Python threads run while one waits or
copies. After fork() a child makes a client of its own: ForkedError.
"""

from __future__ import annotations

from ._native import lib as _lib
from ._native import text as _text
from ._ring import Completion
from .aio import AsyncQueue
from .client import Client, connect
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .queue import Queue
from .region import Region
from .types import (DrainState, Lifetime, RegionInfo, Removal, RepairReport, Rights, ServerInfo,
                    SessionInfo, Transport, VolumeChange, VolumeEvent, VolumeGroup, VolumeInfo)
from .volume import Claim, Volume, open_volume

__all__ = ["AsyncQueue", "Claim", "Client", "Completion", "DrainState", "Lifetime", "Queue",
           "Region", "RegionInfo", "Removal", "RepairReport", "Rights", "ServerInfo", "SessionInfo",
           "Transport", "Volume", "VolumeChange", "VolumeEvent", "VolumeGroup", "VolumeInfo",
           "connect", "open_volume", *_errors]

#: The version of libremora.so.0.
__version__ = _text(_lib.remora_version())
