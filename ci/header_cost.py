#!/usr/bin/env python3
"""Which headers cost the most time to compile.

usage: ci/header_cost.py [--build TREE] [--top N] [-j N] [FOLDER...]

Parses every source of the product with clang-14 (-ftime-trace, no code is generated) as TREE's compile
commands say, and prints a table: for each header the processor time of its own lines and of all that
it includes, summed over the units that include it. A header that another one of the table includes
counts in both, so the rows do not add up.

TREE (default build/tidy) is a configured tree without unity builds, as the preset `tidy` makes it;
FOLDERs default to verbs, config, metrics, engine and apps.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["verbs", "config", "metrics", "engine", "apps"]


def clang_command(entry, trace_object):
    """The entry's command with clang-14 for the compiler, parsing only, and a time trace."""
    words = shlex.split(entry["command"])
    while words and not re.search(r"(\+\+|cc)(-\d+)?$", words[0]):
        words.pop(0)  # what stands before the compiler: ccache and its environment
    kept, skip = [], False
    for word in words[1:]:
        if skip:
            skip = False
        elif word == "-o":
            skip = True
        elif word.startswith(("-O", "-W", "-fno-tree", "-fpch", "-Winvalid-pch")):
            continue
        else:
            kept.append(word)
    return ["clang++-14", "-w", "-O0", "-ftime-trace", "-ftime-trace-granularity=500", *kept,
            "-o", str(trace_object)]


def header_times(entry, folder, number):
    """{header: seconds} of one unit, with the unit's own time under None."""
    trace_object = folder / f"{number}.o"
    run = subprocess.run(clang_command(entry, trace_object), cwd=entry["directory"],
                         capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"header_cost: clang++-14 failed on {entry['file']}:\n{run.stderr[-2000:]}")
    events = json.loads(trace_object.with_suffix(".json").read_text())["traceEvents"]
    trace_object.unlink()
    trace_object.with_suffix(".json").unlink()
    times = {}
    for event in events:
        if event["name"] == "Source":
            # A header that includes itself through others is counted once: the outermost is longest.
            path = os.path.realpath(os.path.join(entry["directory"], event["args"]["detail"]))
            times[path] = max(times.get(path, 0), event["dur"] / 1e6)
        elif event["name"] == "Total Frontend":
            times[None] = event["dur"] / 1e6
    return times


def short_name(path):
    """The header as an #include names it, near enough to be recognised."""
    for part in ("/include/c++/12/", "/engine/src/", "/build/"):
        if part in path:
            return path.split(part, 1)[1]
    return re.sub(r"^/usr/(lib/llvm-14/lib/clang/[^/]+/)?include/(x86_64-linux-gnu/)?|.*/include/", "",
                  path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=str(ROOT / "build" / "tidy"))
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    arguments = parser.parse_args()

    commands = pathlib.Path(arguments.build) / "compile_commands.json"
    if not commands.is_file():
        sys.exit(f"header_cost: no {commands}: run cmake --preset tidy && "
                 "cmake --build --preset tidy --target remora_control_protocol first")
    wanted = tuple(str(ROOT / folder) + "/" for folder in arguments.folders)
    entries = [entry for entry in json.loads(commands.read_text())
               if entry["file"].startswith(wanted)]
    if not entries:
        sys.exit(f"header_cost: {commands} has no source below {', '.join(arguments.folders)}")

    total, headers = 0.0, collections.Counter()
    units = collections.Counter()
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(lambda item: header_times(item[1], pathlib.Path(folder), item[0]),
                           enumerate(entries))
        for times in results:
            total += times.pop(None, 0)
            for path, seconds in times.items():
                headers[path] += seconds
                units[path] += 1

    print(f"{len(entries)} units, {total:.0f} s of parsing\n")
    print("| header | units | seconds | of all |\n|---|---|---|---|")
    for path, seconds in headers.most_common(arguments.top):
        print(f"| `{short_name(path)}` | {units[path]} | {seconds:.1f} | {100 * seconds / total:.0f} % |")


if __name__ == "__main__":
    main()
