"""Brings deploy/compose.yaml up, tries it as its head says, and takes it down.

What differs from a laptop with Docker: images of registries are made of Debian's packages, with the entries beside this file; Grafana, of
which there is no package, is left out; and health checks, for which podman wants timers of systemd, are asked for here.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from engine import REPOSITORY, begin, forget, image_exists, inspect, podman, postgres_image, rabbitmq_image, server_image, wait_for

LEFT_OUT = {"grafana"}
PLACE = pathlib.Path("/tmp/laptop")
FILE = REPOSITORY / "deploy/compose.yaml"
BEGUN = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - BEGUN:6.1f} s] {text}", flush=True)


def compose(*arguments, seconds=300):
    done = subprocess.run(["docker-compose", "-f", "deploy/compose.yaml", *arguments], cwd=PLACE, text=True, capture_output=True, timeout=seconds)
    if done.returncode:
        raise SystemExit(f"docker-compose {' '.join(arguments)}: {done.stdout[-1500:]}{done.stderr[-3000:]}")
    return done.stdout


def images(services):
    """The images that the file names, under their names."""
    program = lambda path: ("--env", f"PROGRAM={path}", "--env", "PLACE=/prometheus")
    makers = {
        "docker.io/library/postgres": postgres_image,
        "docker.io/library/rabbitmq": rabbitmq_image,
        "docker.io/prom/prometheus": lambda name: server_image("prometheus", name, "prometheus-entry.sh", *program("/usr/bin/prometheus")),
        "quay.io/prometheuscommunity/postgres-exporter": lambda name: server_image(
            "prometheus", name, "prometheus-entry.sh", "--env", "PROGRAM=/usr/bin/prometheus-postgres-exporter"),
    }
    for image in sorted({service["image"] for service in services.values()}):
        name, _, tag = image.rpartition(":")
        if name in makers:
            makers[name](image)
            continue
        version = next(line.split('"')[1] for line in (REPOSITORY / "Cargo.toml").open() if line.startswith("version"))
        local = f"localhost/{name}:{version}"
        if not image_exists(local):
            raise SystemExit(f"compose: {local} is missing: scripts/images.sh builds it")
        # Docker's own name of an image that names no registry.
        podman("tag", local, f"docker.io/library/{name}:{tag}")


def ask_health(services, done):
    """What timers of systemd would do: each health check, with its interval."""
    for name, service in services.items():
        if "healthcheck" in service:
            interval = float(service["healthcheck"]["interval"].rstrip("s"))
            threading.Thread(target=ask_one, args=(name, interval, done), daemon=True).start()


def ask_one(name, interval, done):
    while not done.is_set():
        podman("healthcheck", "run", f"everstep-{name}-1", check=False)
        done.wait(interval)


def command_at_the_head():
    """The line of the file's head that starts an order, as a reader would type it."""
    line = next(line for line in FILE.read_text().splitlines() if line.startswith("#   docker compose") and " start " in line)
    return line.removeprefix("#").strip().replace("docker compose", "docker-compose", 1)


def prometheus(path):
    with urllib.request.urlopen(f"http://127.0.0.1:9090/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]


def targets_up(expected):
    found = {target["scrapePool"] + " " + target["scrapeUrl"].split("?")[0]: target for target in prometheus("targets")["activeTargets"]}
    down = {name: target["lastError"] for name, target in found.items() if target["health"] != "up"}
    if down or len(found) != expected:
        raise ValueError(f"{len(found)} targets, down: {down}")
    return found


def rules_healthy():
    rules = [rule for group in prometheus("rules")["groups"] for rule in group["rules"]]
    bad = {rule["name"]: rule.get("lastError") or rule["health"] for rule in rules if rule["health"] != "ok"}
    if bad or not rules:
        raise ValueError(f"{len(rules)} rules, not well: {bad}")
    return rules


def main():
    whole = yaml.safe_load(FILE.read_text())
    services = {name: service for name, service in whole["services"].items() if name not in LEFT_OUT}
    scraped = yaml.safe_load((FILE.parent / "prometheus/prometheus.yaml").read_text())["scrape_configs"]
    expected = sum(len(static["targets"]) for job in scraped for static in job["static_configs"])
    PLACE.mkdir()
    (PLACE / "deploy").symlink_to(FILE.parent)
    begin()
    images(services)
    socket = "unix:///run/podman.sock"
    engine = subprocess.Popen(["podman", "system", "service", "--time", "0", socket], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ["DOCKER_HOST"] = socket
    wait_for("the engine", 30, lambda: pathlib.Path("/run/podman.sock").exists())
    done = threading.Event()
    try:
        compose("config", "--quiet")
        ask_health(services, done)
        begun = time.monotonic()
        compose("up", "--detach", "--no-build", *services)
        say(f"docker-compose up: {len(services)} services in {time.monotonic() - begun:.1f} s")
        (PLACE / "order.json").write_text(json.dumps(json.loads((REPOSITORY / "examples/orders.jsonl").open().readline())["input"]))
        command = command_at_the_head()

        def start():
            tried = subprocess.run(["bash", "-c", command], cwd=PLACE, text=True, capture_output=True, timeout=60)
            if tried.returncode:
                raise ValueError(tried.stdout + tried.stderr)
            return True

        wait_for(command, 60, start)
        began = time.monotonic()
        get = lambda: json.loads(compose("exec", "-T", "coordinator", "everstep", "--output", "json", "instances", "get", "fulfil", "o-1"))
        ended = wait_for("the order", 60, lambda: (found := get())["status"] not in ("queued", "running", "waiting") and found)
        if ended["status"] != "complete":
            raise SystemExit(f"compose: the order ended {ended}")
        say(f"the order is complete, {time.monotonic() - began:.1f} s after its start: {command}")
        found = wait_for("all targets of Prometheus", 90, lambda: targets_up(expected))
        say(f"Prometheus: {len(found)} targets are up")
        rules = wait_for("all rules of Prometheus", 90, rules_healthy)
        say(f"Prometheus: {len(rules)} rules are evaluated without an error")
        for name in sorted(services):
            state = inspect("container", f"everstep-{name}-1")["State"]
            wanted = "exited" if name == "migrate" else "running"
            if state["Status"] != wanted or state["ExitCode"] != 0:
                raise SystemExit(f"compose: {name} is {state['Status']}, {state['ExitCode']}")
        begun = time.monotonic()
        compose("stop")
        ends = {name: inspect("container", f"everstep-{name}-1")["State"]["ExitCode"] for name in ("coordinator", "worker", "labels", "payments")}
        if any(ends.values()):
            raise SystemExit(f"compose: after stop: {ends}")
        done.set()
        compose("down", "--volumes")
        say(f"stopped, each program of ours with 0, and taken down in {time.monotonic() - begun:.1f} s")
        left = podman("ps", "--all", "--quiet") + podman("volume", "ls", "--quiet") + podman("network", "ls", "--filter", "name=everstep", "--quiet")
        if left.strip():
            raise SystemExit(f"compose: left after down: {left}")
    except BaseException:
        for name in services:
            logs = podman("logs", "--tail", "15", f"everstep-{name}-1", check=False)
            print(f"--- {name}\n{logs.stdout}{logs.stderr}", file=sys.stderr)
        raise
    finally:
        done.set()
        engine.terminate()
        engine.wait(20)
    forget()
    print(f"compose: {len(services)} services ran ({', '.join(sorted(LEFT_OUT))} left out), 1 order ended, {len(found)} targets up, all taken down")


if __name__ == "__main__":
    main()
