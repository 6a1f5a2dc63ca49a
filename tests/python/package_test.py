"""The package itself: its declarations, types, installation and wheel."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
import remora

SOURCE = pathlib.Path(os.environ["REMORA_SOURCE"])
BUILD = pathlib.Path(os.environ["REMORA_BUILD"])
PACKAGE = SOURCE / "apps/python"
HEADERS = SOURCE / "engine/c/include"


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_declarations_are_those_of_the_headers():
    run(sys.executable, PACKAGE / "build_cffi.py", "--headers", HEADERS,
        "--check", SOURCE / "engine/c/abi/symbols.txt")


def test_a_function_that_is_missing_is_noticed(tmp_path):
    symbols = tmp_path / "symbols.txt"
    symbols.write_text((SOURCE / "engine/c/abi/symbols.txt").read_text().replace(
        "remora_queue_wait@", "remora_queue_pause@"))
    done = subprocess.run([sys.executable, PACKAGE / "build_cffi.py", "--headers", HEADERS,
                           "--check", symbols], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "remora_queue_wait" in done.stdout and "remora_queue_pause" in done.stdout


@pytest.mark.parametrize("enumeration, header, name, prefix", [
    (remora.Code, "error.h", "remora_code", "REMORA_"),
    (remora.Reason, "error.h", "remora_reason", "REMORA_REASON_"),
    (remora.VolumeChange, "volume.h", "remora_volume_change", "REMORA_VOLUME_")])
def test_numbers_are_those_of_the_header(enumeration, header, name, prefix):
    text = (HEADERS / "remora/c" / header).read_text()
    body = re.search(rf"enum {name} {{(.*?)}};", text, re.DOTALL)
    assert body
    found = {entry: int(number)
             for entry, number in re.findall(rf"{prefix}(\w+) = (\d+)", body[1])}
    assert found == {each.name: each.value for each in enumeration}


def test_each_code_has_a_class():
    classes = {each.code: each for each in remora.Error.__subclasses__()}
    assert set(classes) == set(remora.Code) - {remora.Code.OK}
    for each in classes.values():
        assert getattr(remora, each.__name__) is each and each.__doc__


def test_the_version_is_that_of_the_project():
    assert re.search(rf"VERSION {re.escape(remora.__version__)} ",
                     (SOURCE / "CMakeLists.txt").read_text())


def test_public_names_have_documents():
    properties_without = {"name", "transport", "ok", "full"}
    for name in remora.__all__:
        thing = getattr(remora, name)
        assert thing.__doc__, name
        if isinstance(thing, type) and thing.__module__ in (
                "remora.client", "remora.region", "remora.volume", "remora.memory", "remora.queue",
                "remora.aio"):
            for member, value in vars(thing).items():
                if not member.startswith("_") and member not in properties_without:
                    assert value.__doc__, f"{name}.{member}"


def test_types():
    if not importlib.util.find_spec("mypy"):
        pytest.skip("mypy is not installed: ci/setup.sh test")
    others = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    scripts = (PACKAGE / f"{name}.py" for name in ("bench", "build_cffi", "build_wheel"))
    run(sys.executable, "-m", "mypy", "--config-file", PACKAGE / "mypy.ini", "--cache-dir",
        os.devnull, PACKAGE / "remora", SOURCE / "tests/python", SOURCE / "apps/examples/volume.py",
        *scripts, env={**others, "MYPYPATH": str(PACKAGE)})


PROGRAM = "import remora; print(remora.__file__, remora.__version__)"


def test_installation(tmp_path):
    """Moved to another place, it finds its library without any variable but PYTHONPATH."""
    run("cmake", "--install", BUILD, "--component", "python", "--prefix", tmp_path / "first")
    shutil.move(tmp_path / "first", tmp_path / "second")
    site = tmp_path / "second/lib/python3/dist-packages"
    out = run(sys.executable, "-B", "-c", PROGRAM, env={"PYTHONPATH": str(site)})
    assert out.startswith(f"{site}/remora/") and (site / "remora/py.typed").is_file()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the files of the wheel."""
    if not importlib.util.find_spec("wheel"):
        pytest.skip("python3-wheel is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    path = run(sys.executable, PACKAGE / "build_wheel.py", "--build", BUILD, "--output",
               folder).strip()
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def test_wheel(site):
    version = remora.__version__
    for name in ("remora/_remora.abi3.so", "remora/libremora.so.0", "remora/py.typed",
                 f"remora-{version}.dist-info/RECORD"):
        assert (site / name).is_file(), name
    out = run(sys.executable, "-B", "-c", PROGRAM, env={"PYTHONPATH": str(site)})
    assert out == f"{site}/remora/__init__.py {version}\n"
    used = run("ldd", site / "remora/_remora.abi3.so")
    assert f"{site}/remora/libremora.so.0" in used


