#!/usr/bin/env python3
"""Checks that each top-level folder includes and links only folders below it.

    result <- { verbs, config, metrics } <- engine <- engine/volume <- engine/c <- apps

and, inside engine/src, that includes point down only:

    server/, client/ -> transport/ -> protocol/ -> base/

and, inside engine/src/client, too:

    engine/ -> queue/ -> region/ -> session/ -> services/ -> datapath/

and, inside engine/src/server:

    server/ -> server/warm/ -> server/memory/

Read from the files as they stand: include lines, the names of verbs types in headers, and the
targets that a room's CMakeLists.txt links. Prints `file:line: what` for each violation.
"""

import os
import re
import sys

import checks

# A room, and the rooms it may include and link besides itself. tests/ may use all of them.
MAY_KNOW = {
    "result": set(),
    "verbs": {"result"},
    "config": {"result"},
    "metrics": {"result"},
    "engine": {"result", "verbs", "config", "metrics"},
    "engine/c": {"result", "config", "metrics", "engine", "engine/volume"},
    "engine/volume": {"result", "config", "metrics", "engine"},
    "apps": {"result", "verbs", "config", "metrics", "engine", "engine/c", "engine/volume", "remora"},
}
# A layer of engine/src, and the layers it may include besides itself. A file of transport/ itself is
# of the seam, which every transport may include; the transports do not know each other.
SEAM = {"transport", "protocol", "base"}
# The folders of client/, from top to bottom: each may include those behind it.
CLIENT_FOLDERS = ["client/engine", "client/queue", "client/region", "client/session",
                  "client/services", "client/datapath"]
ENGINE_LAYERS = {
    "server": SEAM | {"server/warm", "server/memory"},
    "server/warm": SEAM | {"server/memory"},
    "server/memory": SEAM,
    "client": SEAM,
    **{folder: SEAM | set(CLIENT_FOLDERS[place + 1:])
       for place, folder in enumerate(CLIENT_FOLDERS)},
    "transport": {"protocol", "base"},
    "transport/rdma": SEAM,
    "transport/tcp": SEAM,
    "transport/shm": SEAM,
    "transport/fault": SEAM,
    "protocol": {"base"},
    "base": set(),
}
# The engine wraps a connection with the faults that a test asks for.
ENGINE_EXCEPTIONS = {("client/engine", "transport/fault/core.h")}
VERBS_INCLUDE = re.compile(r"^(infiniband|rdma)/")
# Types, not every name: an engine may have an rdma_transport.h.
VERBS_NAME = re.compile(
    r"\b(ibv_\w+|IBV_\w+|RDMA_CM_\w+|rdma_(?:cm_\w+|event_channel|conn_param|addrinfo|addr|route"
    r"|ud_param|ib_addr|port_space))\b")
# Headers that a public header must not bring into sources that include it.
PRIVATE_THIRD_PARTY = re.compile(
    r"^(tbb/|oneapi/|yaml-cpp/|prometheus/|google/protobuf/|spdlog/|fmt/|httplib\.h|nlohmann/"
    r"|openssl/|CLI/|hwloc|curl/)|\.pb\.h$")
# A thread that is not to be had is an error to hand on, and oneTBB's own workers end the process.
STARTS_THREAD = re.compile(
    r"\bstd::j?thread\b\s*[{(]|\bstd::j?thread\s+\w+\s*[{(]|\bstd::(?:jthread|async)\b"
    r"|\bpthread_create\s*\(|\bthreads?_?\.emplace_back\(\[")
STARTS_WORKERS = re.compile(r"\btbb::(?:task_arena|parallel_\w+|task_group|flow)\b")
# The second is C, which cannot include the first.
THREADS_IN = ("verbs/result/include/remora/start_thread.h", "apps/nbdkit/repairer.c")
ONETBB_IN = ("engine/src/client/datapath/helper_threads.h",
             "engine/src/client/datapath/helper_threads.cc")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
LINKED = re.compile(r"\bremora(?:::|_)(result|verbs|config|metrics|engine|remora|c|volume)\b")
SOURCE = (".h", ".hpp", ".cc", ".cpp", ".c")


def room_of(path):
    if path.startswith("verbs/result/"):
        return "result"
    if path.startswith("engine/c/"):
        return "engine/c"
    if path.startswith("engine/volume/"):
        return "engine/volume"
    first = path.split("/", 1)[0]
    return first if first in MAY_KNOW else None


