"""Volumes: three servers of one cluster, whose records are in a file. Over tcp."""

import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import pytest
import remora
from conftest import WAIT_S
from remora import _native

BIN = os.environ["REMORA_BIN"]
STRIPE = 4096
SIZE = 3 << 20
CONFIGURATION = """\
listen: {{address: 127.0.0.1, port: 0}}
transports: {{rdma: off, shm: off, tcp: required}}
pool: {{size: 8MiB, piece: 1MiB, huge_pages: never}}
auth: none
cluster: {{server: {name}, file: {store}}}
"""


def remora_command(*words):
    return subprocess.run([f"{BIN}/remora", *words], capture_output=True, text=True, check=False)


class Cluster:
    """Its servers, and a volume `disk` over them."""

    def __init__(self, folder):
        self.uri = f"remora+file://{folder}/cluster.json"
        self.servers = []
        for index in range(3):
            configuration = pathlib.Path(folder) / f"s{index}.yaml"
            configuration.write_text(
                CONFIGURATION.format(name=f"s{index}", store=f"{folder}/cluster.json"))
            self.servers.append(subprocess.Popen(
                [f"{BIN}/remora-server", "--config", str(configuration)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        until = time.monotonic() + WAIT_S
        while len(self.registered()) < 3:
            assert time.monotonic() < until, "the servers did not register themselves"
            time.sleep(0.1)
        done = remora_command("volume", "create", f"{self.uri}/disk", "--size", "3MiB",
                              "--group", "1MiB", "--stripe", "4KiB", "--width", "3")
        assert done.returncode == 0, done.stderr

    def registered(self):
        done = remora_command("cluster", "status", self.uri, "--json")
        return json.loads(done.stdout)["servers"] if done.returncode == 0 else []

    def stop(self):
        for server in self.servers:
            server.kill()
            server.wait()


@pytest.fixture(scope="module")
def cluster(runtime):
    made = Cluster(tempfile.mkdtemp(dir=runtime))
    yield made
    made.stop()


@pytest.fixture
def volume(cluster):
    with remora.open_volume(f"{cluster.uri}/disk") as made:
        yield made


def test_it_tells_what_it_is(volume):
    assert volume.name == "disk" and volume.size == SIZE and volume.connected
    assert volume.rights == remora.Rights.ALL
    info = volume.info
    assert (info.stripe_size, info.group_size, info.group_count, info.width) == (STRIPE, 1 << 20, 3, 3)
    assert info.transports == {remora.Transport.TCP} and info.copies == 1
    groups = volume.groups
    assert [group.index for group in groups] == [0, 1, 2]
    assert {group.server for group in groups} == {"s0", "s1", "s2"}
    assert all(group.connected and not group.error for group in groups)
    volume.settled(1.0)


def test_blocking_operations_cross_servers(volume):
    data = bytes(range(256)) * 160
    assert volume.write(100, data) == len(data)
    volume.flush()
    assert volume.read(100, len(data)) == data
    volume.write_zeroes(100, 3 * STRIPE)
    found = bytearray(len(data))
    assert volume.read_into(found, 100) == len(data)
    assert found == bytes(3 * STRIPE) + data[3 * STRIPE:]
    before = volume.fetch_add(1 << 20, 5)
    assert volume.compare_swap(1 << 20, before + 5, before) == before + 5
    with pytest.raises(remora.OutOfRangeError) as caught:
        volume.read(SIZE - 8, 16)
    assert caught.value.offset == SIZE - 8


def test_a_queue(volume):
    pages = [bytes([page]) * STRIPE for page in range(1, 9)]
    with volume.queue(depth=8) as queue:
        for index, page in enumerate(pages):
            queue.write(index * STRIPE, page, tag=index)
        assert queue.full
        assert sorted(completion.tag for completion in queue if completion.ok) == list(range(8))
        buffers = [bytearray(STRIPE) for _ in pages]
        for index, buffer in enumerate(buffers):
            queue.read_into(buffer, index * STRIPE, tag=index)
        for completion in queue:
            completion.result()
        assert buffers == pages
        queue.read_into(bytearray(8), SIZE, tag="beyond")
        (beyond,) = queue.wait(1)
        assert isinstance(beyond.error, remora.OutOfRangeError) and beyond.tag == "beyond"
        with pytest.raises(remora.UnsupportedError):
            queue.barrier()
        with pytest.raises(remora.UnsupportedError):
            queue.cancel(1)
        with pytest.raises(remora.UnsupportedError, match="one operation for each pair"):
            queue.write_many([(0, b"x")])


def test_coroutines(volume):
    async def run():
        async with volume.async_queue(depth=4) as queue:
            pages = [bytes([page]) * STRIPE for page in range(20)]
            await asyncio.gather(*(queue.write(n * STRIPE, page) for n, page in enumerate(pages)))
            found = await asyncio.gather(*(queue.read(n * STRIPE, STRIPE) for n in range(20)))
            assert found == pages

    asyncio.run(run())


def test_rights(cluster):
    with remora.open_volume(f"{cluster.uri}/disk", remora.Rights.READ) as made:
        made.read(0, 8)
        with pytest.raises(remora.NoRightError):
            made.write(0, b"x")


def test_what_cannot_be_opened(cluster):
    with pytest.raises(remora.NotFoundError, match="remora volume ls"):
        remora.open_volume(f"{cluster.uri}/other")
    with pytest.raises(remora.InvalidArgumentError):
        remora.open_volume("remora://localhost/demo")
    with pytest.raises(remora.UnsupportedError):
        remora.open_volume(f"{cluster.uri}/disk", transport=remora.Transport.SHM)


def test_after_close(cluster):
    made = remora.open_volume(f"{cluster.uri}/disk")
    queue = made.queue()
    made.close()
    made.close()
    for call in (lambda: made.read(0, 8), lambda: made.info, lambda: queue.write(0, b"x")):
        with pytest.raises(remora.ClosedError):
            call()


def test_the_example(cluster, volume):
    volume.write_zeroes(0, 8)  # its counter
    example = pathlib.Path(os.environ["REMORA_SOURCE"]) / "apps/examples/volume.py"
    for run in range(2):
        done = subprocess.run([sys.executable, example, f"{cluster.uri}/disk"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "767 pages are as written" in done.stdout
        assert f"this is run {run + 1}" in done.stdout


def test_a_striped_volume_needs_no_claim(volume):
    with pytest.raises(remora.UnsupportedError, match="needs no claim"):
        volume.claim()
    assert not volume.claimed


@pytest.fixture(scope="module")
def mirror_uri(cluster):
    made = f"{cluster.uri}/mirror"
    done = remora_command("volume", "create", made, "--size", "1MiB", "--group", "1MiB",
                          "--stripe", "4KiB", "--width", "1", "--kind", "mirror:2")
    assert done.returncode == 0, done.stderr
    return made


def test_a_mirror_is_written_under_its_claim(mirror_uri):
    data = bytes(range(256)) * 48
    with remora.open_volume(mirror_uri) as mirror, remora.open_volume(mirror_uri) as other:
        assert mirror.info.copies == 2 and not mirror.claimed
        with pytest.raises(remora.NoRightError):
            mirror.write(0, data)
        with mirror.claim(identity="the first") as claimed:
            assert claimed is mirror and mirror.claimed
            assert mirror.write(0, data) == len(data)
            assert mirror.read(0, len(data)) == other.read(0, len(data)) == data
            with pytest.raises(remora.AlreadyExistsError):
                mirror.claim()
            with pytest.raises(remora.BusyError, match="steal") as caught:
                other.claim()
            assert caught.value.reason == remora.Reason.HELD
            assert caught.value.subject == "the first"
        assert not mirror.claimed
        with pytest.raises(remora.NotFoundError):
            mirror.release()
        with pytest.raises(remora.InvalidArgumentError, match="identity"):
            mirror.claim(identity="x" * 201)


def test_a_claim_of_a_mirror_and_coroutines(mirror_uri):
    async def run(mirror):
        with await asyncio.to_thread(mirror.claim, exclusive=True):
            async with mirror.async_queue(depth=4) as queue:
                pages = [bytes([page]) * STRIPE for page in range(12)]
                await asyncio.gather(*(queue.write(n * STRIPE, page)
                                       for n, page in enumerate(pages)))
                found = await asyncio.gather(*(queue.read(n * STRIPE, STRIPE) for n in range(12)))
                assert found == pages

    with remora.open_volume(mirror_uri) as mirror:
        asyncio.run(run(mirror))
        assert not mirror.claimed


def test_a_claim_that_another_client_takes(mirror_uri):
    with remora.open_volume(mirror_uri) as mirror, remora.open_volume(mirror_uri) as other:
        with pytest.raises(remora.AccessRefusedError) as at_the_end:
            with mirror.claim():
                with other.claim(steal=True):
                    with pytest.raises(remora.AccessRefusedError) as refused:
                        mirror.write(0, b"late")
                    assert refused.value.reason == remora.Reason.FENCED
                    other.write(0, b"good")
                    assert not mirror.claimed and other.claimed
                    assert other.events() == []  # each volume has its own
        assert at_the_end.value.reason == remora.Reason.FENCED
        assert mirror.read(0, 4) == b"good"
        with pytest.raises(ZeroDivisionError):  # and not the error of the release
            with mirror.claim():
                with other.claim(steal=True):
                    raise ZeroDivisionError


def test_a_claim_that_ends_within_its_block(mirror_uri):
    with remora.open_volume(mirror_uri) as mirror:
        with mirror.claim():
            mirror.release()
        with mirror.claim():
            mirror.close()
    with remora.open_volume(mirror_uri) as mirror, mirror.claim():
        mirror.write(0, b"the claim of a closed volume has ended")


def lose_a_copy(uri):
    """Of its group, of which the first member is the one that is read."""
    done = remora_command("volume", "stat", uri, "--json")
    backup = json.loads(done.stdout)["members"][1]
    with remora.connect(f"remora://{backup['addresses'][0]}?transport=tcp") as client:
        client.remove_region(backup["region"], remora.Removal.NOW)


def test_a_lost_copy_is_made_anew(cluster):
    uri, size = f"{cluster.uri}/rebuilt", 2 << 20
    done = remora_command("volume", "create", uri, "--size", "2MiB", "--group", "2MiB",
                          "--stripe", "4KiB", "--width", "1", "--kind", "mirror:2")
    assert done.returncode == 0, done.stderr
    with remora.open_volume(uri) as mirror, mirror.claim():
        assert mirror.info.transports == {remora.Transport.TCP}
        assert mirror.repair() == remora.RepairReport(1, 0, 0, 0, ())
        lose_a_copy(uri)
        mirror.write(0, b"two copies again")
        assert mirror.groups[0].copies == 1

        def stop_after_the_first(done, _all):
            if done != 0:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):  # the second MiB would follow days later
            mirror.repair(bytes_per_second=1, progress=stop_after_the_first)
        assert mirror.groups[0].copies == 1
        told: list[tuple[int, int]] = []
        report = mirror.repair(progress=lambda done, of_all: told.append((done, of_all)))
        assert (report.groups, report.copies_made, report.bytes_copied) == (1, 1, size)
        assert report.left == () and mirror.groups[0].copies == 2
        assert told[-1] == (size, size)
        assert mirror.read(0, 16) == b"two copies again"
        events = mirror.events()
        changes = [event.change for event in events]
        assert changes[0] == remora.VolumeChange.MEMBER_REMOVED
        assert events[0].code != remora.Code.OK and events[0].server != ""
        made = [remora.VolumeChange.COPY_BEGUN, remora.VolumeChange.COPY_FAILED,
                remora.VolumeChange.COPY_BEGUN, remora.VolumeChange.COPY_DONE]
        assert changes[-4:] == made
        assert events[-3].code == remora.Code.CANCELLED and events[-1].code == remora.Code.OK
        assert mirror.events() == []


def test_an_event_with_numbers_of_a_newer_library():
    event = _native.ffi.new("remora_py_event*")
    event.change, event.code, event.reason = remora.VolumeChange.COPY_FAILED, 4000, 5000
    event.server = b"s1"
    assert remora.VolumeEvent.of(event) == remora.VolumeEvent(
        change=remora.VolumeChange.COPY_FAILED, group=0, server="s1", code=4000, reason=5000)


def test_what_is_not_repaired(mirror_uri, volume):
    with pytest.raises(remora.UnsupportedError, match="one copy"):
        volume.repair()
    with remora.open_volume(mirror_uri) as mirror:
        with pytest.raises(remora.InvalidArgumentError, match="no claim of the volume"):
            mirror.repair()
        with mirror.claim(), pytest.raises(remora.InvalidArgumentError) as caught:
            mirror.repair(groups_at_once=65)
        assert caught.value.subject == "groups_at_once"
    with pytest.raises(remora.ClosedError):
        mirror.repair()


def test_a_server_that_goes(runtime):
    """Other groups continue, also in a volume that is opened later."""
    made = Cluster(tempfile.mkdtemp(dir=runtime))
    try:
        made.servers[1].kill()
        made.servers[1].wait()
        with pytest.raises(remora.Error, match="member s1"):
            remora.open_volume(f"{made.uri}/disk")
        with remora.open_volume(f"{made.uri}/disk", partial=True) as volume:
            assert not volume.connected
            for group in volume.groups:
                if group.server == "s1":
                    assert group.error and group.transport == remora.Transport.AUTO
                    with pytest.raises(remora.Error):
                        volume.read(group.index * STRIPE, 8)
                else:
                    assert len(volume.read(group.index * STRIPE, 8)) == 8
    finally:
        made.stop()
