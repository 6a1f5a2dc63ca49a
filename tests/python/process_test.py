"""Ctrl-C, the end of the interpreter with operations in flight, fork and spawn."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import remora
from conftest import TRANSPORT, WAIT_S, reads_need_the_server

OPEN = """
client = remora.connect(uri)
import os
name = f"child-{os.getpid()}"
client.create_region(name, 12 << 20, shm="transport=shm" in uri, lifetime=remora.Lifetime.SESSION)
region = client.open_region(name)
"""


def program(text):
    return OPEN + textwrap.dedent(text)


def is_clean(child, log_allowed=False):
    """What it printed; it ended with status 0 and said nothing else, but perhaps warnings of the
    library's log."""
    code, out, err = child.end()
    assert code == 0, out + err
    assert "Traceback" not in err and "Exception" not in err if log_allowed else err == "", err
    return out


def test_ctrl_c_in_a_read(child, server):
    """Whatever the call is at, the read ends, and the region works on."""
    started = child(server.uri, program("""
        buffer = bytearray(12 << 20)
        try:
            print("reading", flush=True)
            while True:
                region.read_into(buffer, deadline=60)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        if not region._unfinished:
            buffer.append(0)
        region.write(0, b"works")
        print(region.read(0, 5).decode())
    """))
    assert started.line() == "reading"
    time.sleep(0.2)
    started.process.send_signal(signal.SIGINT)
    assert started.line() == "interrupted"
    assert is_clean(started) == "works\n"


@reads_need_the_server
def test_ctrl_c_while_the_server_does_not_answer(child, own_server):
    started = child(own_server.uri, program("""
        buffer = bytearray(12 << 20)
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            print("reading", flush=True)
            region.read_into(buffer, deadline=60)
        except KeyboardInterrupt:
            print("interrupted", len(region._unfinished), flush=True)
        try:
            buffer.append(0)
        except BufferError:
            print("held", flush=True)
        sys.stdin.readline()
        while region._unfinished:
            assert region.read(0, 5) == bytes(5)
        buffer.append(0)
        print("released")
    """))
    assert started.line() == "ready"
    own_server.pause()
    try:
        started.say()
        assert started.line() == "reading"
        time.sleep(0.3)
        sent = time.monotonic()
        started.process.send_signal(signal.SIGINT)
        assert started.line() == "interrupted 1"
        took = time.monotonic() - sent
        assert took < 20  # of a deadline of 60 s; about 0.1 s on a machine that is not busy
        print(f"KeyboardInterrupt after {took:.3f} s")
        assert started.line() == "held"
    finally:
        own_server.go_on()
    started.say()
    assert is_clean(started, log_allowed=True) == "released\n"


def test_ctrl_c_in_a_queue_loses_nothing(child, server):
    started = child(server.uri, program("""
        queue = region.queue(depth=64)
        taken = 0
        try:
            print("counting", flush=True)
            while True:
                while not queue.full:
                    taken += 1
                    queue.fetch_add(0, 1)
                for completion in queue.wait():
                    completion.result()
        except KeyboardInterrupt:
            pass
        for completion in queue:
            completion.result()
        print(region.fetch_add(0, 0) in (taken, taken - 1))
    """))
    assert started.line() == "counting"
    time.sleep(0.2)
    started.process.send_signal(signal.SIGINT)
    assert is_clean(started) == "True\n"


FLIGHT = """
queue = region.queue(depth=64, deadline=1.0)
buffers = [bytearray(64 << 10) for _ in range(64)]
for number, buffer in enumerate(buffers):
    if number % 2:
        queue.read_into(buffer, number * (64 << 10))
    else:
        queue.write(number * (64 << 10), buffer)
queue.submit()
"""


@pytest.mark.parametrize("ending", [
    "print('end')",
    "print('end'); sys.exit(0)",
    "del client, region, queue; print('end')",
    "del buffers[:]; region.close(); print('end')",
])
def test_exit_with_operations_in_flight(child, server, ending):
    assert is_clean(child(server.uri, program(FLIGHT) + ending)) == "end\n"