def room_of_include(name):
    """The room that <remora/...> belongs to."""
    if name in ("remora/assert.h", "remora/error.h", "remora/error_code.h", "remora/error_remedies.h",
                "remora/host_port.h", "remora/mutex.h", "remora/owned.h", "remora/result.h",
                "remora/sanitizers.h", "remora/standard_descriptors.h", "remora/start_thread.h",
                "remora/system_file.h"):
        return "result"
    parts = name.split("/")
    if name == "remora/remora_c.h" or parts[1] == "c":
        return "engine/c"
    if parts[1] == "volume":
        return "engine/volume"
    # <remora/remora.h> and its kin stand in engine/, and what applications test with.
    if len(parts) == 2 or parts[1] == "testing":
        return "engine"
    return parts[1]


def engine_layer(name):
    """The layer that a path below engine/src belongs to; None for a file beside the layers."""
    parts = name.split("/")
    deep = "/".join(parts[:2])
    if len(parts) > 2 and deep in ENGINE_LAYERS:
        return deep
    return parts[0] if len(parts) > 1 and parts[0] in ENGINE_LAYERS else None


def check_engine_layers(path, name):
    if not path.startswith("engine/src/"):
        return
    layer, other = engine_layer(path[len("engine/src/"):]), engine_layer(name)
    if layer is None or other is None or other == layer or other in ENGINE_LAYERS[layer]:
        return
    if (layer, name) not in ENGINE_EXCEPTIONS:
        yield f'{layer}/ must not include {other}/: "{name}"'


