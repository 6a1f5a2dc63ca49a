"""Each error that a program can come by: its class, its code, and a text that says what to do."""

import gc
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time

import pytest
import remora
from conftest import HOST, TRANSPORT, WAIT_S, Server, create, reads_need_the_server
from remora import _native


def raised(kind, call, *arguments, **options):
    """The error; its class is that of its code, and its text is one line."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    error = caught.value
    assert isinstance(error, remora.Error) and type(error) is kind
    assert error.code == kind.code and "\n" not in str(error) and len(str(error)) > 10
    return error


def test_wrong_uris(server):
    raised(remora.InvalidArgumentError, remora.connect, "http://localhost")
    raised(remora.InvalidArgumentError, remora.connect, "remora://localhost/demo")
    error = raised(remora.UnsupportedError, remora.connect, "remora://localhost?transport=dove")
    assert "dove" in str(error)


def test_wrong_options(server):
    raised(remora.InvalidArgumentError, remora.connect, server.uri, key_hex="zz")
    raised(remora.InvalidArgumentError, remora.connect, server.uri, deadline=-1.0)
    error = raised(remora.InvalidArgumentError, remora.connect, server.uri, rdma="mtu=1024,speed=1")
    assert "speed=1" in str(error)
    raised(remora.InvalidArgumentError, remora.connect, server.uri, rails="0")
    error = raised(remora.NotFoundError, remora.connect, server.uri, key_file="/nowhere/key")
    assert "/nowhere/key" in str(error) and isinstance(error, LookupError)


def test_keys(runtime, tmp_path):
    """A server with keys: the client's own, another one, none, one that others may read."""
    keys = {name: random.randbytes(32).hex() for name in ("root", "user")}
    for name, key in keys.items():
        path = tmp_path / name
        path.touch(0o600)
        path.write_text(key + "\n")
    server = Server(tempfile.mkdtemp(dir=runtime), "auth: keys\nclients:\n" + "".join(
        f"  - {{name: {name}, key: {key}, create: true, admin: {str(name == 'root').lower()}}}\n"
        for name, key in keys.items()))
    wrong: tuple[dict[str, str], ...] = ({"key_hex": random.randbytes(32).hex()}, {})
    try:
        for refused in wrong:
            error = raised(remora.ConnectionRefusedError, remora.connect, server.uri,
                           client_name="root", **refused)
            assert error.reason == remora.Reason.AUTHENTICATION, error
        with remora.connect(server.uri, client_name="root", key_file=tmp_path / "root") as root, \
                remora.connect(server.uri, client_name="user", key_hex=keys["user"]) as user:
            create(user, "own").write(0, b"of the user")
            assert user.ping() > 0
            for call in (user.sessions, user.drain, user.end_drain, user.drain_state,
                         lambda: user.end_session(1)):
                raised(remora.NoRightError, call)
            assert {each.client_name: each.client_proven for each in root.sessions()} == {
                "root": True, "user": True}
        (tmp_path / "root").chmod(0o644)
        raised(remora.PermissionDeniedError, remora.connect, server.uri, client_name="root",
               key_file=tmp_path / "root")
    finally:
        server.stop()


def test_nothing_listens():
    with pytest.raises(ConnectionError) as caught:
        remora.connect(f"remora://{HOST}:1?transport={TRANSPORT}", control_deadline=5.0)
    assert isinstance(caught.value, remora.Error)
    if TRANSPORT != "shm":  # which looks for a socket in a folder
        assert f"{HOST}:1" in str(caught.value)


def test_regions_that_cannot_be_had(client):
    error = raised(remora.UnknownRegionError, client.open_region, "nowhere")
    assert "nowhere" in str(error)
    raised(remora.UnknownRegionError, client.stat, "nowhere")
    raised(remora.InvalidArgumentError, client.open_region, "a/b")
    raised(remora.InvalidArgumentError, client.open_region, "")
    opened = create(client, "twice")
    raised(remora.AlreadyExistsError, client.create_region, opened.name, 4096)
    raised(remora.BusyError, client.remove_region, opened.name)
    raised(remora.OutOfMemoryError, client.create_region, "large", 1 << 40)


def test_misuse_of_operations(region):
    error = raised(remora.OutOfRangeError, region.read, region.size - 2, 4)
    assert (error.offset, error.length) == (region.size - 2, 4) and isinstance(error, ValueError)
    raised(remora.InvalidArgumentError, region.read, 0, 0)
    raised(remora.InvalidArgumentError, region.write, 0, b"")
    raised(remora.MisalignedError, region.fetch_add, 4, 1)
    with pytest.raises(OverflowError):
        region.read(-1, 4)
    with pytest.raises(TypeError):
        region.write(0, "text")
    with pytest.raises(BufferError):
        region.read_into(b"read-only")
    with pytest.raises((BufferError, ValueError)):
        region.write(0, memoryview(bytes(8))[::2])
    assert region.read(0, 1) == b"\0"


