#!/usr/bin/env python3
"""What a run of ci/test.sh has spent: a table of its stages, and the twenty slowest tests.

usage: ci/times.py --logs FOLDER STAGE=SECONDS,PASSED,FAILED,SKIPPED...

Reads FOLDER/STAGE.log, where a line `  spent: build|boot|run SECONDS` says what a part of the stage took
and `  took: SECONDS NAME` what a test did, and keeps all of it in FOLDER/times.json:

  {"stages": {NAME: {"seconds": S, "build": S, "boot": S, "run": S, "passed": N, "failed": N,
                     "skipped": N}},
   "tests": [{"stage": NAME, "name": NAME, "seconds": S}, ...]}        slowest first

`run` is what is left of a stage's seconds when its build and the boots of its guests are taken off.
"""

import argparse
import json
import pathlib
import re
import sys

SLOWEST = 20


def read_log(path):
    """({kind: seconds}, [(seconds, test)]) of one stage's log."""
    spent, tests = {}, []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return spent, tests
    for line in lines:
        line = re.sub(r"^\[\d\] ", "", line)  # of two guests each line begins with the guest's number
        if found := re.match(r"  spent: (\S+) ([\d.]+)$", line):
            spent[found[1]] = spent.get(found[1], 0) + float(found[2])
        elif found := re.match(r"  took: ([\d.]+) (.*)", line):
            tests.append((float(found[1]), found[2]))
    return spent, tests


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=pathlib.Path, required=True)
    parser.add_argument("stages", nargs="+", metavar="STAGE=SECONDS,PASSED,FAILED,SKIPPED")
    arguments = parser.parse_args()

    stages, tests = {}, []
    for text in arguments.stages:
        name, _, numbers = text.partition("=")
        seconds, passed, failed, skipped = (int(number) for number in numbers.split(","))
        spent, of_stage = read_log(arguments.logs / f"{name}.log")
        build, boot = spent.get("build", 0), spent.get("boot", 0)
        stages[name] = {"seconds": seconds, "build": round(build, 1), "boot": round(boot, 1),
                        "run": round(max(0, seconds - build - boot), 1),
                        "passed": passed, "failed": failed, "skipped": skipped}
        tests += [{"stage": name, "name": test, "seconds": took} for took, test in of_stage]
    tests.sort(key=lambda test: -test["seconds"])
    (arguments.logs / "times.json").write_text(
        json.dumps({"stages": stages, "tests": tests}, indent=1) + "\n", encoding="utf-8")

    columns = ("passed", "failed", "skipped", "build", "boot", "run", "seconds")
    print(f"{'stage':<11}" + "".join(f"{column:>9}" for column in columns))
    for name, stage in stages.items():
        print(f"{name:<11}" + "".join(f"{stage[column]:>9.0f}" for column in columns))
    if tests:
        print(f"\nthe slowest tests, of {len(tests)}:")
    for test in tests[:SLOWEST]:
        print(f"  {test['seconds']:7.1f} s  {test['stage']}: {test['name']}")
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
