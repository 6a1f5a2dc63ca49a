#!/usr/bin/env python3
"""Compares the manual pages with the programs, and renders them.

usage: tests/apps/man_check.py --bin FOLDER       FOLDER has remora and remora-server
       tests/apps/man_check.py --self-test

Each command has a page and each page a command; the options, their values, the arguments of a SYNOPSIS and
the environment variables of a page are those that the program's parser knows. With scdoc, man and mandoc,
each page is rendered without a warning, those of the C API and of the plugin of nbdkit too. Prints `ok - NAME`
and `not ok - NAME`.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "apps" / "man"
OTHER_PAGES = ROOT / "engine" / "c" / "man"
PLUGIN_PAGES = ROOT / "apps" / "nbdkit"
VALUE = re.compile(r"[A-Z][A-Z0-9:=_-]*")


def parse_help(text):
    """What `--help` says: options {name: (value, required)}, arguments, subcommands, variables."""
    found = {"options": {}, "arguments": [], "subcommands": [], "variables": set()}
    part = None
    for line in text.split("\n"):
        if re.match(r"[A-Z]\w+:$", line):
            part = line[:-1]
            continue
        if not re.match(r"  \S", line):
            continue
        left = re.split(r"\s{2,}", line.strip())[0]
        words = left.split()
        if part == "Options":
            value = words[1] if len(words) > 1 and VALUE.fullmatch(words[1]) else ""
            value = "" if value == "REQUIRED" else re.sub(r":(UINT|INT|FLOAT)$", "", value)
            for name in words[0].split(","):
                found["options"][name] = (value, "REQUIRED" in words)
            found["variables"] |= set(re.findall(r"\(Env:(\w+)\)", left))
        elif part == "Positionals":
            names = [word for word in words if VALUE.fullmatch(word) and word != "REQUIRED"]
            found["arguments"].append(names[0] if names else words[0])
        elif part == "Subcommands":
            found["subcommands"].append(words[0])
    return found


def sections(page):
    """{heading: lines} of a page."""
    result, heading = {}, ""
    for line in page.split("\n"):
        if line.startswith("# "):
            heading = line[2:]
        result.setdefault(heading, []).append(line)
    return result


def options_of(lines):
    """{name: value} of a section OPTIONS."""
    found = {}
    for line in lines:
        if line.startswith("*-"):
            value = re.search(r"_([A-Z][^_]*)_$", line)
            for name in re.findall(r"\*(--?[\w-]+)\*", line):
                found[name] = value.group(1) if value else ""
    return found


def synopsis_of(line):
    """(options {name: value}, arguments, whether other options are summed up as OPTIONS)."""
    options = {}
    pattern = re.compile(r"\*(--[\w-]+)\*(?: _([A-Z][^_]*)_)?")
    for name, value in pattern.findall(line):
        options[name] = value
    rest = pattern.sub("", line)
    arguments = re.findall(r"_([A-Z][^_]*)_", rest)
    return options, [name for name in arguments if name != "OPTIONS"], "OPTIONS" in arguments


def compare(page, commands, own=()):
    """Faults of a page. `commands`: {"remora get": parse_help(...)}; `own`: options of the program."""
    faults, parts, known = [], sections(page), {}
    for help_text in commands.values():
        known |= {name: value for name, (value, _) in help_text["options"].items()
                  if name in own or name not in ("-h", "--help")}
    told = options_of(parts.get("OPTIONS", []))
    for name in sorted(known.keys() - told.keys()):
        faults.append(f"OPTIONS lacks {name}")
    for name in sorted(told.keys() - known.keys()):
        faults.append(f"the program has no option {name}")
    for name in sorted(told.keys() & known.keys()):
        if told[name] != known[name]:
            faults.append(f"the value of {name} is '{told[name]}', in the program '{known[name]}'")
    calls = tuple(f"*{call}*" for call in commands)
    faults += [f"SYNOPSIS: the program has no such command: {line}" for line in parts.get("SYNOPSIS", [])
               if line.startswith("*") and not line.startswith(calls)]
    for call, help_text in commands.items():
        lines = [line for line in parts.get("SYNOPSIS", []) if line.startswith(f"*{call}*")]
        if len(lines) != 1:
            faults.append(f"SYNOPSIS has {len(lines)} lines for {call}")
            continue
        options, arguments, summed_up = synopsis_of(lines[0])
        if not help_text["subcommands"] and arguments != help_text["arguments"]:
            faults.append(f"SYNOPSIS: {call} has {arguments}, the program {help_text['arguments']}")
        mine = {name: value for name, (value, _) in help_text["options"].items() if name.startswith("--")}
        faults += [f"SYNOPSIS: {call} has no {name}" for name in options if name not in mine]
        for name, (value, required) in help_text["options"].items():
            if name in ("--help", "--version") or not name.startswith("--"):
                continue
            if name not in options and (required or not summed_up):
                faults.append(f"SYNOPSIS: {call} lacks {name}")
            elif name in options and options[name] != value:
                faults.append(f"SYNOPSIS: {name} has '{options[name]}', the program '{value}'")
        environment = "\n".join(parts.get("ENVIRONMENT", []))
        faults += [f"ENVIRONMENT lacks {name}" for name in sorted(help_text["variables"])
                   if f"*{name}*" not in environment]
    return faults


def help_of(program, *words):
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True, timeout=60)
    return parse_help(done.stdout)


def references(pages):
    """Faults: pages that are named and do not exist."""
    there = {name for name in pages} | {path.name for path in OTHER_PAGES.glob("*.3")}
    faults = []
    for name, text in pages.items():
        for page, section in re.findall(r"\*((?:lib)?remora[\w.-]*)\*\((\d)\)", text):
            if f"{page}.{section}" not in there:
                faults.append(f"{name} names {page}({section}), which does not exist")
    return faults


def built(pages):
    """Faults: pages that CMakeLists.txt does not build, and the other way round."""
    text = (PAGES / "CMakeLists.txt").read_text(encoding="utf-8")
    listed = set(re.search(r"set\(pages\s([^)]*)\)", text).group(1).split())
    return [f"{name} stands in only one of the list and the folder" for name in sorted(listed ^ set(pages))]


def compare_all(folder):
    remora, pages = os.path.join(folder, "remora"), {}
    for path in sorted(PAGES.glob("*.scd")):
        pages[path.name.removesuffix(".scd")] = path.read_text(encoding="utf-8")
    verdicts, wanted = {}, set()
    root = help_of(remora)
    verdicts["remora.1"] = compare(pages["remora.1"], {"remora": root}, own=("-h", "--help"))
    listed = re.findall(r"^\*remora-([\w-]+)\*\(1\)$", "\n".join(sections(pages["remora.1"])["COMMANDS"]), re.M)
    if listed != root["subcommands"]:
        verdicts["remora.1"].append(f"COMMANDS are {listed}, in the program {root['subcommands']}")
    for name in root["subcommands"]:
        page = f"remora-{name}.1"
        wanted.add(page)
        if page not in pages:
            verdicts[page] = ["there is no such page"]
            continue
        command = help_of(remora, name)
        commands = {f"remora {name}": command}
        if command["subcommands"]:
            commands = {f"remora {name} {each}": help_of(remora, name, each) for each in command["subcommands"]}
        verdicts[page] = compare(pages[page], commands)
    for page in pages:
        if page.startswith("remora-") and page.endswith(".1") and page not in wanted:
            verdicts[page] = ["the program has no such command"]
    verdicts["remora-server.8"] = compare(
        pages["remora-server.8"], {"remora-server": help_of(os.path.join(folder, "remora-server"))},
        own=("-h", "--help"))
    verdicts["references"] = references(pages)
    verdicts["list of CMakeLists.txt"] = built(pages)
    return verdicts


def rendered(page):
    """Warnings of man and mandoc about a page, of those that are installed."""
    said = []
    for tool in (["man", "--warnings", "-l"], ["mandoc", "-Tlint", "-Wwarning"]):
        if shutil.which(tool[0]) is None:
            continue
        # Without a terminal man(1) would leave out what it warns of.
        run = subprocess.run([*tool, page], capture_output=True, text=True, check=False,
                             env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "PAGER": "cat"})
        text = run.stderr + (run.stdout if tool[0] == "mandoc" else "")
        if text.strip() or run.returncode:
            said.append(f"{' '.join(tool)}: {text.strip()} (status {run.returncode})")
    return said


def render_all():
    """{page: warnings} of the pages of the programs, by scdoc."""
    verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(PAGES.glob("*.scd")):
            page = os.path.join(folder, path.name.removesuffix(".scd"))
            made = subprocess.run([PAGES / "make_page.sh", path, page], capture_output=True, text=True, check=False)
            verdicts[path.name] = [made.stderr.strip()] if made.returncode else rendered(page)
    return verdicts


def render_others():
    """{page: warnings} of the pages that are not of scdoc: the C API, the plugin of nbdkit."""
    pages = sorted(OTHER_PAGES.glob("*.3")) + sorted(PLUGIN_PAGES.glob("*.1"))
    return {path.name: rendered(path) for path in pages} or {"pages of the C API": ["there are none"]}


def report(prefix, verdicts):
    for name, faults in verdicts.items():
        print(f"{'not ok' if faults else 'ok'} - {prefix}: {name}")
        for fault in faults:
            print(f"    {fault}")
    return any(verdicts.values())


HELP = """Print bytes
Usage: remora get [OPTIONS] URI FILE

