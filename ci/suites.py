#!/usr/bin/env python3
"""CTest's tests, with those cases of a GoogleTest suite together that may share a process.

usage: ci/suites.py FOLDER <LIST
       ci/suites.py --self-test

LIST is what `ctest --show-only=json-v1` prints. FOLDER/CTestTestfile.cmake then holds the same tests for
another ctest, in which up to CASES cases of a suite are one test, and so are up to SUITES whole suites with
the label `shared`. FOLDER/groups.json says which; a suite is S.*/P for GoogleTest:

  {NAME OF THE GROUP: {NAME OF A CASE OR SUITE FOR GOOGLETEST: ITS NAME FOR CTEST, ...}, ...}

Starting a program costs more than most cases do: with AddressSanitizer 0.15 s of processor, of which a
case of the conformance suite needs 0.03 s; in an emulator a process of that suite takes two seconds to start,
warm up and look at its device. A case with the label `alone` keeps a process of its own, and so does what is
no single case of GoogleTest. ci/ctest_report.py tells the verdict of each case.
"""

import json
import os
import pathlib
import re
import sys

import checks

CASES = 12
SUITES = 5
LONGEST_S = 600
# A limit ends what hangs; it says nothing of how fast a test is. Where a sanitizer slows all of them, the
# environment says how many times as long they may take.
TIMES = float(os.environ.get("REMORA_TIMEOUT_FACTOR", "1"))
# CTest begins with what costs most, so that nothing long begins last. A group costs as many as it has
# cases, and what the costliest of them says; a program of its own, such as a script, this:
PROGRAM_COST = 20
# What a group has of its own, or what says nothing of how a case is to be run.
OWN = {"TIMEOUT", "SKIP_REGULAR_EXPRESSION", "COST"}
TOGETHER = OWN | {"ENVIRONMENT", "LABELS", "WORKING_DIRECTORY"}


def properties_of(test):
    return {each["name"]: each["value"] for each in test.get("properties", [])}


def case_of(test):
    """The case that this test runs, by GoogleTest's name; None if it is not one alone."""
    command, properties = test.get("command", []), properties_of(test)
    if not set(properties) <= TOGETHER or "alone" in properties.get("LABELS", []):
        return None
    filters = [word[15:] for word in command if word.startswith("--gtest_filter=")]
    if len(filters) != 1 or not re.fullmatch(r"[\w/]+\.[\w/]+", filters[0]):
        return None
    return filters[0]


def suite_of(test):
    """The suite that this test runs, as GoogleTest's expression; None if it may not share a process."""
    properties = properties_of(test)
    if "shared" not in properties.get("LABELS", []) or not set(properties) <= TOGETHER | {"RUN_SERIAL"}:
        return None
    filters = [word[15:] for word in test.get("command", []) if word.startswith("--gtest_filter=")]
    return filters[0] if len(filters) == 1 and re.fullmatch(r"[\w/]+\.\*/\w+", filters[0]) else None


def group_key(test, case):
    """Cases with the same one may share a process: program, properties, suite and parameter. Whole suites: all
    but the suite."""
    suite, _, name = case.partition(".")
    parameter = name.partition("/")[2]
    if name.startswith("*/"):
        suite = suite.partition("/")[0] + "/*"
    rest = [word for word in test["command"] if not word.startswith("--gtest_filter=")]
    properties = {name: value for name, value in properties_of(test).items() if name not in OWN}
    return json.dumps([rest, properties, suite, parameter], sort_keys=True)


def quoted(value):
    """As one argument for CMake."""
    if isinstance(value, bool):
        value = "ON" if value else "OFF"
    if isinstance(value, list):
        value = ";".join(value)
    if isinstance(value, float):
        value = f"{value:g}"
    return f"[==[{value}]==]"


def test_lines(name, command, properties):
    if "TIMEOUT" in properties:
        properties = {**properties, "TIMEOUT": properties["TIMEOUT"] * TIMES}
    lines = [f"add_test({quoted(name)} {' '.join(quoted(word) for word in command)})"]
    if properties:
        pairs = " ".join(f"{each} {quoted(value)}" for each, value in properties.items())
        lines.append(f"set_tests_properties({quoted(name)} PROPERTIES {pairs})")
    return lines


