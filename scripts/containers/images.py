"""Builds the two images in the world of scripts/debian13.sh, and holds them to what docs/operations/install.md says of them.

Arguments: VERSION REVISION [--save]. The programs are in /stage/out.
"""

import datetime
import json
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from engine import REPOSITORY, begin, buildah, forget, inspect, megabytes, podman, wait_for

STAGE = pathlib.Path("/stage")
# What programs of Rust need that are linked to the C library, and certificates. The time zones are in the programs.
PACKAGES = ["base-files", "libc6", "gcc-14-base", "libgcc-s1", "ca-certificates"]
BASE = "localhost/everstep-base:13"
BINARIES = "localhost/everstep-binaries:1"
LOCKED = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--network", "none"]
NEVER = {"sh", "bash", "dash", "busybox", "apt", "apt-get", "dpkg", "perl", "python3"}


def files_of(package):
    listed = subprocess.run(["dpkg-query", "--listfiles", package], text=True, capture_output=True, check=True).stdout
    return [line for line in listed.splitlines() if line not in ("", "/.")]


def build_base():
    """The files of a few packages, and their entries in the package database, where scanners look for them: status.d."""
    root = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp"))
    try:
        # The links lib, lib64 and the like come first: what follows goes through them.
        for package in PACKAGES:
            for name in files_of(package):
                source, target = pathlib.Path(name), root / name.lstrip("/")
                unwanted = "/doc/" in name and not name.endswith("/copyright") or "/lintian/" in name or "/usr/sbin/" in name
                if unwanted or not source.exists(follow_symlinks=False):
                    continue
                if source.is_symlink():
                    if not target.is_symlink():
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.symlink_to(source.readlink())
                elif source.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source, target)
            status = root / "var/lib/dpkg/status.d" / package
            status.parent.mkdir(parents=True, exist_ok=True)
            status.write_text(subprocess.run(["dpkg-query", "--status", package], text=True, capture_output=True, check=True).stdout)
        # Put together from those of the package when it was installed.
        shutil.copytree("/etc/ssl/certs", root / "etc/ssl/certs", symlinks=True, dirs_exist_ok=True)
        shutil.copytree("/usr/share/ca-certificates", root / "usr/share/ca-certificates", dirs_exist_ok=True)
        (root / "etc/passwd").write_text("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")
        (root / "etc/group").write_text("root:x:0:\nnonroot:x:65532:\n")
        for name, mode in (("tmp", 0o1777), ("home/nonroot", 0o700), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755)):
            folder = root / name
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)
        shutil.chown(root / "home/nonroot", 65532, 65532)
        container = buildah("from", "scratch").strip()
        buildah("add", container, root, "/")
        buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "--env", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt", "--user", "65532", container)
        buildah("commit", "--rm", container, BASE)
    finally:
        shutil.rmtree(root)


def build_binaries():
    container = buildah("from", "scratch").strip()
    buildah("add", container, STAGE / "out", "/out")
    buildah("commit", "--rm", container, BINARIES)


def build(target, image, version, revision, created):
    begun = time.monotonic()
    arguments = {"BASE": BASE, "BINARIES": BINARIES, "VERSION": version, "REVISION": revision, "CREATED": created}
    # All that the stages in use copy comes from the image of binaries, so the context is empty.
    context = tempfile.mkdtemp()
    podman("build", "--pull=never", "--file", REPOSITORY / "deploy/Containerfile", "--target", target, "--tag", image,
           *[part for name, value in arguments.items() for part in ("--build-arg", f"{name}={value}")], context)
    return time.monotonic() - begun


def expect(true, what):
    if not true:
        raise SystemExit(f"images: {what}")


