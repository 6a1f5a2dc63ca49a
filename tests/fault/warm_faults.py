#!/usr/bin/env python3
"""A server that is killed, or asked to end, again and again under a load that verifies: its memory
outlives each process (pool.warm_restart). This program is the supervisor that keeps the descriptors.

    warm_faults.py --server remora-server --load fault_load --transport tcp|shm|rdma
                   [--next-server PROGRAM] [--store fd|notify] [--rounds N]

With --next-server, the two programs follow each other in turn: both directions between two versions.

Environment: REMORA_VM_ADDRESS, the address of the RDMA device (--transport rdma).

Exit status: 0 nothing is wrong, 1 a promise was broken, 77 there is no RDMA device.
"""

import argparse
import array
import fcntl
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

TRANSPORTS = ("rdma", "shm", "tcp")
READY_WITHIN_S = 60
LOAD_WITHIN_S = 300
CATALOG = "remora-catalog"
FIRST_SLOT = 4096
SLOT_BYTES = 64 << 20
HEADER_BYTES = 32


class Supervisor:
    """Keeps descriptors by name, by the messages of --warm-fd."""

    def __init__(self, folder):
        del folder
        self.held = {}
        self.reader = None

    def spawn(self, command, environment, log):
        """The next process, with a socket from which it gets what is held."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # By a thread: the server reads them, and there may be more than the socket holds.
        self.reader = threading.Thread(target=self._serve, args=(ours,), daemon=True)
        self.reader.start()
        process = subprocess.Popen(command + ["--warm-fd", str(theirs.fileno())],
                                   pass_fds=[theirs.fileno()], stdout=log, stderr=log,
                                   env=environment)
        theirs.close()
        return process

    def _serve(self, ours):
        rights = [(name, descriptor) for name, descriptor in self.held.items()]
        try:
            for name, descriptor in rights:
                data = array.array("i", [descriptor])
                ours.sendmsg([b"FDNAME=" + name.encode()],
                             [(socket.SOL_SOCKET, socket.SCM_RIGHTS, data)])
            ours.send(b"FDEND=1")
            while True:
                text, descriptors, _, _ = socket.recv_fds(ours, 1024, 1)
                if not text:
                    break
                self._take(text.decode(), descriptors)
        except OSError as error:
            print(f"supervisor: {error}", file=sys.stderr)
        ours.close()

    def _take(self, text, descriptors):
        fields = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
        name = fields.get("FDNAME")
        if fields.get("FDSTORE") == "1":
            assert name not in self.held, f"{name} is stored twice"
            self.held[name] = descriptors[0]
        elif fields.get("FDSTOREREMOVE") == "1":
            descriptor = self.held.pop(name, None)
            if descriptor is not None:
                os.close(descriptor)

    def settle(self):
        """The process has ended: reads what it has sent."""
        self.reader.join(10)
        assert not self.reader.is_alive(), "the socket of a process that has ended is still open"


class ServiceManager(Supervisor):
    """The same as systemd does it: NOTIFY_SOCKET, LISTEN_FDS, LISTEN_FDNAMES."""

    FIRST = 3
    SPARE = 200

    def __init__(self, folder):
        super().__init__(folder)
        self.path = os.path.join(folder, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(0.1)
        self.ended = False

    def spawn(self, command, environment, log):
        self.ended = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        names = list(self.held)
        spare = [fcntl.fcntl(self.held[name], fcntl.F_DUPFD, self.SPARE) for name in names]
        # A shell puts them in their places; its process id is that of the server.
        moves = " ".join(f"{self.FIRST + i}<&{fd} {fd}<&-" for i, fd in enumerate(spare))
        script = (f"exec {moves}\nexport LISTEN_PID=$$\n" if names else "") + 'exec "$@"'
        environment = dict(environment, NOTIFY_SOCKET=self.path, LISTEN_FDS=str(len(names)),
                           LISTEN_FDNAMES=":".join(names), FDSTORE="64")
        process = subprocess.Popen(["bash", "-c", script, "bash"] + command, pass_fds=spare,
                                   stdout=log, stderr=log, env=environment)
        for descriptor in spare:
            os.close(descriptor)
        return process

    def _read(self):
        while True:
            try:
                text, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 1)
            except TimeoutError:
                if self.ended:
                    return
                continue
            self._take(text.decode(), descriptors)

    def settle(self):
        self.ended = True
        super().settle()


class Fixture:
    def __init__(self, options, folder):
        self.options = options
        self.folder = folder
        self.port = 20000 + os.getpid() % 12000
        self.host = os.environ["REMORA_VM_ADDRESS"] if options.transport == "rdma" else "127.0.0.1"
        self.program = options.server
        self.metrics = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250 + 1}.1:9471"
        kind = ServiceManager if options.store == "notify" else Supervisor
        self.supervisor = kind(folder)
        self.server = None
        self.log = open(os.path.join(folder, "server.log"), "w+", encoding="utf-8")
        self.environment = dict(os.environ, REMORA_RUNTIME_DIR=os.path.join(folder, "run"))
        self.environment.pop("NOTIFY_SOCKET", None)
        os.mkdir(self.environment["REMORA_RUNTIME_DIR"], 0o700)
        self.config = os.path.join(folder, "server.yaml")
        mapped = options.transport == "shm"
        atomics = "auto" if options.transport == "rdma" else "cpu"
        offered = {kind: "required" if kind == options.transport else "off" for kind in TRANSPORTS}
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"""
listen: {{address: {self.host}, port: {self.port}}}
transports: {{rdma: {offered['rdma']}, shm: {offered['shm']}, tcp: {offered['tcp']}}}
pool: {{size: {options.pool}, piece: 4MiB, huge_pages: never, warm_restart: true}}
regions:
  - {{name: load, size: 4MiB, block: 4KiB, shm: {str(mapped).lower()}, atomics: {atomics}}}