Positionals:
  URI REQUIRED                remora://HOST
  FILE REQUIRED               file

Options:
  -h,--help                   Print this help message and exit
  --offset SIZE REQUIRED      Where
  --lanes N:UINT in [1 - 8]   Lanes
  --now Excludes: --later     Now
"""
PAGE = """# SYNOPSIS

*remora get* _URI_ _FILE_ *--offset* _SIZE_ [*--lanes* _N_] [*--now*]

# OPTIONS

*--offset* _SIZE_
	Where.

*--lanes* _N_
	Lanes.

*--now*
	Now.
"""


def self_test():
    def faults(page):
        return compare(page, {"remora get": parse_help(HELP)})

    seeds = {
        "an option too many": PAGE + "\n*--later*\n\tLater.\n",
        "an option that is missing": PAGE.replace("*--now*\n\tNow.\n", ""),
        "another value": PAGE.replace("*--offset* _SIZE_\n", "*--offset* _BYTES_\n"),
        "an argument that is missing": PAGE.replace(" _FILE_", ""),
        "a synopsis without a required option": PAGE.replace(" *--offset* _SIZE_ [", " [_OPTIONS_] ["),
        "no synopsis": PAGE.replace("*remora get*", "*remora put*"),
    }
    bad = report("self-test", {"a page without faults": faults(PAGE)})
    if shutil.which("mandoc") is not None:
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "undated.3")
            pathlib.Path(page).write_text('.TH undated 3 "" Remora "Remora"\n.SH NAME\nundated \\- none\n',
                                          encoding="utf-8")
            found = rendered(page)
        bad |= report("self-test", {"a page with a warning": [] if found else ["the warning was not found"]})
    for name, page in seeds.items():
        bad |= report("self-test", {name: [] if faults(page) else ["the seeded fault was not found"]})
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return int(self_test())
    if options.bin is None:
        parser.error("--bin FOLDER, or --self-test")
    bad = report("as the program", compare_all(options.bin))
    bad |= report("rendered", render_others())
    if shutil.which("scdoc") is None:
        print("ok - rendered # SKIP scdoc is not installed (ci/setup.sh man)")
    else:
        bad |= report("rendered", render_all())
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
