#!/usr/bin/python3
"""Remora beside redis-py and a plain socket, from Python, in one run.

usage: bench.py [--size BYTES] [--seconds S] [--rounds N] URI

URI names a region, remora://HOST/REGION; its first bytes are overwritten. Each side reads blocks of SIZE
bytes: one at a time, and 32 at once where it can (a queue, or one call with pairs; a pipeline of redis;
requests that are sent ahead). The sides take turns, ROUNDS times, and the median counts. `ratio` is that
rate to the rate of the plain socket. redis needs redis-server and python3-redis, and is left out where
one is missing. Redis and the socket run on this host, over loopback; so should the server be.
"""

import argparse
import importlib.util
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

# Beside this file stands the package's source, without its extension module: PYTHONPATH has the built one.
sys.path = [folder for folder in sys.path if folder != os.path.dirname(os.path.abspath(__file__))]
import remora  # noqa: E402

AHEAD = 32


def rate_of(step, seconds):
    """Calls of `step` a second; each returns how many blocks it has read."""
    blocks, start = 0, time.perf_counter()
    while True:
        blocks += step()
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return blocks / elapsed


class Remora:
    def __init__(self, uri, size):
        server, _, name = uri.partition("?")[0].rpartition("/")
        query = uri.partition("?")[2]
        self.client = remora.connect(f"{server}?{query}" if query else server)
        self.region = self.client.open_region(name)
        if self.region.size < size * AHEAD:
            sys.exit(f"bench: {name} has {self.region.size} bytes; {size * AHEAD} are needed")
        self.region.write(0, bytes(size * AHEAD))
        self.buffers = [bytearray(size) for _ in range(AHEAD)]
        self.queue = self.region.queue(AHEAD)
        self.size = size
        self.name = f"remora, {self.region.transport.name.lower()}"

    def one(self):
        self.region.read_into(self.buffers[0], 0)
        return 1

    def many(self):
        for index, buffer in enumerate(self.buffers):
            self.queue.read_into(buffer, index * self.size)
        for completion in self.queue.wait(AHEAD):
            completion.result()
        return AHEAD

    def close(self):
        self.client.close()


class RemoraPairs(Remora):
    """32 at once by one call."""

    def __init__(self, uri, size):
        super().__init__(uri, size)
        self.pairs = [(index * size, buffer) for index, buffer in enumerate(self.buffers)]
        self.name += ", pairs"

    def many(self):
        self.region.read_many_into(self.pairs)
        return AHEAD


class Socket:
    """A child process that answers each byte with a block."""

    name = "plain socket"

    def __init__(self, size):
        listener = socket.create_server(("127.0.0.1", 0))
        self.child = os.fork()
        if self.child == 0:
            try:
                self.serve(listener, size)
            finally:
                os._exit(0)
        self.connection = socket.create_connection(listener.getsockname())
        listener.close()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = memoryview(bytearray(size))

    @staticmethod
    def serve(listener, size):
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        block = bytes(size)
        while asked := connection.recv(AHEAD):
            for _ in asked:
                connection.sendall(block)

    def receive(self):
        got = 0
        while got < len(self.buffer):
            now = self.connection.recv_into(self.buffer[got:])
            if now == 0:
                sys.exit("bench: the socket's server has ended")
            got += now

    def one(self):
        self.connection.sendall(b"r")
        self.receive()
        return 1

    def many(self):
        self.connection.sendall(b"r" * AHEAD)
        for _ in range(AHEAD):
            self.receive()
        return AHEAD

    def close(self):
        self.connection.close()
        os.waitpid(self.child, 0)


class Redis:
    name = "redis-py"

    def __init__(self, size):
        import redis

        self.folder = tempfile.TemporaryDirectory()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.server = subprocess.Popen(
            ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
             "--dir", self.folder.name], stdout=subprocess.DEVNULL)
        self.redis = redis.Redis(port=port)
        for _ in range(100):
            try:
                self.redis.ping()
                break
            except redis.exceptions.ConnectionError:
                time.sleep(0.1)
        for index in range(AHEAD):
            self.redis.set(index, bytes(size))

    def one(self):
        self.redis.get(0)
        return 1

    def many(self):
        with self.redis.pipeline(transaction=False) as pipeline:
            for index in range(AHEAD):
                pipeline.get(index)
            return len(pipeline.execute())

    def close(self):
        self.redis.close()
        self.server.send_signal(signal.SIGTERM)
        self.server.wait()
        self.folder.cleanup()


def sides_of(arguments):
    """The socket's child first: Remora's threads come after its fork()."""
    sides: list[Any] = [Socket(arguments.size)]
    if not importlib.util.find_spec("redis"):
        print("redis-py is left out: python3-redis is not installed")
    elif not shutil.which("redis-server"):
        print("redis-py is left out: redis-server is not installed")
    else:
        sides.append(Redis(arguments.size))
    ours = [kind(arguments.uri, arguments.size) for kind in (Remora, RemoraPairs)]
    return [*ours, *sides]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("uri", metavar="URI")
    parser.add_argument("--size", type=int, default=4096, metavar="BYTES")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    arguments = parser.parse_args()
    sides = sides_of(arguments)
    print(f"{arguments.size} bytes a block, median of {arguments.rounds} turns of "
          f"{arguments.seconds:g} s")
    print(f"{'':24}{'one, /s':>12}{'ratio':>8}{f'{AHEAD}, /s':>12}{'ratio':>8}")
    rates: dict[tuple[Any, str], list[float]] = {
        (side, way): [] for side in sides for way in ("one", "many")}
    for _ in range(arguments.rounds):
        for side, way in rates:
            rates[side, way].append(rate_of(getattr(side, way), arguments.seconds))
    plain = next(side for side in sides if isinstance(side, Socket))
    for side in sides:
        row = f"{side.name:24}"
        for way in ("one", "many"):
            rate = statistics.median(rates[side, way])
            row += f"{rate:12,.0f}{rate / statistics.median(rates[plain, way]):8.2f}"
        print(row)
    for side in sides:
        side.close()


if __name__ == "__main__":
    main()
