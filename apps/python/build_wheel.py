#!/usr/bin/python3
"""Makes a wheel of the package `remora` from a build tree, with libremora.so.0 in it.

usage: build_wheel.py --build TREE --output FOLDER

TREE was configured with -DREMORA_BUILD_PYTHON=ON and built. The wheel is for the Debian that it was built
on: it needs Debian's shared libraries of RDMA, protobuf and the others that libremora.so.0 names. Prints
the wheel's path. It needs python3-wheel and no setup.py.
"""

import argparse
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from wheel.wheelfile import WheelFile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
METADATA = """\
Metadata-Version: 2.1
Name: remora
Version: {version}
Summary: One-sided remote memory over RDMA, shared memory and TCP
License: Apache-2.0
Requires-Python: >=3.11
Requires-Dist: cffi >=1.15
Description-Content-Type: text/markdown

{description}"""
WHEEL = """\
Wheel-Version: 1.0
Generator: build_wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


def version_of(tree):
    """That of the project, as CMake has it."""
    cache = (tree / "CMakeCache.txt").read_text(encoding="utf-8")
    found = re.search(r"^CMAKE_PROJECT_VERSION:\w+=(.+)$", cache, re.MULTILINE)
    if not found:
        sys.exit(f"build_wheel: {tree} has no version: it is no build tree of Remora")
    return found[1]


def installed(tree, prefix):
    """The component `python`, installed below `prefix`: with run paths that are relative."""
    done = subprocess.run(["cmake", "--install", str(tree), "--component", "python",
                           "--prefix", str(prefix)], capture_output=True, text=True, check=False)
    package = prefix / "lib/python3/dist-packages/remora"
    if done.returncode != 0 or not (package / "_remora.abi3.so").is_file():
        sys.exit(f"build_wheel: cmake --install failed; was {tree} built with "
                 f"-DREMORA_BUILD_PYTHON=ON?\n{done.stdout}{done.stderr}")
    return package


def fill(tree, prefix, into, version, tag):
    """Fills the folder `into` with the files of the wheel."""
    shutil.copytree(installed(tree, prefix), into / "remora")
    library, = prefix.rglob("libremora.so.0")
    shutil.copy(library, into / "remora" / library.name)  # the file that the link names
    information = into / f"remora-{version}.dist-info"
    information.mkdir()
    readme = (ROOT / "apps/python/README.md").read_text(encoding="utf-8")
    (information / "METADATA").write_text(METADATA.format(version=version, description=readme),
                                          encoding="utf-8")
    (information / "WHEEL").write_text(WHEEL.format(tag=tag), encoding="utf-8")
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, information / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", required=True, type=pathlib.Path, metavar="TREE")
    parser.add_argument("--output", required=True, type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args()
    version = version_of(arguments.build)
    tag = f"cp311-abi3-linux_{platform.machine()}"
    arguments.output.mkdir(parents=True, exist_ok=True)
    wheel = arguments.output / f"remora-{version}-{tag}.whl"
    with tempfile.TemporaryDirectory() as work:
        into = pathlib.Path(work) / "wheel"
        into.mkdir()
        fill(arguments.build, pathlib.Path(work) / "prefix", into, version, tag)
        with WheelFile(str(wheel), "w") as file:
            file.write_files(str(into))
    print(wheel)


if __name__ == "__main__":
    main()