auth: none
metrics: {{address: "{self.metrics}"}}
""")

    def spawn(self, *options):
        self.server = self.supervisor.spawn(
            [self.program, "--config", self.config, *options], self.environment, self.log)

    def start(self):
        """Returns when the server is ready: the time that took, in ms."""
        began = time.monotonic()
        self.spawn()
        while time.monotonic() - began < READY_WITHIN_S:
            if self.server.poll() is not None:
                raise AssertionError(f"the server has ended: {self.server.returncode}\n{self.text()}")
            try:
                with urllib.request.urlopen(f"http://{self.metrics}/readyz", timeout=5):
                    return (time.monotonic() - began) * 1000
            except OSError:
                time.sleep(0.005)
        raise AssertionError(f"the server is not ready\n{self.text()}")

    def close(self):
        """Also after a failure: no server is left."""
        if self.server is not None and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        self.log.close()

    def end(self, how):
        self.server.send_signal(how)
        status = self.server.wait(60)
        self.supervisor.settle()
        if how == signal.SIGTERM:
            assert status == 0, f"SIGTERM: status {status}\n{self.text()}"

    def text(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8") as file:
            return file.read()

    def status(self):
        with urllib.request.urlopen(f"http://{self.metrics}/status", timeout=10) as answer:
            return json.load(answer)


class Load:
    """The load, and what it says on standard error."""

    def __init__(self, fixture):
        self.process = subprocess.Popen(
            [fixture.options.load, "--fresh", "--json", "--rate", str(fixture.options.rate),
             "--seconds", "240", "--log", "info", "--uri",
             f"remora://{fixture.host}:{fixture.port}/load?transport={fixture.options.transport}"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=fixture.environment)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def count(self, text):
        return sum(text in line for line in list(self.lines))

    def wait_for(self, text, count=1):
        """Until so many lines have it."""
        until = time.monotonic() + LOAD_WITHIN_S
        while self.count(text) < count:
            assert self.process.poll() is None and time.monotonic() < until, "".join(self.lines)
            time.sleep(0.01)

    def end(self):
        """Its report, and what it has said."""
        self.process.send_signal(signal.SIGTERM)
        output = self.process.stdout.read()
        self.process.wait(LOAD_WITHIN_S)
        self.reader.join(LOAD_WITHIN_S)
        return output, "".join(self.lines)


def under_load(fixture, rounds):
    """Kills and restarts while the load runs. False: a promise was broken."""
    load = Load(fixture)
    memory = fixture.status()["memory_id"]
    boots = {fixture.status()["boot_id"]}
    starts = []
    met = 0
    load.wait_for("under way")
    for number in range(rounds):
        time.sleep(random.uniform(0.1, 0.6))
        resumed = load.count(": resumed")
        # Each program ends in both ways where there are two.
        turn = number // 2 if fixture.options.next_server else number
        fixture.end(signal.SIGKILL if turn % 2 == 0 else signal.SIGTERM)
        time.sleep(random.uniform(0, 0.1))
        if fixture.options.next_server:
            fixture.program = (fixture.options.next_server if number % 2 == 0 else
                               fixture.options.server)
        starts.append(fixture.start())
        status = fixture.status()
        assert status["memory_id"] == memory, f"round {number}: new memory\n{fixture.text()}"
        assert status["boot_id"] not in boots, "a process has the boot id of another one"
        boots.add(status["boot_id"])
        # Now and then the next fault meets a session that has not come back yet.
        if number == rounds - 1 or random.random() < 0.8:
            load.wait_for(": resumed", resumed + 1)
            met += 1
    time.sleep(1)
    output, errors = load.end()
    report = json.loads(output)
    print(f"# {report['operations']} operations, {report['ok']} ok, {report['resumed']} resumed; "
          f"ready after {max(starts):.0f} ms at most; without service for "
          f"{report['longest_silence_ms']} ms at most")
    wrong = [f"{name} is {report[name]}, not {wanted}"
             for name, wanted in (("violations_total", 0), ("lives", 1), ("stale", 0), ("lost", 0))
             if report[name] != wanted]
    if load.process.returncode != 0:
        wrong.append(f"fault_load: status {load.process.returncode}: {errors}")
    if report["resumed"] < met:
        wrong.append(f"{report['resumed']} resumptions in {met} rounds")
    for text in wrong + report.get("violations", []):
        print(f"not ok - {text}")
    return not wrong


def failed_late(fixture):
    """A start that fails when the memory is taken over already leaves it to the next one."""
    before = fixture.status()["memory_id"]
    fixture.end(signal.SIGTERM)
    fixture.spawn("--port-file", os.path.join(fixture.folder, "none", "port"))
    status = fixture.server.wait(60)
    fixture.supervisor.settle()
    fixture.start()
    if status == 0 or fixture.status()["memory_id"] != before:
        print(f"not ok - a port file that cannot be written: status {status}\n{fixture.text()}")
        return False
    return True


def damaged(fixture):
    """A catalog with a wrong byte is not taken, and the log says so loudly."""
    before = fixture.status()["memory_id"]
    fixture.end(signal.SIGKILL)
    descriptor = fixture.supervisor.held[CATALOG]
    for slot in range(2):
        at = FIRST_SLOT + slot * SLOT_BYTES + HEADER_BYTES + 1
        byte = os.pread(descriptor, 1, at)
        os.pwrite(descriptor, bytes([byte[0] ^ 1]), at)
    fixture.start()
    if fixture.status()["memory_id"] == before or "IS LOST" not in fixture.text():
        print(f"not ok - a damaged catalog was taken\n{fixture.text()}")
        return False
    return True


def stopped(fixture):
    """SIGINT stops for good: nothing stays stored."""
    fixture.server.send_signal(signal.SIGINT)
    fixture.server.wait(60)
    fixture.supervisor.settle()
    if fixture.supervisor.held:
        print(f"not ok - SIGINT has left {sorted(fixture.supervisor.held)}")
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--transport", choices=TRANSPORTS, required=True)
    parser.add_argument("--next-server")
    parser.add_argument("--store", choices=("fd", "notify"), default="fd")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--pool", default="64MiB")
    parser.add_argument("--rate", type=int, default=4000)
    options = parser.parse_args()
    if options.transport == "rdma" and not os.environ.get("REMORA_VM_ADDRESS"):
        print("no RDMA device: run it by ci/vm/run.sh")
        return 1 if os.environ.get("REMORA_REQUIRE_DEVICE") == "1" else 77
    with tempfile.TemporaryDirectory(prefix="remora-warm.", dir="/tmp") as folder:
        fixture = Fixture(options, folder)
        try:
            fixture.start()
            good = under_load(fixture, options.rounds)
            good = failed_late(fixture) and good
            good = damaged(fixture) and good
            good = stopped(fixture) and good
        finally:
            fixture.close()
    print("ok - warm restart" if good else "not ok - warm restart")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