@reads_need_the_server
def test_exit_while_the_server_does_not_answer(child, own_server):
    started = child(own_server.uri, program("""
        print("ready", flush=True)
        sys.stdin.readline()
    """) + FLIGHT)
    assert started.line() == "ready"
    own_server.pause()
    try:
        started.say()
        is_clean(started, log_allowed=True)
    finally:
        own_server.go_on()


def test_exit_with_a_daemon_thread_in_a_read(child, server):
    """It may see that the client is closed, and print that on its way."""
    code, out, err = child(server.uri, program("""
        import threading
        reading = threading.Event()
        def read():
            while True:
                region.read(0, 1 << 20)
                reading.set()
        threading.Thread(target=read, daemon=True).start()
        reading.wait()
        print("end")
    """)).end()
    assert (code, out) == (0, "end\n"), err


def test_exit_with_tasks_in_flight(child, server):
    assert is_clean(child(server.uri, program("""
        import asyncio
        async def main():
            queue = region.async_queue()
            tasks = [asyncio.create_task(queue.read(0, 65536)) for _ in range(100)]
            await asyncio.sleep(0)
            print("end")
        asyncio.run(main())
    """))) == "end\n"


def test_exit_with_an_error(child, server):
    code, _, err = child(server.uri, program(FLIGHT) + "region.read(0, 0)").end()
    assert code == 1 and err.rstrip().split("\n")[-1].startswith("remora.errors.InvalidArgumentError")


def in_a_child(check):
    """`check` in a child by fork(): its exit status is 0 where it returns True."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forked_error(call, *arguments):
    try:
        call(*arguments)
    except remora.ForkedError as error:
        return isinstance(error, remora.ClosedError) and "spawn" in str(error)
    return False


def test_a_child_by_fork_is_refused(client, region, server):
    region.write(0, b"parent")
    queue = region.queue()
    queue.write(64, b"x")
    assert in_a_child(lambda: forked_error(region.read, 0, 6)) == 0
    assert in_a_child(lambda: forked_error(region.fetch_add, 0, 1)) == 0
    assert in_a_child(lambda: forked_error(queue.write, 0, b"x")) == 0
    assert in_a_child(lambda: forked_error(queue.wait)) == 0
    assert in_a_child(lambda: forked_error(client.open_region, region.name)) == 0
    assert in_a_child(lambda: forked_error(client.stat, region.name)) == 0
    assert queue.wait()[0].ok and region.read(64, 1) == b"x"
    assert region.read(0, 6) == b"parent"


def test_a_child_by_fork_may_connect_and_close(client, region, server):
    """Over rdma it is refused: librdmacm keeps the devices of the parent."""
    region.write(0, b"parent")

    def connect():
        client.close()  # touches nothing of the parent's
        try:
            with remora.connect(server.uri) as own:
                return own.open_region(region.name).read(0, 6) == b"parent"
        except remora.UnsupportedError:
            return TRANSPORT == "rdma"

    assert in_a_child(connect) == 0
    assert region.read(0, 6) == b"parent"


MULTIPROCESSING = """
import multiprocessing, sys
import remora

def work(uri, name, number):
    with remora.connect(uri) as client:
        client.open_region(name).fetch_add(0, number)

def inherited(region, results):
    try:
        region.read(0, 8)
    except remora.ForkedError as error:
        results.put(str(error))

if __name__ == "__main__":
    uri, name, method = sys.argv[1:]
    context = multiprocessing.get_context(method)
    client = remora.connect(uri)
    region = client.open_region(name)
    if method == "spawn":
        workers = [context.Process(target=work, args=(uri, name, number)) for number in (1, 10)]
    else:
        results = context.SimpleQueue()
        workers = [context.Process(target=inherited, args=(region, results))]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert [each.exitcode for each in workers] == [0] * len(workers)
    print(region.fetch_add(0, 0) if method == "spawn" else results.get())
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_multiprocessing(region, server, tmp_path, method):
    script = tmp_path / "workers.py"  # spawn imports it
    script.write_text(MULTIPROCESSING)
    done = subprocess.run([sys.executable, "-B", str(script), server.uri, region.name, method],
                          capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout == "11\n" if method == "spawn" else "spawn" in done.stdout