BESIDE = """
import concurrent.futures, itertools, sys
site, uri, *order = sys.argv[1:]
numbers = itertools.count()

def protobuf():
    from google.protobuf import struct_pb2
    from google.protobuf.internal import api_implementation
    assert api_implementation.Type() == "cpp", api_implementation.Type()
    message = struct_pb2.Struct()
    message.update({"name": "beside", "numbers": [1, 2, 3]})
    assert struct_pb2.Struct.FromString(message.SerializeToString()) == message
    return message

def grpc():
    import grpc
    from google.protobuf import struct_pb2
    encode, decode = struct_pb2.Struct.SerializeToString, struct_pb2.Struct.FromString
    echo = grpc.unary_unary_rpc_method_handler(lambda request, _: request, decode, encode)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("tests.Echo", {"Say": echo}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        say = channel.unary_unary("/tests.Echo/Say", encode, decode)
        assert say(protobuf(), timeout=60) == protobuf()
    server.stop(None).wait()

def numpy():
    import numpy
    assert (numpy.ones((64, 64)) @ numpy.ones((64, 64)) == 64).all()

def remora():
    import remora
    assert remora.__file__.startswith(site)
    with remora.connect(uri) as client:
        name = f"beside-{len(order)}-{order[0]}-{next(numbers)}"
        client.create_region(name, 1 << 16, lifetime=remora.Lifetime.SESSION,
                             shm="transport=shm" in uri)
        with client.open_region(name) as region, region.queue() as queue:
            region.write(0, b"beside")
            assert region.read(0, 6) == b"beside" and client.stat(name).open_count == 1
            for number in range(64):
                queue.fetch_add(8, 1)
            assert all(each.ok for each in queue) and region.fetch_add(8, 0) == 64
        try:
            client.open_region("none")
        except remora.UnknownRegionError:
            return
        sys.exit("a region that is not there was opened")

for name in order * 2:
    globals()[name]()
print("all work")
"""


@pytest.mark.parametrize("order", [["remora", "protobuf", "grpc"], ["grpc", "protobuf", "remora"],
                                   ["numpy", "remora"], ["protobuf", "remora", "numpy"]], ids="-".join)
def test_wheel_beside_other_packages(site, server, order):
    """protobuf by its module in C++, which loads the same shared library of protobuf, and grpc, which
    brings a server and threads: whichever is loaded first, all of them work before and after."""
    modules = {"protobuf": "google.protobuf", "grpc": "grpc", "numpy": "numpy", "remora": "remora"}
    for name in order:
        try:
            there = importlib.util.find_spec(modules[name])
        except ModuleNotFoundError:  # of the package that it is in
            there = None
        if not there:
            pytest.skip(f"{name} is not installed: ci/setup.sh test")
    environment = {"PYTHONPATH": str(site), "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "cpp",
                   "REMORA_RUNTIME_DIR": os.environ["REMORA_RUNTIME_DIR"]}
    out = run(sys.executable, "-B", "-c", BESIDE, site, server.uri, *order, env=environment)
    assert out == "all work\n"


def test_bench_says_what_it_leaves_out(server):
    """It runs; what it measures is not judged here."""
    with remora.connect(server.uri) as client:
        client.create_region("bench", 1 << 20, lifetime=remora.Lifetime.SESSION)
        server_uri, _, query = server.uri.partition("?")
        out = run(sys.executable, "-B", PACKAGE / "bench.py", "--seconds", "0.05", "--rounds", "1",
                  f"{server_uri}/bench?{query}")
    assert "plain socket" in out and "remora, tcp" in out and "redis-py" in out
