#!/usr/bin/env python3
"""Runs the command lines of the project's documents, so that what they tell the reader to type works.

usage: ci/check_commands.py [--build TREE] [--where PLACE] [--list] [FILE.md...]
       ci/check_commands.py --self-test

Without FILE: every *.md that git knows. Each block of shell commands (```sh) has one of these marks on
the line above it:

    <!-- run: PLACE -->              runs there and must end with status 0
    <!-- run: PLACE, stays -->       starts a program that stays: runs until the file's last block has ended
    <!-- run: PLACE, server -->      beside a server with config/examples/quickstart.yaml, started for the file
    <!-- run by STAGE: installs -->  that stage of ci/test.sh runs the block's scripts, which is checked
    <!-- run by FILE: each change --> this script runs each line of the block, which is checked

| PLACE | runs |
|---|---|
| native | on this machine |
| guest | in the guest of ci/vm, which has an RDMA device; ci/guest_suites.sh calls this program there |
| a stage of ci/test.sh | what takes minutes, or needs what only that stage has, which calls `--where STAGE` |

There is no mark for a block that never runs: write such a command as a part of a sentence. A shell block
without a mark is an error, and so is a block that does not name its language (```text).

native, guest: the blocks of one file run one after the other in one scratch folder, in which the project's
folders stand as links and `build/dev` is TREE (default: build/dev). Where the kernel allows it, a file has
a network namespace of its own, so that ports which a document names are free, and runs beside others; what
builds TREE or lists its tests waits for its turn. In a guest, `ci/vm/run.sh OPTION... -- COMMAND` runs COMMAND in
that same guest.

A stage: they run in the project's own folder, with the environment of the stage.

PATH begins with the folders of `remora`, `remora-server` and ci/; where there is no `sudo`, root has one that
runs its command. Each block has a time limit, that of a stage is the stage's own. What a block has left
running is ended by the id of its process group after the file's last block.
"""

import argparse
import concurrent.futures
import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

import checks

ROOT = checks.ROOT
LIMIT_SECONDS = 300  # against a block that hangs: a busy machine is no fault of the document
STAGE_LIMIT_SECONDS = 18000  # the longest limit of a stage
SCRATCH = ("native", "guest")  # places whose blocks run in a scratch folder
SERVER = "exec remora-server --config config/examples/quickstart.yaml\n"
SHELL = ("sh", "bash", "shell", "console")
MARK = re.compile(r"<!-- (?:run: (?P<where>[a-z][a-z-]*)(?:, (?P<how>stays|server))?"
                  r"|run by (?:(?P<stage>[a-z][a-z-]*)|(?P<script>[\w/.-]+)): [^<>]+) -->")
EVERY_STAGE = ("ci/test.sh", "ci/stages.sh", "ci/check_commands.py")  # these name each of them
SCRIPT = r"\b(?:ci|tests)/[\w/.-]+\.(?:sh|py)\b"
# Instead of ci/vm/run.sh where a guest is there.
IN_GUEST = """\
#!/bin/sh
while [ "$1" != -- ]; do
  if [ "$1" = --guests ]; then echo "this is one guest" >&2; exit 125; fi
  shift
done
shift
exec "$@"
"""
SUDO = """\
#!/bin/sh
exec env "$@"
"""


class Block:
    def __init__(self, line, text, where, how, other):
        self.line, self.text, self.where, self.other = line, text, where, other
        self.stays, self.server = how == "stays", how == "server"


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def stage_function(stage):
    """The function of a stage of ci/test.sh and those that it calls; "" without it."""
    functions = dict(re.findall(r"^(\w+)\(\) (\{ .*? \}$|\{$.*?^\}$)", read("ci/stages.sh"), re.M | re.S))
    said, todo = [], ["stage_" + stage.replace("-", "_")]
    for name in todo:
        body = functions.get(name, "")
        said.append(body)
        todo += [other for other in functions if re.search(rf"\b{other}\b", body) and other not in todo]
    return "\n".join(said).strip()


def scripts_of(text, folder=""):
    """The scripts that a text names; `$here/NAME` is in the folder of the script whose text it is."""
    found = re.findall(SCRIPT, text) + [os.path.join(folder, name)
                                        for name in re.findall(r"\$here/([\w.-]+\.(?:sh|py))\b", text) if folder]
    return [name for name in sorted(set(found)) if os.path.exists(os.path.join(ROOT, name))]