def test_rights(client, region):
    reader = client.open_region(region.name, remora.Rights.READ)
    assert reader.read(0, 1) == b"\0"
    raised(remora.NoRightError, reader.write, 0, b"x")
    raised(remora.NoRightError, reader.fetch_add, 0, 1)


def test_pairs_that_fail_end_alone(client, region):
    reader = client.open_region(region.name, remora.Rights.READ)
    good = bytearray(8)
    region.write(16, b"contents")
    pairs = [(0, bytearray(8)), (region.size, bytearray(3)), (16, good), (0, bytearray(0))]
    error = raised(remora.OutOfRangeError, region.read_many_into, pairs)
    assert (error.offset, error.length) == (region.size, 3) and "pair 1" in str(error)
    assert good == b"contents"
    assert {index: type(each) for index, each in error.failed_pairs.items()} == {
        1: remora.OutOfRangeError, 3: remora.InvalidArgumentError}
    assert error.failed_pairs[3].reason == remora.Reason.ZERO_LENGTH
    assert str(error.failed_pairs[3]).startswith("pair 3: ")
    assert pickle.loads(pickle.dumps(error)).failed_pairs[3].code == remora.Code.INVALID_ARGUMENT
    error = raised(remora.NoRightError, reader.write_many, [(0, b"a"), (1, b"b")])
    assert set(error.failed_pairs) == {0, 1}
    with region.queue() as queue:
        queue.write_many([(0, b"x"), (region.size, b"y")], tag="pairs")
        (ended,) = queue.wait()
        assert isinstance(ended.error, remora.OutOfRangeError)
        assert set(ended.error.failed_pairs) == {1}
        raised(remora.InvalidArgumentError, queue.read_many_into, [])
    assert raised(remora.OutOfRangeError, region.read, region.size, 1).failed_pairs == {}


def test_misuse_of_pairs(region):
    error = raised(remora.LimitExceededError, region.write_many, [(0, b"x")] * 65537)
    assert (error.asked, error.allowed) == (65537, 65536)
    with pytest.raises(OverflowError):
        region.write_many([(0, b"x"), (-1, b"x")])
    with pytest.raises(TypeError):
        region.write_many([(0, "text")])
    with pytest.raises(BufferError):
        region.read_many_into([(0, b"read-only")])
    pytest.raises(ValueError, region.write_many, [b"no pair"])
    assert region.read(0, 1) == b"\0"
    region.close()
    raised(remora.ClosedError, region.write_many, [])
    raised(remora.ClosedError, region.write_many, [(0, b"x")])


def test_a_full_queue(region):
    with region.queue(depth=2) as queue:
        queue.write(0, b"a")
        queue.write(1, b"b")
        error = raised(remora.WouldBlockError, queue.write, 2, b"c")
        assert "2" in str(error)
        assert len(queue.wait(2)) == 2
        queue.write(2, b"c")
    raised(remora.InvalidArgumentError, region.queue, 0)
    raised(remora.InvalidArgumentError, region.queue, 1 << 20)


def test_two_threads_on_one_queue(region):
    """The second thread is refused while the first is in a call, and nothing is lost."""
    queue = region.queue(depth=4)
    with queue._ring._lock:  # as a thread that is in a call
        raised(remora.BusyError, queue.submit)
        refused = []
        thread = threading.Thread(
            target=lambda: refused.append(pytest.raises(remora.BusyError, queue.wait)))
        thread.start()
        thread.join()
        assert len(refused) == 1
        raised(remora.BusyError, queue.close)
    queue.write(0, b"still")
    assert queue.wait()[0].ok
    queue.close()


def test_closed_objects(server):
    client = remora.connect(server.uri)
    region = create(client, "closing")
    queue = region.queue()
    queue.write(0, b"x")
    client.close()
    client.close()
    raised(remora.ClosedError, queue.write, 0, b"x")
    raised(remora.ClosedError, region.read, 0, 1)
    raised(remora.ClosedError, lambda: region.size)
    raised(remora.ClosedError, client.open_region, region.name)