def grouped(tests):
    """(lines of a CTestTestfile.cmake, groups) for what CTest has listed."""
    lines, groups, members = [], {}, {}
    for test in tests:
        case = case_of(test) or suite_of(test)
        if case is None:
            lines += test_lines(test["name"], test.get("command", ["there-is-no-program"]),
                                {"COST": PROGRAM_COST, **properties_of(test)})
        else:
            members.setdefault(group_key(test, case), []).append((case, test))
    for cases in members.values():
        whole = ".*/" in cases[0][0]
        parts = -(-len(cases) // (SUITES if whole else CASES))
        for part in range(parts):
            chosen = cases[part::parts]  # neighbours are alike: each part gets some of the slow ones
            if len(chosen) == 1:
                test = chosen[0][1]
                lines += test_lines(test["name"], test["command"], properties_of(test))
                continue
            first = chosen[0][1]
            suite, _, name = chosen[0][0].partition(".")
            if whole:
                suite = suite.partition("/")[0]
            group = "/".join([suite, *name.split("/")[1:]]) + (f" {part + 1}" if parts > 1 else "")
            while group in groups:
                group += "'"
            groups[group] = {case: test["name"] for case, test in chosen}
            command = ["--gtest_filter=" + ":".join(groups[group])
                       if word.startswith("--gtest_filter=") else word for word in first["command"]]
            properties = {each: value for each, value in properties_of(first).items()
                          if each != "SKIP_REGULAR_EXPRESSION"}
            properties["COST"] = len(chosen) + max(properties_of(test).get("COST", 0) for _, test in chosen)
            longest = sum(properties_of(test).get("TIMEOUT", LONGEST_S) for _, test in chosen)
            properties["TIMEOUT"] = longest if whole else min(LONGEST_S, longest)
            lines += test_lines(group, command, properties)
    return lines, groups


def self_test():
    def test(case, labels="native", program="/p", **more):
        labels = labels if isinstance(labels, list) else [labels]
        properties = {"LABELS": labels, "TIMEOUT": 120.0, "ENVIRONMENT": ["A=1", "B=2"],
                      "SKIP_REGULAR_EXPRESSION": ["x"], **more}
        return {"name": f"name of {case}",
                "command": [program, f"--gtest_filter={case}", "--gtest_also_run_disabled_tests"],
                "properties": [{"name": name, "value": value} for name, value in properties.items()]}

    failed = 0

    def check(what, tests, wanted):
        nonlocal failed
        lines, groups = grouped(tests)
        found = sorted(sorted(group) for group in groups.values())
        known = sum(line.startswith("add_test") for line in lines) - len(groups)
        good = found == wanted and known + sum(map(len, wanted)) == len(tests)
        failed += checks.verdict(good, f"suites: {what}", f"got {found}")

    check("cases of a suite share a process", [test("S.a"), test("S.b"), test("T.a")], [["S.a", "S.b"]])
    check("not with another parameter", [test("I/S.a/shm"), test("I/S.b/shm"), test("I/S.a/tcp")],
          [["I/S.a/shm", "I/S.b/shm"]])
    check("not of another program, or with another label",
          [test("S.a"), test("S.b", program="/q"), test("S.c", labels="gate")], [])
    check("not one that is to be alone", [test("S.a"), test("S.b"), test("S.c", labels="alone")],
          [["S.a", "S.b"]])
    check("not one with a property of its own", [test("S.a"), test("S.b", RUN_SERIAL=True)], [])
    check("with costs of their own", [test("S.a", COST=30), test("S.b")], [["S.a", "S.b"]])
    text = "\n".join(grouped([test("S.a", COST=30.0), test("S.b"), test("S.*")])[0])
    costs = re.findall(r"COST \[==\[(\d+)", text)
    failed += checks.verdict(costs == [str(PROGRAM_COST), "32"], "suites: long tests begin first", f"got {costs}")
    lines = test_lines("T", ["/p"], {"TIMEOUT": 20.0, "LABELS": ["a"]})
    failed += checks.verdict(f"TIMEOUT [==[{20 * TIMES:g}]==]" in lines[1], "suites: limits of time are multiplied", lines[1])
    check("not what is more than a case", [test("S.*"), test("S.*"), test("S.a:S.b")], [])
    shared = [test(f"I/S{number}.*/rdma", ["rxe", "shared"], RUN_SERIAL=True) for number in range(3)]
    check("whole suites share a process", shared + [test("I/T.*/rdma", RUN_SERIAL=True)],
          [["I/S0.*/rdma", "I/S1.*/rdma", "I/S2.*/rdma"]])
    check("not with another environment", shared[:1] + [test("I/U.*/rdma", ["rxe", "shared"], ENVIRONMENT=["A=2"])], [])
    lines = grouped(shared)[0]
    failed += checks.verdict(any("RUN_SERIAL" in line and "TIMEOUT [==[" + f"{360 * TIMES:g}" in line for line in lines)
                             and any("[==[I/rdma]==]" in line for line in lines), "suites: as long as all of them", lines)
    many = [test(f"S.c{number}") for number in range(CASES + 1)]
    check("many are several groups, and each is in one of them", many,
          sorted([sorted(f"S.c{n}" for n in range(0, CASES + 1, 2)),
                  sorted(f"S.c{n}" for n in range(1, CASES + 1, 2))]))
    return 1 if failed else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    lines, groups = grouped(json.load(sys.stdin)["tests"])
    (folder / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "groups.json").write_text(json.dumps(groups), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