def stage_text(stage):
    """What a stage says, and the scripts that it names."""
    said = stage_function(stage)
    return "\n".join([said] + [read(name) for name in scripts_of(said)]).strip()


def not_in_stage(stage, text):
    """What is wrong with the claim that this stage runs the scripts of a block; or None."""
    said = stage_text(stage)
    if not said:
        return f"ci/test.sh has no stage {stage}"
    for script in re.findall(SCRIPT, "\n".join(lines_of(text))):
        if "/" + os.path.basename(script) not in said:
            return f"stage {stage} does not run {script}"
    return None


def not_in_script(name, text):
    """What is wrong with the claim that this script runs each line of a block; or None."""
    if not os.path.exists(os.path.join(ROOT, name)):
        return f"there is no script {name}"
    said = re.sub(r'["\']', "", read(name))
    missing = [line for line in lines_of(text) if line not in said]
    return f"{name} does not run `{missing[0]}`" if missing else None


def lines_of(text):
    """The command lines of a block, without comments."""
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.split("\n")]
    return [line for line in lines if line]


def not_called(where):
    """What is wrong with a stage as the place where blocks run: it must call this program. None: nothing."""
    if where in SCRATCH:
        return None
    said = stage_function(where)
    if not said:
        return f"there is no place {where}: native, guest, or a stage of ci/test.sh"
    texts, todo = [said], scripts_of(said)
    for name in todo:
        if name in EVERY_STAGE:
            continue
        texts.append(read(name))
        todo += [other for other in scripts_of(texts[-1], os.path.dirname(name)) if other not in todo]
    if not any(re.search(rf"check_commands\.py.*--where {where}(?![\w-])", text) for text in texts):
        return f"stage {where} does not call ci/check_commands.py --where {where}"
    return None


def blocks_of(text):
    """The shell blocks of a document, and what is wrong with its marks as (line, message)."""
    lines, found, faults, at = text.split("\n"), [], [], 0
    while at < len(lines):
        line = lines[at].strip()
        mark = MARK.fullmatch(line)
        if not line.startswith("```"):
            if mark and not lines[at + 1].strip().startswith(tuple("```" + name for name in SHELL)):
                faults.append((at + 1, "this mark stands above no block of shell commands"))
            elif re.match(r"<!-- (not )?runs?\b", line) and not mark:
                faults.append((at + 1, "this mark is not one that is known: run: PLACE, or run by STAGE: REASON"))
            at += 1
            continue
        end = next((i for i in range(at + 1, len(lines)) if lines[i].strip() == "```"), None)
        if end is None:
            faults.append((at + 1, "this block is not closed"))
            break
        language = line[3:].strip()
        if not language:
            faults.append((at + 1, "this block does not name its language (```sh, ```text, ...)"))
        elif language in SHELL:
            above = MARK.fullmatch(lines[at - 1].strip()) if at else None
            if above is None:
                faults.append((at + 1, "this block of shell commands has no mark `run`"))
            else:
                block, other = "\n".join(lines[at + 1:end]) + "\n", above["stage"] or above["script"]
                if above["where"]:
                    fault = not_called(above["where"])
                else:
                    fault = (not_in_stage if above["stage"] else not_in_script)(other, block)
                if fault:
                    faults.append((at + 1, fault))
                found.append(Block(at + 1, block, above["where"], above["how"], f"run by {other}"))
        at = end + 1
    return found, faults


# --- running them ---------------------------------------------------------------------------------