class InterruptedLibrary:
    """The functions of the C API, with Ctrl-C at the moment at which one of them returns."""

    def __init__(self, lib, name):
        self._lib = lib
        self._name = name

    def __getattr__(self, name):
        function = getattr(self._lib, name)
        if name != self._name:
            return function

        def interrupted(*arguments):
            assert function(*arguments) == 0
            raise KeyboardInterrupt

        return interrupted


def remove_unused(client, name):
    """Fails where a grant of the region is left."""
    gc.collect()  # a traceback may keep a frame
    until = time.monotonic() + WAIT_S
    while True:
        try:
            return client.remove_region(name)
        except remora.BusyError:
            assert time.monotonic() < until, "a grant is left"
            time.sleep(0.01)


@pytest.mark.parametrize("module, function, call", [
    ("client", "remora_engine_open_region", lambda client, region: client.open_region(region.name)),
    ("client", "remora_engine_fence_region",
     lambda client, region: client.open_region(region.name, fence=True)),
    ("region", "remora_region_fence", lambda _, region: region.fence()),
    ("region", "remora_region_reopen", lambda _, region: region.reopen()),
])
def test_ctrl_c_leaves_no_region_open(client, region, monkeypatch, module, function, call):
    """Blocking calls handle Ctrl-C when they return, that is, when they have made something."""
    used = getattr(remora, module)
    with monkeypatch.context() as patch:
        patch.setattr(used, "lib", InterruptedLibrary(used.lib, function))
        with pytest.raises(KeyboardInterrupt):
            call(client, region)
    region.close()
    remove_unused(client, region.name)


def test_a_handle_ends_with_its_last_call(client, region):
    handle = region._handle

    def close_and_use(pointer):
        handle.close()
        assert handle.closed
        return _native.lib.remora_region_size_bytes(pointer)

    assert handle.call(close_and_use) == 1 << 20
    raised(remora.ClosedError, handle.call, close_and_use)
    again = client.open_region(region.name)
    library = InterruptedLibrary(_native.lib, "remora_region_info_of")
    with pytest.raises(KeyboardInterrupt):
        again._handle.call(library.remora_region_info_of, _native.sized("remora_region_info"),
                           _native.NULL)
    again.close()
    remove_unused(client, region.name)


def test_a_fenced_grant(client, region):
    newer = region.fence()
    error = raised(remora.AccessRefusedError, region.write, 0, b"late")
    assert error.reason == remora.Reason.FENCED
    newer.write(0, b"new")


def test_a_region_that_is_removed_under_way(client, region):
    with region.queue(depth=4) as queue:
        client.remove_region(region.name, remora.Removal.NOW)
        error = raised(remora.AccessRefusedError, region.write, 0, b"late")
        assert error.reason == remora.Reason.REVOKED
        queue.write(0, b"late")
        ended, = queue.wait()
        assert isinstance(ended.error, remora.AccessRefusedError)
    raised(remora.UnknownRegionError, region.reopen)


@reads_need_the_server
def test_a_server_that_does_not_answer(own_server):
    with remora.connect(own_server.uri) as client:
        region = create(client, "paused")
        own_server.pause()
        try:
            error = raised(remora.TimedOutError, region.read, 0, 4, deadline=0.2)
            assert error.server.endswith(f":{own_server.port}") and isinstance(error, TimeoutError)
        finally:
            own_server.go_on()


def test_a_server_that_comes_back_with_new_memory(own_server):
    with remora.connect(own_server.uri) as client:
        client.create_region("kept", 1 << 16, shm=TRANSPORT == "shm")
        region = client.open_region("kept")
        region.write(0, b"old")
        own_server.stop()
        own_server.start()
        with pytest.raises((remora.StaleRegionError, remora.ConnectionLostError)):
            while True:  # over shm the old memory is there until the engine has noticed
                try:
                    region.read(0, 3)
                except remora.TimedOutError:  # it connects again
                    pass


def test_errors_can_be_sent_to_another_process(region):
    error = raised(remora.OutOfRangeError, region.read, region.size, 1)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert (again.code, again.offset, again.server) == (error.code, error.offset, error.server)


@pytest.mark.skipif("REMORA_OLDER_LIBRARY" not in os.environ, reason="this build has none")
def test_an_older_library(server):
    """A package that was made for a newer libremora.so.0 than the one that it finds."""
    script = f"""
import remora
try:
    remora.connect({server.uri!r})
except remora.UnsupportedError as error:
    print(error)
"""
    environment = dict(os.environ, LD_PRELOAD=os.environ["REMORA_OLDER_LIBRARY"])
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True,
                          text=True, timeout=WAIT_S, check=True)
    assert "libremora.so.0 is older" in done.stdout
