#!/usr/bin/env python3
"""Runs clang-tidy-14 over our own sources, and remembers what was clean.

A translation unit is checked again only when its text, a header it includes, its compile command,
.clang-tidy or clang-tidy itself has changed. Generated sources are left out, since git does not
know them. The memory is a file for each clean unit under build/.tidy-cache; delete it freely.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time

ROOMS = "verbs|engine|config|metrics|apps|tests"


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Contents:
    """Digests of files: ours by content, the system's by size and time."""

    def __init__(self, root):
        self.root, self.known, self.lock = root + os.sep, {}, threading.Lock()

    def of(self, path):
        with self.lock:
            if path in self.known:
                return self.known[path]
        try:
            if path.startswith(self.root):
                with open(path, "rb") as file:
                    value = digest(file.read())
            else:
                status = os.stat(path)
                value = f"{status.st_size}:{status.st_mtime_ns}"
        except OSError:
            value = "absent"
        with self.lock:
            self.known[path] = value
        return value


def dependencies(entry):
    """Every file the unit reads, as the compiler lists them."""
    command, skip = [], False
    for word in shlex.split(entry["command"]):
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT", "-MQ"):
            skip = True
        elif word not in ("-c", "-MD", "-MMD"):
            command.append(word)
    listed = subprocess.run(command + ["-M"], cwd=entry["directory"], capture_output=True, text=True)
    if listed.returncode != 0:
        return None
    words = listed.stdout.replace("\\\n", " ").split(":", 1)[1].split()
    return sorted({os.path.normpath(os.path.join(entry["directory"], word)) for word in words})


class Tidy:
    def __init__(self, options, root):
        self.options, self.root = options, root
        self.contents = Contents(root)
        version = subprocess.run([options.clang_tidy, "--version"], check=True, capture_output=True)
        with open(os.path.join(root, ".clang-tidy"), "rb") as file:
            self.base = digest(version.stdout + file.read())
        os.makedirs(options.cache, exist_ok=True)

    def key(self, entry):
        return digest((self.base + entry["command"] + entry["file"]).encode())

    def is_clean(self, entry):
        try:
            with open(os.path.join(self.options.cache, self.key(entry)), encoding="utf-8") as file:
                seen = json.load(file)
        except (OSError, ValueError):
            return False
        return all(self.contents.of(path) == value for path, value in seen.items())

    def remember(self, entry):
        files = dependencies(entry)
        if files is None:
            return
        path = os.path.join(self.options.cache, self.key(entry))
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({name: self.contents.of(name) for name in files}, file)
        os.replace(path + ".new", path)

    def check(self, entry):
        """(clean, text, seconds, from memory)"""
        started = time.monotonic()
        if self.is_clean(entry):
            return True, "", 0.0, True
        ran = subprocess.run(
            [self.options.clang_tidy, "-p", self.options.build, "--quiet",
             f"--header-filter=^{re.escape(self.root)}/({ROOMS})/.*\\.h$", entry["file"]],
            capture_output=True, text=True)
        clean = ran.returncode == 0
        if clean:
            self.remember(entry)
        noise = re.compile(r"^\d+ warnings? (generated|treated)|^Suppressed|^Use -header-filter")
        errors = "\n".join(line for line in ran.stderr.splitlines() if not noise.match(line))
        return clean, (ran.stdout + errors).strip(), time.monotonic() - started, False


def our_units(root, build):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others",
                             "--exclude-standard"], check=True, capture_output=True)
    ours = {os.path.join(root, name) for name in listed.stdout.decode().split("\0")}
    units = {}
    for entry in entries:  # a source in two targets is checked once
        if entry["file"] in ours:
            units.setdefault(entry["file"], entry)
    # The largest first, so that the last seconds are not spent on one big file by one core.
    return sorted(units.values(), key=lambda entry: -os.path.getsize(entry["file"]))


def main():
    root = os.path.realpath(os.path.join(os.path.dirname(__file__), ".."))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.path.join(root, "build/tidy"),
                        help="build tree with compile_commands.json (default: build/tidy)")
    parser.add_argument("--cache", default=os.path.join(root, "build/.tidy-cache"))
    parser.add_argument("--clang-tidy", default="clang-tidy-14")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("paths", nargs="*", help="check only sources under these (default: all)")
    options = parser.parse_args()

    units = our_units(root, options.build)
    if options.paths:
        wanted = [os.path.realpath(path) for path in options.paths]
        units = [unit for unit in units
                 if any(unit["file"] == path or unit["file"].startswith(path + os.sep)
                        for path in wanted)]
    if not units:
        print("not ok - tidy: no sources in compile_commands.json")
        return 1
    tidy, failed, remembered = Tidy(options, root), 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(tidy.check, unit): unit for unit in units}
        for number, future in enumerate(concurrent.futures.as_completed(running), 1):
            clean, text, seconds, from_memory = future.result()
            name = os.path.relpath(running[future]["file"], root)
            remembered += from_memory
            failed += not clean
            if not clean:
                print(text)
            if not from_memory:
                print(f"[{number}/{len(units)}] {name}: "
                      f"{'clean' if clean else 'FINDINGS'} ({seconds:.1f} s)", flush=True)
    print(f"{'not ok' if failed else 'ok'} - tidy: {len(units)} units, {failed} with findings, "
          f"{remembered} unchanged since they were clean")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