def without_comments(text):
    """The same lines, comments and string contents blanked, so that words in them do not count."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)

    def blank(match):
        found = match.group(0)
        if found.startswith('"'):
            return found if "/" in found or found.endswith('.h"') else '""'
        return re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def check_source(path, text):
    room = room_of(path)
    header = path.endswith((".h", ".hpp"))
    public = header and "/include/remora/" in "/" + path
    started = room and path not in THREADS_IN and not path.startswith("apps/examples/")
    for number, line in enumerate(without_comments(text).split("\n"), 1):
        found = INCLUDE.match(line)
        if found:
            for what in check_include(path, room, public, found.group(1), found.group(2)):
                yield number, what
        elif started and STARTS_THREAD.search(line):
            yield number, "a thread is started by start_thread() of <remora/start_thread.h> only"
        elif started and path not in ONETBB_IN and STARTS_WORKERS.search(line):
            yield number, f"oneTBB is used in {ONETBB_IN[1]} only"
        elif header and room and room != "verbs":
            name = VERBS_NAME.search(line)
            if name:
                yield number, f"{name.group(1)} in a header outside verbs/"


def check_include(path, room, public, opening, name):
    if opening == '"':
        if name.startswith("remora/"):
            yield f'write <{name}>, not "{name}"'
            return
        if public:
            yield f'a public header includes "{name}"; only <...> reaches it when installed'
        target = os.path.normpath(os.path.join(os.path.dirname(path), name))
        if room and room_of(target) not in (room, None) and "/" in target and ".." in name:
            yield f'"{name}" reaches into {room_of(target)}/'
        yield from check_engine_layers(path, name)
        return
    if not room:
        return
    if ".." in name.split("/"):
        yield f"<{name}> climbs out of its include root"
    if public and PRIVATE_THIRD_PARTY.search(name):
        yield f"a public header shows a third party: <{name}>"
    elif name.startswith("remora/"):
        other = room_of_include(name)
        if other != room and other not in MAY_KNOW[room]:
            yield f"{room} must not know {other}: <{name}>"
        elif public and other == "verbs" and room != "verbs":
            yield f"a public header of {room} shows verbs types: <{name}>"
    elif VERBS_INCLUDE.search(name) and room != "verbs":
        yield f"<{name}> belongs to verbs/ only"


def check_cmake(path, text):
    room = room_of(path)
    if room is None:
        return
    for number, line in enumerate(text.split("\n"), 1):
        for other in LINKED.findall(line.split("#", 1)[0]):
            other = "engine/" + other if other in ("c", "volume") else other
            if other != room and other not in MAY_KNOW[room]:
                yield number, f"{room} must not link {other}"


def check_tree(root, paths):
    violations, checked = [], 0
    for path in sorted(paths):
        is_cmake = os.path.basename(path) == "CMakeLists.txt"
        if not (is_cmake or path.endswith(SOURCE)):
            continue
        text = checks.read(root, path)
        if text is None:
            continue
        checked += 1
        for number, what in (check_cmake if is_cmake else check_source)(path, text):
            violations.append(f"{path}:{number}: {what}")
    return violations, checked


# One file for each rule: what is wrong in it, and a word of the message that must come.
SEEDED = [
    ("verbs/result/include/remora/result.h", "#include <remora/verbs/device.h>", "must not know"),
    ("verbs/src/a.cc", "#include <remora/metrics/counter.h>", "must not know"),
    ("config/src/a.cc", "#include <remora/engine/uri.h>", "must not know"),
    ("config/src/b.cc", "#include <remora/remora.h>", "must not know"),
    ("metrics/include/remora/metrics/a.h", "#include <remora/config/load.h>", "must not know"),
    ("engine/src/a.cc", "#include <remora/apps/cli.h>", "must not know"),
    ("engine/include/remora/engine/a.h", "#include <remora/verbs/device.h>", "shows verbs types"),
    ("engine/include/remora/engine/b.h", "#include <infiniband/verbs.h>", "belongs to verbs/"),
    ("engine/src/e.cc", "#include <remora/volume/cluster.h>", "must not know"),
    ("engine/volume/src/b.cc", "#include <remora/c/volume.h>", "must not know"),
    ("engine/volume/include/remora/volume/a.h", "#include <curl/curl.h>", "third party"),
    ("engine/src/b.cc", "#include <rdma/rdma_cma.h>", "belongs to verbs/"),
    ("engine/include/remora/engine/c.h", "struct ibv_mr;", "outside verbs/"),
    ("engine/src/c.h", "void f(struct rdma_cm_id* id);", "outside verbs/"),
    ("engine/include/remora/engine/d.h", "#include <tbb/task_arena.h>", "third party"),
    ("engine/include/remora/engine/e.h", "#include <oneapi/tbb.h>", "third party"),
    ("engine/include/remora/engine/f.h", "#include <remora/engine/control.pb.h>", "third party"),
    ("config/include/remora/config/a.h", "#include <yaml-cpp/yaml.h>", "third party"),
    ("metrics/include/remora/metrics/b.h", "#include <prometheus/registry.h>", "third party"),
    ("metrics/include/remora/metrics/c.h", "#include <httplib.h>", "third party"),
    ("engine/include/remora/engine/g.h", "#include <spdlog/spdlog.h>", "third party"),
    ("engine/include/remora/engine/h.h", "#include <google/protobuf/message.h>", "third party"),
    ("engine/src/d.cc", '#include "remora/engine/uri.h"', "write <remora"),
    ("verbs/include/remora/verbs/a.h", '#include "b.h"', "a public header includes"),
    ("config/src/c.cc", '#include "../../engine/src/session.h"', "reaches into engine/"),
    ("engine/src/server/a.cc", '#include "client/session/session.h"', "must not include client/"),
    ("engine/src/client/a.cc", '#include "server/server_core.h"', "must not include server/"),
    ("engine/src/client/b.cc", '#include "transport/shm/identity.h"',
     "must not include transport/shm/"),
    ("engine/src/server/b.h", '#include "transport/rdma/window_grant.h"',
     "must not include transport/rdma/"),
    ("engine/src/client/queue/a.cc", '#include "client/engine/engine_core.h"',
     "must not include client/engine/"),
    ("engine/src/client/region/a.cc", '#include "client/queue/queue_core.h"',
     "must not include client/queue/"),
    ("engine/src/client/session/a.cc", '#include "client/region/region_grant.h"',
     "must not include client/region/"),
    ("engine/src/client/services/a.cc", '#include "client/session/session_core.h"',
     "must not include client/session/"),
    ("engine/src/client/datapath/a.cc", '#include "client/services/engine_services.h"',
     "must not include client/services/"),
    ("engine/src/client/datapath/b.h", '#include "transport/fault/core.h"',
     "must not include transport/fault/"),
    ("engine/src/server/warm/a.cc", '#include "server/server_metrics.h"',
     "must not include server/"),
    ("engine/src/server/memory/a.h", '#include "server/region_manager.h"',
     "must not include server/"),
    ("engine/src/server/memory/b.cc", '#include "server/warm/warm_memory.h"',
     "must not include server/warm/"),
    ("engine/src/transport/a.h", '#include "server/server_core.h"', "must not include server/"),
    ("engine/src/transport/b.cc", '#include "transport/tcp/lane.h"',
     "must not include transport/tcp/"),
    ("engine/src/transport/shm/a.cc", '#include "transport/tcp/socket.h"',
     "must not include transport/tcp/"),
    ("engine/src/transport/fault/a.h", '#include "transport/rdma/lane.h"',
     "must not include transport/rdma/"),
    ("engine/src/transport/rdma/a.cc", '#include "client/datapath/operation_record.h"',
     "must not include client/"),
    ("engine/src/protocol/a.h", '#include "transport/lane.h"', "must not include transport/"),
    ("engine/src/base/a.cc", '#include "protocol/messages.h"', "must not include protocol/"),
    ("engine/src/i.cc", "#include <remora/remora_c.h>", "must not know"),
    ("engine/include/remora/engine/j.h", "#include <remora/c/queue.h>", "must not know"),
    ("engine/c/src/a.cc", "#include <remora/verbs/device.h>", "must not know"),
    ("engine/c/src/b.cc", '#include "../../src/client/queue/queue_core.h"', "reaches into engine/"),
    ("engine/c/include/remora/c/a.h", "#include <spdlog/spdlog.h>", "third party"),
    ("engine/src/g.cc", "void f() { std::thread{[] {}}.detach(); }", "by start_thread() of"),
    ("metrics/src/a.cc", "std::thread acceptor{run};", "by start_thread() of"),
    ("apps/cli/a.cc", "std::jthread guard(run);", "by start_thread() of"),
    ("apps/cli/b.cc", "auto later = std::async(run);", "by start_thread() of"),
    ("apps/cli/c.cc", "threads_.emplace_back([this] { run(); });", "by start_thread() of"),
    ("verbs/src/c.cc", "::pthread_create(&id, nullptr, run, nullptr);", "by start_thread() of"),
    ("verbs/src/d.cc", "tbb::parallel_for(0, 9, run);", "oneTBB is used in"),
    ("verbs/CMakeLists.txt", "remora_add_module(verbs PRIVATE remora::metrics)", "must not link"),
    ("config/CMakeLists.txt", "target_link_libraries(remora_config PUBLIC remora_engine)",
     "must not link"),
    ("engine/CMakeLists.txt", "target_link_libraries(remora_engine PRIVATE remora::c)", "must not link"),
]
# What looks like a violation and is none.
CLEAN = [
    ("verbs/include/remora/verbs/device.h", "#include <infiniband/verbs.h>\nibv_context* raw();"),
    ("engine/src/rdma_transport.h", "#include <remora/verbs/device.h>\nclass rdma_transport;"),
    ("engine/src/e.cc", '#include "rdma_transport.h"\n#include <tbb/task_arena.h>'),
    ("engine/include/remora/engine/i.h", "// ibv_mr is what it wraps\n#include <remora/result.h>"),
    ("engine/src/f.cc", '#include "transport/lane.h"'),
    ("engine/src/client/c.cc", '#include "transport/lane.h"\n#include "protocol/messages.h"'),
    ("engine/src/client/engine/d.cc",
     '#include "transport/fault/core.h"\n#include "client/datapath/operation_record.h"'),
    ("engine/src/client/region/b.cc",
     '#include "client/session/session_core.h"\n#include "client/region/region_grant.h"'),
    ("engine/src/server/c.cc",
     '#include "server/warm/warm_memory.h"\n#include "server/memory/pool.h"'),
    ("engine/src/server/warm/b.cc",
     '#include "server/memory/pool.h"\n#include "base/random_id.h"'),
    ("engine/src/transport/tcp/b.h", '#include "transport/lane.h"\n#include "transport/tcp/wire.h"'),
    ("engine/src/protocol/b.cc", '#include "base/clock.h"\n#include "remora_control.pb.h"'),
    ("engine/c/src/c.cc", "#include <remora/engine/engine.h>\n#include <remora/remora_c.h>"),
    ("apps/examples/c_client.c", "#include <remora/remora_c.h>"),
    ("apps/cli/main.cc", "#include <remora/remora.h>\n#include <remora/config/load.h>"),
    ("tests/unit/verbs/a_test.cc", "#include <infiniband/verbs.h>\n#include <remora/verbs/device.h>"),
    ("engine/CMakeLists.txt", "remora_add_module(engine PUBLIC remora::result PRIVATE remora::verbs)"),
    ("engine/src/client/datapath/helper_threads.cc", "tbb::parallel_for(0, 9, run);"),
    ("engine/src/h.h", "std::thread thread_;\nstd::vector<std::thread> threads_;"),
    ("verbs/src/b.cc", "const char* kHint = \"see <remora/engine/uri.h>\";"),
]


def self_test():
    seeds = [checks.Seed(path, f"#pragma once\n{text}\n", expected, range(2, 3))
             for path, text, expected in SEEDED]
    seeds += [checks.Seed(path, f"#pragma once\n{text}\n") for path, text in CLEAN]
    return checks.self_test("layers", check_tree, seeds)


if __name__ == "__main__":
    sys.exit(checks.main("layers", checks.parser(__doc__).parse_args(), check_tree, self_test,
                         ("files", "violations")))