def loopback_up():
    """Switches on `lo`, which is down in a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh", b"lo", 0x41)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def listening(pid):
    """How many TCP sockets listen in the network namespace of a process."""
    count = 0
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as table:
                count += sum(line.split()[3] == "0A" for line in list(table)[1:])
        except OSError:
            pass
    return count


def end_group(group):
    """Ends a process group: SIGTERM, and SIGKILL after ten seconds."""
    for name, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(group, name)
        except ProcessLookupError:
            return
        until = time.monotonic() + patience
        while time.monotonic() < until:
            try:
                while os.waitpid(-group, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                return
            time.sleep(0.05)


class Session:
    """The folder in which the blocks of one file run, and the programs that they have started."""

    def __init__(self, tree, limit, where="native"):
        self.tree, self.limit, self.started, self.staying, self.server = tree, limit, [], [], False
        self.beside = where == "native"  # elsewhere one document runs after the other, and TREE may not be there
        self.own = tempfile.mkdtemp(prefix="remora-doc.")
        self.folder = self.own if where in SCRATCH else ROOT
        self.environment = dict(os.environ)
        path = [os.path.join(tree, "apps"), os.path.join(ROOT, "ci"), os.environ["PATH"], "/usr/sbin", "/sbin"]
        if where in SCRATCH:
            self.make_scratch(tree, where)
        if os.geteuid() == 0 and not shutil.which("sudo"):
            self.program("root/sudo", SUDO)
            path.insert(0, os.path.join(self.own, "root"))
        self.environment["PATH"] = ":".join(path)

    def make_scratch(self, tree, where):
        """The project's folders as links, and an environment without settings of Remora."""
        for name in os.listdir(ROOT):
            if not name.startswith(".") and name != "build":
                os.symlink(os.path.join(ROOT, name), os.path.join(self.folder, name))
        if where == "guest":
            self.in_guest()
        os.mkdir(os.path.join(self.folder, "build"))
        os.symlink(tree, os.path.join(self.folder, "build", "dev"))
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith("REMORA_") or name.startswith("REMORA_VM_")}
        runtime = os.path.join(self.folder, "runtime")
        os.mkdir(runtime, 0o700)
        self.environment["XDG_RUNTIME_DIR"] = runtime

    def program(self, name, text):
        """A script in the folder of its own."""
        checks.plant(self.own, {name: text})
        os.chmod(os.path.join(self.own, name), 0o755)

    def in_guest(self):
        """`ci/vm/run.sh` of the scratch folder runs its command here."""
        for name in ("ci", "ci/vm"):
            folder = os.path.join(self.folder, name)
            os.unlink(folder)
            os.mkdir(folder)
            for entry in os.listdir(os.path.join(ROOT, name)):
                if os.path.join(name, entry) != "ci/vm/run.sh":
                    os.symlink(os.path.join(ROOT, name, entry), os.path.join(folder, entry))
        self.program("ci/vm/run.sh", IN_GUEST)

    @contextlib.contextmanager
    def turn(self, block):
        """Two programs must not build, install or list the tests of a tree at the same time."""
        if not (self.beside and re.search(r"(cmake|ctest)\b", block.text)):
            yield
            return
        with open(os.path.join(self.tree, ".check_commands.lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def run(self, block):
        """What is wrong, or None; and the output. Before it, the server that the block wants."""
        if block.server and not self.server:
            self.server = True
            fault, output = self.run(Block(block.line, SERVER, block.where, "stays", None))
            if fault:
                return "its server: " + fault, output
        log = os.path.join(self.own, f"output-{block.line}{'-stays' if block.stays else ''}")
        before = listening("self")
        with open(log, "w", encoding="utf-8") as out:
            process = subprocess.Popen(["bash", "-euo", "pipefail", "-c", block.text], cwd=self.folder,
                                       env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        self.started.append(process.pid)
        until = time.monotonic() + self.limit
        while True:
            status = process.poll()
            if block.stays and status is None and listening("self") > before:
                self.staying.append((block, process))
                return None, ""
            if status is not None or time.monotonic() > until:
                break
            time.sleep(0.05)
        with open(log, encoding="utf-8", errors="replace") as text:
            output = text.read()
        if status is None:
            end_group(process.pid)
            return f"has not {'begun to listen' if block.stays else 'ended'} after {self.limit} s", output
        if block.stays:
            return f"was to stay, and ended with status {status}", output
        return (f"exit status {status}" if status else None), output

    def end(self):
        """Ends all that runs still, and says which program that was to stay is there no more."""
        gone = [(block, process.poll()) for block, process in self.staying if process.poll() is not None]
        for group in reversed(self.started):
            end_group(group)
        shutil.rmtree(self.own, ignore_errors=True)
        return gone


def run_file(name, blocks, tree, where):
    """Runs the blocks of one document, and prints a line for each. True: all are well."""
    limit = LIMIT_SECONDS if where in SCRATCH else STAGE_LIMIT_SECONDS
    session, well = Session(tree, limit, where), True
    try:
        for block in blocks:
            began = time.monotonic()
            with session.turn(block):
                fault, output = session.run(block)
            print(f"  took: {time.monotonic() - began:.3f} commands: {name}:{block.line}")
            if fault is None:
                print(f"ok - commands: {name}:{block.line}", flush=True)
                continue
            well = False
            print(f"not ok - commands: {name}:{block.line} # {fault}")
            for line in (block.text.rstrip("\n") + "\n--- its output\n" + output).split("\n")[-60:]:
                print(f"    {line}")
    finally:
        for block, status in session.end():
            well = False
            print(f"not ok - commands: {name}:{block.line} # ended before its time with status {status}")
    return well


def namespace():
    """What gives a program a network namespace of its own; nothing where the kernel refuses."""
    for words in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        try:
            if not subprocess.run(words + ["true"], capture_output=True, check=False).returncode:
                return words
        except OSError:
            break
    return []


def check(files, options):
    wrong, alone, tree = False, namespace() if options.where == "native" else [], os.path.abspath(options.build)
    wanted = []
    for name in files:
        with open(os.path.join(ROOT, name), encoding="utf-8") as document:
            blocks, faults = blocks_of(document.read())
        for line, message in faults:
            wrong = True
            print(f"not ok - commands: {name}:{line} # {message}")
        for block in blocks if options.list else []:
            print(f"{name}:{block.line}: " + (block.where or block.other))
        if not options.list and any(block.where == options.where for block in blocks):
            wanted.append(name)

    def run(name):
        """By itself a document prints as it goes; beside others its lines stay together."""
        words = alone + [sys.executable, os.path.abspath(__file__), "--inside", "namespace" if alone else "host",
                         "--build", tree, "--where", options.where, name]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if alone else {}
        return subprocess.run(words, check=False, **output)

    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) if alone else 1) as pool:
        for done in pool.map(run, wanted):
            sys.stdout.write((done.stdout or b"").decode(errors="replace"))
            sys.stdout.flush()
            wrong |= bool(done.returncode)
    return 1 if wrong else 0


def inside(name, options):
    """Runs the blocks of one document; by check(), where possible in a namespace of its own."""
    # Blocks have process groups of their own, which a signal to this one's does not reach.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.inside == "namespace":
        loopback_up()
    with open(os.path.join(ROOT, name), encoding="utf-8") as document:
        blocks, _ = blocks_of(document.read())
    wanted = [block for block in blocks if block.where == options.where]
    return 0 if run_file(name, wanted, os.path.abspath(options.build), options.where) else 1


# --- the self-test --------------------------------------------------------------------------------

def seeded(text, limit=20, where="native"):
    """Lines that are printed of a document with this text, for comparison."""
    blocks, faults = blocks_of(text)
    said = [f"{line}: {message}" for line, message in faults]
    session = Session(os.path.join(ROOT, "build", "dev"), limit, where)
    for block in blocks:
        if block.where:
            fault, _ = session.run(block)
            said.append(f"{block.line}: {fault}")
    said += [f"{block.line}: gone" for block, _ in session.end()]
    assert not os.path.exists(session.own), session.own
    return said


def self_test():
    unknown = "this mark is not one that is known: run: PLACE, or run by STAGE: REASON"
    unmarked = "this block of shell commands has no mark `run`"
    native, stays = "<!-- run: native -->\n```sh\n", "<!-- run: native, stays -->\n```sh\n"
    listens = f"exec {sys.executable} -c '\nimport socket, time\nwith socket.create_server((\"127.0.0.1\", 0)):\n"
    kills = "kill -KILL $(cat pid)\nuntil grep -q ') Z' /proc/$(cat pid)/stat; do sleep 0.1; done"
    cases = [
        (native + "true\n```\n", ["2: None"]),
        (native + "false\ntrue\n```\n", ["2: exit status 1"]),
        (native + "false | cat\n```\n", ["2: exit status 1"]),
        (native + "remora-no-such-command\n```\n", ["2: exit status 127"]),
        (native + "touch here\n```\n" + native + "test -e here -a -e config/examples/server.yaml\n```\n",
         ["2: None", "6: None"]),
        (native + "sudo VARIABLE=1 sh -c 'test $VARIABLE = 1'\n```\n```yaml\na: b\n```\n", ["2: None"]),
        ("<!-- not run: needs root -->\n```sh\nfalse\n```\n", [f"1: {unknown}", f"2: {unmarked}"]),
        ("<!-- run: dev -->\n```sh\nfalse\n```\n",
         ["2: stage dev does not call ci/check_commands.py --where dev", "2: exit status 1"]),
        ("<!-- run: never -->\n```sh\ntrue\n```\n",
         ["2: there is no place never: native, guest, or a stage of ci/test.sh", "2: None"]),
        ("<!-- run: long -->\n```sh\ntrue\n```\n", ["2: None"]),
        ("<!-- run: package -->\n```sh\ntrue\n```\n", ["2: None"]),
        ("<!-- run by .ci/run: each change -->\n```sh\nci/test.sh --gate   # all\n```\n", []),
        ("<!-- run by .ci/run: each change -->\n```sh\nci/test.sh --full\n```\n",
         ["2: .ci/run does not run `ci/test.sh --full`"]),
        ("<!-- run by ci/never.sh: each change -->\n```sh\ntrue\n```\n", ["2: there is no script ci/never.sh"]),
        ("<!-- run by fresh: installs -->\n```sh\nci/quickstart.sh --rxe   # not ci/soak.sh\n```\n", []),
        ("<!-- run by fresh: installs -->\n```sh\nci/soak.sh\n```\n", ["2: stage fresh does not run ci/soak.sh"]),
        ("<!-- run by hosts: boots -->\n```sh\nci/vm/run.sh -- $PWD/tests/fault/two_guests_faults.sh\n```\n", []),
        ("<!-- run by never: installs -->\n```sh\ntrue\n```\n", ["2: ci/test.sh has no stage never"]),
        ("```sh\ntrue\n```\n", [f"1: {unmarked}"]),
        ("```\ntrue\n```\n", ["1: this block does not name its language (```sh, ```text, ...)"]),
        (native + "true\n", ["2: this block is not closed"]),
        ("<!-- run: native -->\ntext\n", ["1: this mark stands above no block of shell commands"]),
        ("<!-- run: native, gone -->\n```sh\ntrue\n```\n",
         [f"1: {unknown}", f"2: {unmarked}"]),
        ("<!-- not run: -->\n```sh\n```\n",
         [f"1: {unknown}", f"2: {unmarked}"]),
        (stays + "true\n```\n", ["2: was to stay, and ended with status 0"]),
        (stays + listens + "  time.sleep(600)'\n```\n" + native + "true\n```\n", ["2: None", "9: None"]),
        (stays + "echo $$ >pid\n" + listens + "  time.sleep(600)'\n```\n" + native + kills + "\n```\n",
         ["2: None", "10: None", "2: gone"]),
    ]
    for text, wanted in cases:
        assert seeded(text) == wanted, (text, seeded(text), wanted)
    assert seeded(native + "sleep 600\n```\n", limit=1) == ["2: has not ended after 1 s"]
    run = "ci/vm/run.sh --memory 4G -- test -d ci/docs\n"
    guest = f"<!-- run: guest -->\n```sh\n{run}ci/vm/run.sh --guests 2 -- true\n```\n"
    assert seeded(guest, where="guest") == ["2: exit status 125"]
    assert seeded(f"<!-- run: guest -->\n```sh\n{run}```\n", where="guest") == ["2: None"]
    # What a block leaves running has ended when the document has.
    with tempfile.TemporaryDirectory() as folder:
        left = os.path.join(folder, "left")
        assert seeded(native + f"sleep 600 &\necho $! >{left}\n```\n") == ["2: None"]
        with open(left, encoding="ascii") as pid:
            assert not os.path.exists(f"/proc/{pid.read().strip()}"), left
    print("ok - check_commands: self-test")
    return 0


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--build", default=os.path.join(ROOT, "build", "dev"))
    arguments.add_argument("--where", default="native", metavar="PLACE", help="native, guest, or a stage of ci/test.sh")
    arguments.add_argument("--list", action="store_true", help="print each block's mark, run nothing")
    arguments.add_argument("--self-test", action="store_true")
    arguments.add_argument("--inside", choices=("namespace", "host"), help=argparse.SUPPRESS)
    arguments.add_argument("files", nargs="*")
    options = arguments.parse_args()
    if options.self_test:
        return self_test()
    if options.inside:
        return inside(options.files[0], options)
    files = [os.path.relpath(os.path.abspath(name), ROOT) for name in options.files] or checks.tracked(suffix=".md")
    return check(files, options)


if __name__ == "__main__":
    sys.exit(main())
