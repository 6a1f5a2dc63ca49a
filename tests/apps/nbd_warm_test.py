#!/usr/bin/env python3
"""The plugin of nbdkit on a server that is killed, or asked to end, and comes back with the same memory
(pool.warm_restart), while fio writes and verifies.

    nbd_warm_test.py --server remora-server --plugin nbdkit-remora-plugin.so --transport tcp|shm
                     [--rounds N]

Exit status: 0 nothing is wrong, 1 a promise was broken, 77 a tool is missing.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fault"))

import warm_faults  # noqa: E402

PATIENCE_S = 120
RESUMED = "connected again, with the same memory"
MARK = b"written before the first restart"
MARK_AT = 3 << 20  # fio writes below


class Nbdkit:
    """nbdkit in the foreground, and what its log has."""

    def __init__(self, fixture, plugin):
        self.socket = os.path.join(fixture.folder, "nbd.sock")
        self.uri = f"nbd+unix:///?socket={self.socket}"
        self.log = pathlib.Path(fixture.folder) / "nbdkit.log"
        options = fixture.options
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                ["nbdkit", "--foreground", "--unix", self.socket, plugin,
                 f"remora://127.0.0.1:{fixture.port}/load?transport={options.transport}",
                 "deadline=2s", f"reconnect-for={PATIENCE_S}s"],
                stdout=log, stderr=log, env=fixture.environment)
        wait_until(lambda: os.path.exists(self.socket) or self.process.poll() is not None,
                   "nbdkit listens")
        assert self.process.poll() is None, f"nbdkit has ended\n{self.text()}"

    def text(self):
        return self.log.read_text(encoding="utf-8", errors="replace")

    def resumed(self):
        return self.text().count(RESUMED)

    def shell(self, script):
        """What nbdsh prints, connected as `h`."""
        done = subprocess.run(["nbdsh", "--uri", self.uri, "--command", script],
                              capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
        assert done.returncode == 0, f"nbdsh: {done.stderr}\n{self.text()}"
        return done.stdout

    def end(self):
        self.process.terminate()
        status = self.process.wait(PATIENCE_S)
        assert status == 0, f"nbdkit: status {status}\n{self.text()}"


class Load(threading.Thread):
    """fio again and again: each run writes, then verifies what it has written."""

    def __init__(self, uri, folder):
        super().__init__()
        self.command = ["fio", "--name=verify", "--ioengine=nbd", f"--uri={uri}", "--rw=randwrite",
                        "--bs=4k", "--size=2m", "--iodepth=16", "--verify=crc32c",
                        "--verify_fatal=1", "--verify_state_save=0", "--thread", "--randrepeat=0",
                        "--rate_iops=1000"]
        self.folder = folder
        self.over = threading.Event()
        self.runs = 0
        self.failed = []

    def run(self):
        while not self.over.is_set() and not self.failed:
            try:
                done = subprocess.run(self.command, cwd=self.folder, capture_output=True, text=True,
                                      timeout=3 * PATIENCE_S, check=False)
            except subprocess.TimeoutExpired:
                self.failed.append("fio does not end")
                return
            self.runs += 1
            if done.returncode != 0:
                self.failed.append(f"fio: status {done.returncode}\n{done.stdout}{done.stderr}")


def wait_until(condition, what):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, f"waited {PATIENCE_S} s until {what}"
        time.sleep(0.05)


def wait_for_a_run(load):
    before = load.runs
    wait_until(lambda: load.runs > before or load.failed, "a run of fio has ended")


def kill_and_restart(fixture, nbdkit, load, rounds):
    memory = fixture.status()["memory_id"]
    for number in range(rounds):
        # In each second round while fio writes, in the others while it may have gone on to verify.
        if number % 2 == 0:
            wait_for_a_run(load)
        time.sleep(0.2)
        before = nbdkit.resumed()
        fixture.end(signal.SIGKILL if number % 2 == 0 else signal.SIGTERM)
        fixture.start()
        assert fixture.status()["memory_id"] == memory, f"new memory\n{fixture.text()}"
        wait_until(lambda before=before: nbdkit.resumed() > before or load.failed,
                   "nbdkit is connected again")
        if load.failed:
            return
    wait_for_a_run(load)


def test(fixture, options):
    fixture.start()
    nbdkit = Nbdkit(fixture, options.plugin)
    load = Load(nbdkit.uri, fixture.folder)
    try:
        nbdkit.shell(f"h.pwrite({MARK!r}, {MARK_AT})")
        load.start()
        kill_and_restart(fixture, nbdkit, load, options.rounds)
        load.over.set()
        load.join()
        assert not load.failed, f"{load.failed[0]}\n{nbdkit.text()}"
        check_device(nbdkit)
        nbdkit.end()
    finally:
        if nbdkit.process.poll() is None:  # then requests end, and fio with them
            nbdkit.process.kill()
            nbdkit.process.wait()
        load.over.set()
        if load.ident is not None:
            load.join()
    print(f"# {load.runs} runs of fio, {nbdkit.resumed()} resumptions in {options.rounds} rounds")


def check_device(nbdkit):
    assert nbdkit.shell(f"print(bytes(h.pread({len(MARK)}, {MARK_AT})) == {MARK!r})") == "True\n", \
        "what was written before the first restart is not there"
    assert "new memory" not in nbdkit.text() and ": lost: " not in nbdkit.text(), nbdkit.text()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--transport", choices=("tcp", "shm"), required=True)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    options.store, options.pool = "fd", "64MiB"
    # nbdsh needs the python3 that Debian has libnbd for.
    os.environ["PATH"] = "/usr/bin:" + os.environ["PATH"] + ":/usr/sbin:/sbin"
    for tool in ("nbdkit", "nbdsh", "fio"):
        if shutil.which(tool) is None:
            print(f"there is no {tool}: ci/setup.sh nbd")
            return 77
    good = False
    with tempfile.TemporaryDirectory(prefix="remora-nbd-warm.", dir="/tmp") as folder:
        fixture = warm_faults.Fixture(options, folder)
        try:
            test(fixture, options)
            good = warm_faults.stopped(fixture)
        except AssertionError as error:
            print(f"not ok - {error}")
        finally:
            fixture.close()
    print("ok - nbdkit over warm restarts" if good else "not ok - nbdkit over warm restarts")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
