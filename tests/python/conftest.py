"""A server for the tests, and what they connect by.

Environment: REMORA_BIN (folder of remora-server), REMORA_SOURCE (the project), REMORA_BUILD (its build
tree), TRANSPORT (shm, the default, tcp or rdma), REMORA_VM_ADDRESS (address of the RDMA device),
REMORA_REQUIRE_DEVICE=1 (no skipping), REMORA_POOL_MIB (the pool of the server; default 128).
"""

import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

TRANSPORT = os.environ.get("TRANSPORT", "shm")
HOST = os.environ.get("REMORA_VM_ADDRESS", "") if TRANSPORT == "rdma" else "127.0.0.1"
WAIT_S = 60

#: For tests that pause the server in order to delay a read.
reads_need_the_server = pytest.mark.skipif(
    TRANSPORT != "tcp", reason="only over tcp the server's process has a part in a read")

CONFIGURATION = """\
listen: {{address: "{host}", port: {port}}}
transports: {{rdma: {rdma}, shm: {shm}, tcp: {tcp}}}
pool: {{size: {pool}MiB, piece: 4MiB, huge_pages: never}}
{access}
"""


def pytest_sessionstart(session):
    if HOST:
        return
    if os.environ.get("REMORA_REQUIRE_DEVICE") == "1":
        pytest.exit("no RDMA device: REMORA_VM_ADDRESS is not set", returncode=1)
    pytest.exit("no RDMA device: run it by ci/vm/run.sh", returncode=77)


class Server:
    """remora-server in a process of its own."""

    def __init__(self, folder, access="auth: none"):
        self.folder = pathlib.Path(folder)
        self.access = access
        self.port = 0
        self.start()

    def start(self):
        """Again on the same port, where it was started before."""
        wanted = {name: "required" if name == TRANSPORT else "off" for name in ("rdma", "shm", "tcp")}
        if TRANSPORT == "shm":
            wanted["tcp"] = "required"  # for clients that ask for it
        configuration = self.folder / "server.yaml"
        configuration.write_text(CONFIGURATION.format(
            host=HOST, port=self.port, access=self.access, pool=os.environ.get("REMORA_POOL_MIB", "128"), **wanted))
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        self.log = self.folder / "server.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [os.environ["REMORA_BIN"] + "/remora-server", "--config", str(configuration),
                 "--port-file", str(port_file)], stdout=log, stderr=log)
        until = time.monotonic() + WAIT_S
        while not (port_file.exists() and port_file.read_text().strip()):
            if self.process.poll() is not None or time.monotonic() > until:
                pytest.exit(f"the server did not start:\n{self.log.read_text()}", returncode=1)
            time.sleep(0.02)
        self.port = int(port_file.read_text())

    @property
    def uri(self):
        return f"remora://{HOST}:{self.port}?transport={TRANSPORT}"

    def pause(self):
        """Returns when none of its threads runs any more, which kill() does not wait for."""
        self.process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + WAIT_S
        while not all(self._is_stopped(task)
                      for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()):
            assert time.monotonic() < until, "the server runs on after SIGSTOP"
            time.sleep(0.01)

    @staticmethod
    def _is_stopped(task):
        return (task / "stat").read_text().rpartition(")")[2].split()[0] in "Tt"

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.go_on()
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session", autouse=True)
def runtime():
    """A private folder; below /tmp, since the path of a socket has at most 107 bytes."""
    folder = tempfile.mkdtemp(prefix="remora-python.", dir="/tmp")
    os.mkdir(folder + "/run", 0o700)
    os.environ["REMORA_RUNTIME_DIR"] = folder + "/run"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(runtime):
    """One for all tests, which leave it running."""
    made = Server(runtime)
    yield made
    made.stop()


@pytest.fixture
def own_server(runtime):
    """One that the test may pause, stop and start."""
    folder = tempfile.mkdtemp(dir=runtime)
    made = Server(folder)
    yield made
    made.stop()


@pytest.fixture
def client(server):
    import remora

    with remora.connect(server.uri) as made:
        yield made


COUNT = itertools.count()


def create(client, name, size=1 << 20, **options):
    """A region of a name that begins so, which goes with the session of the test."""
    import remora

    name = f"{name}-{os.getpid()}-{next(COUNT)}"
    client.create_region(name, size, shm=TRANSPORT == "shm", lifetime=remora.Lifetime.SESSION,
                         **options)
    return client.open_region(name)


@pytest.fixture
def region(client):
    return create(client, "tested")


class Child:
    """A Python program with the package, which the test talks to line by line."""

    def __init__(self, uri, program, *arguments):
        program = "import sys, remora\nuri = sys.argv[1]\n" + textwrap.dedent(program)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, uri, *arguments], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout, self.stderr = (self.process.stdin, self.process.stdout,
                                                self.process.stderr)

    def line(self):
        """Its next line. Byte by byte: communicate() would not see what a buffer had read ahead."""
        text = b""
        while not text.endswith(b"\n") and (byte := os.read(self.stdout.fileno(), 1)):
            text += byte
        return text.decode().strip()

    def say(self, line=""):
        self.stdin.write(line + "\n")
        self.stdin.flush()

    def end(self):
        """Its exit status, and what it printed to standard output and standard error."""
        try:
            out, err = self.process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate()
            err += "\nthe program did not end"
        return self.process.returncode, out, err


@pytest.fixture
def child():
    """Starts children; those that are left are ended with the test."""
    started = []

    def start(*arguments):
        started.append(Child(*arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        for pipe in (each.stdin, each.stdout, each.stderr):
            pipe.close()
