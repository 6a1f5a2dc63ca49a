#!/usr/bin/env python3
"""The commands of the documents that begin with `docker`, by podman: in the guest of test.sh, which has
neither a daemon nor a registry. guest.sh puts it into PATH under that name.

  docker build ... -t NAME ...   the image is there: test.sh has built that target of the Dockerfile
  docker compose -f FILE... [--profile NAME...] COMMAND
                                 up: each service of the files and of the profiles, or those named and
                                 what they depend on, on the guest's network; exec, logs, kill, down
  docker COMMAND ...             podman COMMAND ..., `run` on the guest's network

A service whose image is not there is run by the program of its name (prometheus), with the mounted files
linked to their places; without one it is left out, which is said (grafana).
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time

import yaml

STATE = os.environ.get("REMORA_DOCKER_STATE", "/run/remora-docker")
HEALTHY_SECONDS = 120


def die(message):
    sys.exit(f"docker: error: {message}")


def run(*words, **options):
    return subprocess.run(words, check=False, **options).returncode


def image_of(name):
    """The name under which the store has an image; None when it does not."""
    for full in (name, "localhost/" + name):
        if run("podman", "image", "exists", full) == 0:
            return full
    return None


def build(words):
    options = argparse.ArgumentParser(prog="docker build")
    options.add_argument("-f", "--file", required=True)
    options.add_argument("--target", required=True)
    options.add_argument("-t", "--tag", required=True)
    options.add_argument("context")
    given = options.parse_args(words)
    with open(given.file, encoding="utf-8") as file:
        stages = [line.split()[-1] for line in file if line.startswith("FROM ")]
    if given.target not in stages:
        die(f"{given.file} has no target {given.target}, only {' '.join(stages)}")
    if not image_of(given.tag):
        die(f"test.sh has built no image {given.tag}")
    return 0


def mounted(service):
    """Pairs of a file of this machine and its place in the container."""
    for volume in service.get("volumes", []):
        if isinstance(volume, str):
            source, target = volume.split(":")[:2]
        else:
            source, target = volume["source"], volume["target"]
        yield source, target


def start_container(name, service, image):
    words = ["podman", "run", "--rm", "--detach", "--network=host", "--no-healthcheck", f"--name={name}"]
    words += ["--hostname=" + service["hostname"]] if "hostname" in service else []
    words += ["--read-only"] if service.get("read_only") else []
    words += [f"--tmpfs={place}" for place in service.get("tmpfs", [])]
    words += [f"--cap-drop={right}" for right in service.get("cap_drop", [])]
    words += [f"--security-opt={option.replace('no-new-privileges:true', 'no-new-privileges')}"
              for option in service.get("security_opt", [])]
    words += [f"--device={device.split(':')[0]}" for device in service.get("devices", [])]
    words += [f"--env={variable}={value}" for variable, value in (service.get("environment") or {}).items()]
    words += [f"--ulimit={limit}={value}:{value}" for limit, value in service.get("ulimits", {}).items()]
    words += [f"--volume={source}:{target}:ro" for source, target in mounted(service)]
    words += [f"--entrypoint={word}" for word in service.get("entrypoint") or []]
    if run(*words, image, *(service.get("command") or []), stdout=subprocess.DEVNULL) != 0:
        die(f"podman does not start {name}")


def start_program(name, service):
    for source, target in mounted(service):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.lexists(target):
            os.unlink(target)
        os.symlink(source, target)
    with open(os.path.join(STATE, name + ".log"), "w", encoding="utf-8") as log:
        process = subprocess.Popen([name] + service["command"], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, cwd="/", start_new_session=True)
    with open(os.path.join(STATE, name + ".pid"), "w", encoding="ascii") as file:
        file.write(str(process.pid))


def await_healthy(name):
    until = time.monotonic() + HEALTHY_SECONDS
    while run("podman", "exec", name, "remora-healthcheck", capture_output=True) != 0:
        if time.monotonic() > until:
            die(f"{name} is not healthy after {HEALTHY_SECONDS} s")
        time.sleep(1)


def chosen(services, names):
    """The services of these names, and those on which they depend; all, where there is no name."""
    found, todo = {}, list(names or services)
    while todo:
        name = todo.pop()
        if name not in services:
            die(f"compose up {name}: no such service: {' '.join(services)}")
        if name not in found:
            found[name] = services[name]
            todo += services[name].get("depends_on", {})
    return found


def up(services, words):
    options = argparse.ArgumentParser(prog="docker compose up")
    for name in ("--build", "--detach"):
        options.add_argument(name, action="store_true", required=True)
    options.add_argument("services", nargs="*")
    given = options.parse_args(words)
    left, healthy = chosen(services, given.services), set()
    while left:
        ready = [name for name in left if not set(left[name].get("depends_on", {})) & set(left)]
        if not ready:
            die("services depend on each other: " + " ".join(left))
        for name in ready:
            service = left.pop(name)
            needs = service.get("depends_on", {})
            for other in set(needs) - healthy if isinstance(needs, dict) else ():
                if needs[other].get("condition") == "service_healthy":
                    await_healthy(other)
                    healthy.add(other)
            image = image_of(service["image"])
            if image:
                start_container(name, service, image)
            elif shutil.which(name):
                start_program(name, service)
            else:
                print(f"docker: {name} is left out: no image {service['image']} here", file=sys.stderr)
    return 0


def end_program(pid):
    """SIGTERM, and SIGKILL after half a minute. It is no child of this process."""
    os.killpg(pid, signal.SIGTERM)
    for _ in range(300):
        if not os.path.exists(f"/proc/{pid}"):
            return
        time.sleep(0.1)
    os.killpg(pid, signal.SIGKILL)


def down(services, words):
    if words not in ([], ["--volumes"]):
        die(f"compose down {' '.join(words)}: not known here")
    for name in services:
        path = os.path.join(STATE, name + ".pid")
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                end_program(int(file.read()))
            os.unlink(path)
            if words:  # what its image has as a volume: else the next run answers with this one's samples
                for word in services[name]["command"]:
                    if word.startswith("--storage.tsdb.path="):
                        shutil.rmtree(word.partition("=")[2])
        else:
            run("podman", "rm", "--force", "--ignore", "--time=20", name, stdout=subprocess.DEVNULL)
    return 0


def compose(words):
    options = argparse.ArgumentParser(prog="docker compose")
    options.add_argument("-f", "--file", action="append", required=True)
    options.add_argument("--profile", action="append", default=[])
    options.add_argument("command", choices=("up", "down", "exec", "kill", "logs"))
    options.add_argument("words", nargs=argparse.REMAINDER)
    given = options.parse_args(words)
    files = [word for name in given.file for word in ("-f", name)]
    files += [word for name in given.profile for word in ("--profile", name)]
    done = subprocess.run(["docker-compose", *files, "config"], check=False, capture_output=True, text=True)
    if done.returncode:
        die(f"docker-compose refuses {' '.join(given.file)}: {done.stderr.strip()}")
    # Compose 1 also prints services of other profiles.
    services = {name: service for name, service in yaml.safe_load(done.stdout)["services"].items()
                if not service.get("profiles") or set(service["profiles"]) & set(given.profile)}
    if given.command == "up":
        return up(services, given.words)
    if given.command == "down":
        return down(services, given.words)
    if not given.words or given.words[0] not in services:
        die(f"compose {given.command}: name one of the services {' '.join(services)}")
    return run("podman", given.command, *given.words)


def main():
    words = sys.argv[1:]
    if words[:1] == ["compose"]:
        return compose(words[1:])
    if words[:1] == ["build"]:
        return build(words[1:])
    if words[:1] == ["run"]:  # ports of the guest's network need not be published
        while "-p" in words:
            at = words.index("-p")
            del words[at:at + 2]
        words[1:1] = ["--network=host", "--no-healthcheck"]
    os.execvp("podman", ["podman"] + words)


if __name__ == "__main__":
    sys.exit(main())
