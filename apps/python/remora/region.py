"""An open region, and the blocking operations on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._native import Handle, check, ffi, lib, new_error, sized, text
from .memory import Memory
from .types import RegionInfo, Transport

if TYPE_CHECKING:
    from .client import Client

__all__ = ["Region"]


class Region(Memory):
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
        super().__init__(handle, lib.remora_queue_create, spin_ns)
        self._client = client
        self._name = name
        client._regions.add(self)

    # None of these waits for the server, unless it says so.

    @property
    def name(self) -> str:
        return self._name

    @property
    def transport(self) -> Transport:
        return Transport(self._handle.call(lib.remora_region_transport))

    @property
    def transport_reason(self) -> str:
        """Why that transport was chosen."""
        return self._handle.call(  # type: ignore[no-any-return]
            lambda region: text(lib.remora_region_transport_reason(region)))

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

    def __repr__(self) -> str:
        return f"<remora.Region {self._name!r}{' closed' if self._handle.closed else ''}>"
