#!/usr/bin/env python3
"""Checks what `docker-compose config` made of compose.yaml against the files around it.

usage: check_compose.py RESOLVED.yaml
Prints a line for each fault; exit status 1 when there is one.
"""

import pathlib
import re
import sys
from urllib.parse import urlparse

import yaml

HERE = pathlib.Path(__file__).resolve().parent
PINNED = re.compile(r":v?\d+\.\d+\.\d+(@sha256:[0-9a-f]{64})?$")


def load(path):
    return yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))


def check_services(services):
    """Images pinned, mounted files there, pages on this host only, our containers without rights."""
    for name, service in services.items():
        image = service.get("image", "")
        ours = "build" in service
        if not ours and not PINNED.search(image):
            yield f"{name}: image '{image}' carries no version: write name:1.2.3"
        if ours:
            build = service["build"]
            dockerfile = pathlib.Path(build["context"]) / build["dockerfile"]
            stages = re.findall(r"^FROM .* AS (\S+)$", dockerfile.read_text(), re.MULTILINE)
            if build["target"] not in stages:
                yield f"{name}: {dockerfile} has no stage '{build['target']}'"
            if service.get("cap_drop") != ["ALL"] or not service.get("read_only"):
                yield f"{name}: runs with capabilities or may write its files"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0] if isinstance(volume, str) else volume["source"]
            if not pathlib.Path(source).is_file():
                yield f"{name}: mounts {source}, which is no file"
        for port in service.get("ports", []):
            if not str(port).startswith("127.0.0.1:"):
                yield f"{name}: publishes port {port} to more than this host"


def metrics_port(services, name):
    """The port on which a service shows metrics, as its file or its options say."""
    if name == "server":
        return int(load(HERE / "server.yaml")["metrics"]["address"].rpartition(":")[2])
    for word in services[name].get("command") or []:
        if word.startswith("--metrics="):
            return int(word.rpartition(":")[2])
    return None


def check_names(services):
    """Each service that is scraped or shown exists, on the port where it answers."""
    own = load(HERE / "prometheus.yml")["scrape_configs"]
    rules = load(HERE / "../../metrics/prometheus/prometheus.yml")["scrape_configs"]
    if {job["job_name"] for job in own} != {job["job_name"] for job in rules}:
        yield "prometheus.yml: jobs other than those that the rules in metrics/prometheus know"
    for job in own:
        for target in (t for group in job["static_configs"] for t in group["targets"]):
            host, _, port = target.rpartition(":")
            if host not in services:
                yield f"prometheus.yml: {target}: no service '{host}'"
            elif metrics_port(services, host) != int(port):
                yield f"prometheus.yml: {target}: {host} shows metrics on {metrics_port(services, host)}"
    for source in load(HERE / "grafana/datasource.yml")["datasources"]:
        url = urlparse(source["url"])
        if url.hostname not in services:
            yield f"grafana/datasource.yml: no service '{url.hostname}'"
    server = load(HERE / "server.yaml")
    load_uris = [w for w in services["load"]["command"] if w.startswith("remora://")]
    regions = {region["name"] for region in server["regions"]}
    for uri in load_uris:
        if urlparse(uri).path.lstrip("/") not in regions:
            yield f"load: {uri}: server.yaml has no such region"
    if not load_uris:
        yield "load: no URI"


def check_cluster(services):
    """The servers of the profile: each by its own name and ports, which its health check knows."""
    members = {name: service["environment"] for name, service in services.items()
               if "REMORA_SERVER" in (service.get("environment") or {})}
    if len(members) < 3:
        yield f"profile cluster: {len(members)} servers, a mirror that loses one needs three"
    ports = []
    for name, variables in members.items():
        if not variables["REMORA_SERVER"] == services[name].get("hostname") == name:
            yield f"{name}: its REMORA_SERVER or its hostname is another one"
        ports += [str(variables["REMORA_PORT"]), variables["REMORA_HEALTH_ADDRESS"].rpartition(":")[2]]
    if len(set(ports)) != len(ports):
        yield f"profile cluster: servers share a port: {' '.join(ports)}"
    needs = set(services.get("client", {}).get("depends_on", {}))
    if needs != set(members):
        yield f"client: waits for {' '.join(sorted(needs))}, the servers are {' '.join(members)}"
    for url in load(HERE / "member.yaml")["cluster"]["etcd"]:
        if urlparse(url).hostname not in services:
            yield f"member.yaml: {url}: no such service"


def main():
    services = load(sys.argv[1])["services"]
    faults = [*check_services(services), *check_names(services), *check_cluster(services)]
    for fault in faults:
        print(f"compose: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
