"""The container engine of the checks: podman of Debian 13, in the world that scripts/debian13.sh makes.

Not for use elsewhere: it forgets all containers, pods, networks, volumes and secrets that it finds.
"""

import hashlib
import json
import os
import pathlib
import resource
import subprocess
import time

REPOSITORY = pathlib.Path("/repository")
FOLDERS = pathlib.Path("/folders")


def begin():
    """Settings for a machine without systemd, and an engine without containers."""
    # The defaults of the engine may be more than this machine lets anybody have.
    files = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 65536)
    settings = pathlib.Path("/run/containers.conf")
    settings.write_text(
        f"""[containers]
default_ulimits = ["nofile={files}:{files}", "nproc=16384:16384"]
[engine]
# crun, the default, refuses machines with control groups of both versions.
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
    )
    os.environ["CONTAINERS_CONF"] = str(settings)
    os.environ["PODMAN_IGNORE_CGROUPSV1_WARNING"] = "1"
    forget()


def forget():
    """Removes everything but images. Quick: nothing is asked to stop."""
    podman("pod", "rm", "--all", "--force", "--time", "0")
    podman("rm", "--all", "--force", "--time", "0", "--volumes")
    podman("volume", "prune", "--force")
    for secret in podman("secret", "ls", "--format", "{{.Name}}").split():
        podman("secret", "rm", secret)
    for network in podman("network", "ls", "--format", "{{.Name}}").split():
        if network != "podman":
            podman("network", "rm", "--force", network)


def podman(*arguments, check=True, give=None, seconds=300):
    """Runs podman and returns what it prints. `check=False`: returns the whole result, whatever it is."""
    done = subprocess.run(
        ["podman", *map(str, arguments)], input=give, text=True, capture_output=True, timeout=seconds, check=False
    )
    if not check:
        return done
    if done.returncode:
        raise SystemExit(f"podman {' '.join(map(str, arguments[:6]))} failed with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def inspect(kind, name):
    """What the engine knows of an image, a container or a pod."""
    found = json.loads(podman(kind, "inspect", name))
    return found[0] if isinstance(found, list) else found


def image_exists(name):
    return podman("image", "exists", name, check=False).returncode == 0


def server_image(folder, name, entry, *changes):
    """An image of a folder of Debian 13, with an entry of ours; made again when one of them has changed."""
    source = FOLDERS / folder
    script = REPOSITORY / "scripts/containers" / entry
    made = (FOLDERS / f"{folder}.made").stat().st_mtime_ns
    label = hashlib.sha256(f"{made} {script.read_text()} {changes}".encode()).hexdigest()
    if image_exists(name) and inspect("image", name)["Labels"].get("made") == label:
        return
    begun = time.monotonic()
    archive = subprocess.Popen(
        ["tar", "--create", "--directory", source, "--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*", "."],
        stdout=subprocess.PIPE,
    )
    subprocess.run(["podman", "import", "--quiet", "-", f"{name}-folder"], stdin=archive.stdout, check=True, capture_output=True, timeout=300)
    if archive.wait():
        raise SystemExit(f"{source} could not be read")
    container = subprocess.run(["buildah", "from", "--pull-never", f"{name}-folder"], text=True, capture_output=True, check=True).stdout.strip()
    buildah("copy", "--chmod", "755", container, script, "/usr/local/bin/entry")
    buildah("config", "--entrypoint", '["/usr/local/bin/entry"]', "--label", f"made={label}", *changes, container)
    buildah("commit", "--rm", container, name)
    print(f"image {name}: of Debian's packages, {megabytes(inspect('image', name)['Size'])}, {time.monotonic() - begun:.0f} s", flush=True)


def postgres_image(name):
    server_image("postgres", name, "postgres-entry.sh", "--env", "PATH=/usr/lib/postgresql/17/bin:/usr/local/bin:/usr/sbin:/usr/bin",
                 "--stop-signal", "SIGINT", "--volume", "/var/lib/postgresql/data")


def rabbitmq_image(name):
    server_image("rabbitmq", name, "rabbitmq-entry.sh", "--env", "PATH=/usr/lib/rabbitmq/bin:/usr/local/bin:/usr/sbin:/usr/bin",
                 "--env", "HOME=/var/lib/rabbitmq", "--env", "RABBITMQ_LOGS=-",
                 "--env", "RABBITMQ_ENABLED_PLUGINS=rabbitmq_management,rabbitmq_prometheus", "--volume", "/var/lib/rabbitmq")


def buildah(*arguments, seconds=300):
    done = subprocess.run(["buildah", *map(str, arguments)], text=True, capture_output=True, timeout=seconds, check=False)
    if done.returncode:
        raise SystemExit(f"buildah {' '.join(map(str, arguments[:6]))} failed with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def megabytes(size):
    return f"{size / 1e6:.1f} MB"


def wait_for(what, seconds, ask):
    """Asks until the answer is true, and returns it. `ask` may raise what says that it is too early."""
    end = time.monotonic() + seconds
    reason = "it was never asked"
    while time.monotonic() < end:
        try:
            answer = ask()
            if answer:
                return answer
            reason = "not yet"
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            reason = str(error)
        time.sleep(0.2)
    raise SystemExit(f"{what}: not within {seconds} s: {reason}")