def look(image, name, version, revision, created):
    """What the image says of itself, and what is in it."""
    known = inspect("image", image)
    labels = known["Labels"]
    wanted = {"title": name, "licenses": "Apache-2.0", "version": version, "revision": revision, "created": created}
    for key, value in wanted.items():
        found = labels.get(f"org.opencontainers.image.{key}")
        expect(found == value, f"{image}: the label {key} is {found!r} and not {value!r}")
    expect(labels.get("org.opencontainers.image.description"), f"{image} has no description")
    expect(known["User"] == "65532:65532", f"{image} runs as {known['User']!r}")
    root = pathlib.Path(podman("image", "mount", image).strip())
    try:
        for path in root.rglob("*"):
            mode = path.lstat().st_mode
            place = f"{image}: /{path.relative_to(root)}"
            expect(not (stat.S_ISREG(mode) and path.name in NEVER and mode & 0o111), f"{place} is in the image")
            expect(not mode & (stat.S_ISUID | stat.S_ISGID), f"{place} gives rights away")
            writable = mode & 0o002 and not stat.S_ISLNK(mode) and not mode & stat.S_ISVTX
            expect(not writable, f"{place} may be written by everybody")
        document = root / "usr/share/doc/everstep"
        expect((document / "Cargo.lock").read_bytes() == (REPOSITORY / "Cargo.lock").read_bytes(), f"{image}: another Cargo.lock")
        expect((document / "LICENSE").read_bytes() == (REPOSITORY / "LICENSE").read_bytes(), f"{image}: another LICENSE")
        packages = sorted(path.name for path in (root / "var/lib/dpkg/status.d").iterdir())
        expect(packages == sorted(PACKAGES), f"{image}: {packages} are in the package database")
        programs = sorted((path.name, path.stat().st_size) for path in (root / "usr/local/bin").iterdir())
    finally:
        podman("image", "umount", image)
    return known["Size"], programs


def answers(image, program):
    """Each program begins, with nothing but what is in the image, and tells how it is used."""
    done = podman("run", "--rm", *LOCKED, "--entrypoint", program, image, "--help", check=False)
    expect(done.returncode == 0 and "Usage" in done.stdout, f"{image}: {program} --help: {done.returncode} {done.stderr[-500:]}")


def serve(image):
    """One process on an embedded store: an instance from its start to its end, and a stop by the signal that engines send."""
    podman("run", "--detach", "--name", "dev", *LOCKED, "--tmpfs", "/data:mode=1777", image, "dev", "--data", "/data/everstep")
    wait_for("everstep dev", 30, lambda: podman("exec", "dev", "everstep", "instances", "list", check=False).returncode == 0)
    process = inspect("container", "dev")["State"]["Pid"]
    state = pathlib.Path(f"/proc/{process}/status").read_text()
    facts = dict(line.split(":\t", 1) for line in state.splitlines() if ":\t" in line)
    expect(facts["Uid"].split() == ["65532"] * 4, f"it runs as {facts['Uid']}")
    expect(int(facts["CapEff"], 16) == 0 and int(facts["CapBnd"], 16) == 0, f"it may do {facts['CapEff']}, {facts['CapBnd']}")
    expect(facts["NoNewPrivs"] == "1", "it may get privileges")
    order = json.dumps(json.loads((REPOSITORY / "examples/orders.jsonl").open().readline())["input"])
    ended = podman("exec", "-i", "dev", "everstep", "start", "fulfil", "--input", "-", "--wait", give=order, check=False, seconds=60)
    expect(ended.returncode == 0, f"an order in the image: {ended.stdout}{ended.stderr}")
    begun = time.monotonic()
    podman("stop", "--time", "30", "dev")
    code = inspect("container", "dev")["State"]["ExitCode"]
    expect(code == 0, f"everstep dev ended with {code} after SIGTERM: {podman('logs', 'dev', check=False).stderr[-2000:]}")
    podman("rm", "dev")
    return time.monotonic() - begun


def main():
    version, revision = sys.argv[1:3]
    created = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    begin()
    build_base()
    build_binaries()
    base = inspect("image", BASE)["Size"]
    print(f"base: Debian 13, {' '.join(PACKAGES)}: {megabytes(base)}")
    for target, name in (("everstep", "everstep"), ("examples", "everstep-examples")):
        image = f"localhost/{name}:{version}"
        seconds = build(target, image, version, revision, created)
        size, programs = look(image, name, version, revision, created)
        print(f"image {image}: {megabytes(size)}, built in {seconds:.1f} s")
        for program, bytes_of in programs:
            answers(image, f"/usr/local/bin/{program}")
            print(f"  {program}: {megabytes(bytes_of)}")
        if "--save" in sys.argv:
            podman("save", "--format", "oci-archive", "--output", STAGE / f"archives/{name}-{version}.tar", image)
    stopped = serve(f"localhost/everstep:{version}")
    print(f"everstep dev: uid 65532, no capabilities, read-only root, no shell: an order ended; SIGTERM to exit 0 in {stopped:.1f} s")
    forget()
    # Nothing refers to what was built before.
    podman("image", "prune", "--force")
    print("images: both are as docs/operations/install.md says")


main()
