"""Plays a built overlay as pods, runs orders on them, replaces every Deployment under load, and counts.

Argument: what `kubectl kustomize` gave. What is changed in it, because podman is no Kubernetes:

- Each Deployment is played alone, under a name with a letter: during a rolling update the old pod and the new one stand side by side,
  and names of pods are unique. There is no scheduler, so its number of pods is one.
- Probes are taken out and asked from outside, with the periods, timeouts and thresholds that they have: so does the kubelet. Podman would
  run curl for them inside of the containers, by timers of systemd.
- $(NAME) in the value of a variable is put in here: podman knows it in commands only.

Kinds that podman does not know are left out: ServiceAccount, PodDisruptionBudget, NetworkPolicy, and those of the operators, whose work is
done here: PostgreSQL and RabbitMQ are pods of Debian's packages, with what Cluster and RabbitmqCluster say of their settings; vhost, users,
permissions and policies are those of Vhost, User, Permission, TopicPermission and Policy; the secrets have the names and keys that the
operators give them. Names of Services are aliases in the network.
"""

import base64
import concurrent.futures
import copy
import hashlib
import itertools
import json
import os
import pathlib
import re
import secrets
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from engine import REPOSITORY, begin, forget, image_exists, inspect, podman, postgres_image, rabbitmq_image, wait_for

NETWORK = "everstep"
POSTGRES = "localhost/debian-postgres:17"
RABBITMQ = "localhost/debian-rabbitmq:4"
FIRST_ORDERS = 50
# During the rolling update, so many at once, and so long between an answer and the next.
BATCH, PAUSE_SECONDS = 5, 0.1
WORK = pathlib.Path("/tmp/pods")
BEGUN = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - BEGUN:6.1f} s] {text}", flush=True)


# --- the manifest ----------------------------------------------------------------------------------------------------


class Manifest:
    """The documents of an overlay."""

    def __init__(self, path):
        self.documents = [document for document in yaml.safe_load_all(path.read_text()) if document]

    def all(self, kind):
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind, name):
        found = [document for document in self.all(kind) if document["metadata"]["name"] == name]
        if len(found) != 1:
            raise SystemExit(f"pods: {len(found)} of {kind} {name} in the overlay")
        return found[0]


def container_of(document):
    containers = document["spec"]["template"]["spec"]["containers"]
    assert len(containers) == 1, "one container in each pod"
    return containers[0]


def put_in_variables(container, known):
    """$(NAME) in the value of a variable, from the variables before it, secrets included."""
    values = {}
    for variable in container["env"]:
        if "value" in variable:
            variable["value"] = re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], variable["value"])
            values[variable["name"]] = variable["value"]
        else:
            reference = variable["valueFrom"]["secretKeyRef"]
            values[variable["name"]] = known[reference["name"]][reference["key"]]


# --- what the operators would make -----------------------------------------------------------------------------------


def secret(name, values):
    document = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()},
    }
    podman("kube", "play", "-", give=yaml.safe_dump(document))
    return values


def certificate():
    """An authority and a certificate for the names that docs/operations/install.md asks for."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=WORK, check=True, capture_output=True)

    names = "DNS:everstep-rabbitmq,DNS:everstep-rabbitmq.everstep.svc,DNS:*.everstep-rabbitmq-nodes.everstep"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=authority of the check",
            "-addext", "basicConstraints=critical,CA:TRUE", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=everstep-rabbitmq",
            "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-keyout", "tls.key", "-out", "tls.crt")
    return {name: (WORK / name).read_text() for name in ("tls.crt", "tls.key", "ca.crt")}


def operators_secrets():
    """Those that the two operators make, and the one that the operator of the cluster is asked for; names and keys as they are there."""
    made = {}
    password = secrets.token_urlsafe(18)
    made["everstep-postgres-app"] = {
        "username": "everstep",
        "password": password,
        "uri": f"postgresql://everstep:{password}@everstep-postgres-rw.everstep:5432/everstep",
    }
    for role in ("coordinator", "worker", "producer"):
        made[f"everstep-{role}-user-credentials"] = {"username": secrets.token_urlsafe(12), "password": secrets.token_urlsafe(18)}
    made["everstep-rabbitmq-tls"] = certificate()
    for name, values in made.items():
        secret(name, values)
    return made


def definitions(manifest, known):
    """What the topology operator would tell RabbitMQ, as a file that RabbitMQ loads when it starts."""

    def user_of(document):
        return known[f"{document['spec']['userReference']['name']}-user-credentials"]["username"]

    def hashed(password):
        salt = secrets.token_bytes(4)
        return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()

    users = []
    for document in manifest.all("User"):
        credentials = known[f"{document['metadata']['name']}-user-credentials"]
        users.append({"name": credentials["username"], "password_hash": hashed(credentials["password"]),
                      "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": document["spec"].get("tags", [])})
    specs = lambda kind: [(document, document["spec"]) for document in manifest.all(kind)]
    return {
        "users": users,
        "vhosts": [{"name": spec["name"], "default_queue_type": spec["defaultQueueType"],
                    "metadata": {"default_queue_type": spec["defaultQueueType"]}} for _, spec in specs("Vhost")],
        "permissions": [{"user": user_of(document), "vhost": spec["vhost"], **spec["permissions"]} for document, spec in specs("Permission")],
        "topic_permissions": [{"user": user_of(document), "vhost": spec["vhost"], **spec["permissions"]} for document, spec in specs("TopicPermission")],
        "policies": [{"name": spec["name"], "vhost": spec["vhost"], "pattern": spec["pattern"], "apply-to": spec["applyTo"],
                      "priority": spec.get("priority", 0), "definition": spec["definition"]} for _, spec in specs("Policy")],
    }


def server_pod(name, image, **container):
    """A pod with one container. Names of volumes are unique among all pods: podman does not tell those of two pods apart."""
    volumes = container.pop("volumes", [])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Always", "containers": [{"name": "server", "image": image, "imagePullPolicy": "Never", **container}], "volumes": volumes},
    }


def play_postgres(manifest, known):
    cluster = manifest.one("Cluster", "everstep-postgres")["spec"]
    settings = [part for name, value in cluster["postgresql"]["parameters"].items() for part in ("-c", f"{name}={value}")]
    owner = known["everstep-postgres-app"]
    pod = server_pod(
        "postgres", POSTGRES, args=settings, resources={"limits": cluster["resources"]["limits"]},
        env=[{"name": "POSTGRES_USER", "value": owner["username"]}, {"name": "POSTGRES_PASSWORD", "value": owner["password"]},
             {"name": "POSTGRES_DB", "value": cluster["bootstrap"]["initdb"]["database"]}],
        volumeMounts=[{"name": "postgres-data", "mountPath": "/var/lib/postgresql/data"}, {"name": "shm", "mountPath": "/dev/shm"}],
        volumes=[{"name": "postgres-data", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
    )
    play([pod], "everstep-postgres-rw.everstep")


def play_rabbitmq(manifest, known):
    cluster = manifest.one("RabbitmqCluster", "everstep-rabbitmq")["spec"]
    limit = cluster["resources"]["limits"]["memory"]
    assert limit.endswith("Gi"), limit
    # The first as the operator writes it: without it a node takes the memory of the whole machine for its own.
    settings = cluster["rabbitmq"]["additionalConfig"] + "\n".join([
        f"total_memory_available_override_value = {int(float(limit[:-2]) * 2**30 * 0.8)}",
        "listeners.tcp = none",
        "listeners.ssl.default = 5671",
        "ssl_options.certfile = /etc/rabbitmq-tls/tls.crt",
        "ssl_options.keyfile = /etc/rabbitmq-tls/tls.key",
        "load_definitions = /etc/rabbitmq/conf.d/definitions.json",
        "",
    ])
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "rabbitmq-files"},
        "data": {"10-operator.conf": settings, "definitions.json": json.dumps(definitions(manifest, known))},
    }
    pod = server_pod(
        "rabbitmq", RABBITMQ, resources={"limits": cluster["resources"]["limits"]},
        volumeMounts=[{"name": "files", "mountPath": "/etc/rabbitmq/conf.d"}, {"name": "tls", "mountPath": "/etc/rabbitmq-tls"}],
        volumes=[{"name": "files", "configMap": {"name": "rabbitmq-files"}}, {"name": "tls", "secret": {"secretName": "everstep-rabbitmq-tls"}}],
    )
    play([files, pod], "everstep-rabbitmq")


def play_payments(image):
    """What the example's worker calls. It refuses nothing here: an attempt that fails shall be the rolling update's doing."""
    pod = server_pod(
        "payments", image, command=["/usr/local/bin/payment"],
        args=["--listen", "0.0.0.0:8080", "--ledger", "/data/charges.jsonl", "--unavailable-percent", "0", "--drop-percent", "0"],
        securityContext={"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        volumeMounts=[{"name": "payments-data", "mountPath": "/data"}], volumes=[{"name": "payments-data", "emptyDir": {}}],
    )
    # Podman gives an empty folder to whom the pod runs as; a kubelet lets everybody write to it.
    pod["spec"]["securityContext"] = {"runAsUser": 65532, "runAsGroup": 65532}
    play([pod], "payments")


def play(documents, *aliases):
    network = NETWORK + (":" + ",".join(f"alias={alias}" for alias in aliases) if aliases else "")
    podman("kube", "play", "--network", network, "-", give=yaml.safe_dump_all(documents))


def address_of(container):
    """Where the pod of a container is reached: its network is that of the pod's first container."""
    known = inspect("container", container)
    if known["Pod"]:
        known = inspect("container", inspect("pod", known["Pod"])["InfraContainerID"])
    return known["NetworkSettings"]["Networks"][NETWORK]["IPAddress"]


# --- what the kubelet and the controller of Deployments would do -----------------------------------------------------


class Pod:
    """One pod of a Deployment."""

    def __init__(self, manifest, deployment, letter, known):
        self.deployment = deployment
        self.name = f"{deployment}-{letter}"
        document = copy.deepcopy(manifest.one("Deployment", deployment))
        spec = document["spec"]["template"]["spec"]
        container = container_of(document)
        document["metadata"]["name"] = self.name
        document["spec"]["replicas"] = 1
        self.probes = {kind: container.pop(f"{kind}Probe") for kind in ("startup", "liveness", "readiness")}
        self.grace = spec["terminationGracePeriodSeconds"]
        self.min_ready = document["spec"]["minReadySeconds"]
        put_in_variables(container, known)
        self.ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.container = f"{self.name}-pod-{container['name']}"
        self.restarts = self.misses = 0
        self.answer = None
        self.stopped = self.ready_seconds = self.stop_seconds = self.exit_code = None
        self.begun = time.monotonic()
        play([*manifest.all("ConfigMap"), document])
        self.address = address_of(self.container)

    def ask(self, kind):
        probe = self.probes[kind]
        port = self.ports[probe["httpGet"]["port"]]
        url = f"http://{self.address}:{port}{probe['httpGet']['path']}"
        try:
            with urllib.request.urlopen(url, timeout=probe.get("timeoutSeconds", 1)) as answer:
                self.answer = None
                return 200 <= answer.status < 400
        except urllib.error.HTTPError as error:
            self.answer = f"{error.code} {error.read().decode(errors='replace').strip()}"
        except OSError as error:
            self.answer = str(error)
        return False

    def wait_ready(self):
        """Startup within what its probe allows, then readiness, held for minReadySeconds: a miss alone does not end it."""
        startup = self.probes["startup"]
        wait_for(f"{self.name}: startup", startup["periodSeconds"] * startup["failureThreshold"], lambda: self.ask("startup"))
        wait_for(f"{self.name}: readiness", 60, lambda: self.ask("readiness"))
        self.ready_seconds = time.monotonic() - self.begun
        end = time.monotonic() + self.min_ready
        missed = 0
        while time.monotonic() < end:
            missed = 0 if self.ask("readiness") else missed + 1
            if missed:
                say(f"{self.name} was ready, and says {self.answer}")
            if missed >= self.probes["readiness"]["failureThreshold"]:
                raise SystemExit(f"pods: {self.name} was ready and is not any more")
            time.sleep(1)
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        """The liveness probe, with its period: so many misses in a row would be a restart."""
        probe = self.probes["liveness"]
        missed = 0
        while self.stopped is None:
            missed = 0 if self.ask("liveness") else missed + 1
            if missed >= probe["failureThreshold"] and self.stopped is None:
                self.misses += 1
            time.sleep(probe["periodSeconds"] / 2)

    def stop(self):
        """SIGTERM, and SIGKILL after the grace period."""
        self.stopped = time.monotonic()
        self.restarts = inspect("container", self.container)["RestartCount"]
        podman("stop", "--time", self.grace, self.container)
        self.stop_seconds = time.monotonic() - self.stopped
        self.exit_code = inspect("container", self.container)["State"]["ExitCode"]

    def row(self):
        known = inspect("container", self.container)
        user = known["Config"]["User"]
        told = "" if self.stop_seconds is None else f"{self.stop_seconds:.1f} s, exit {self.exit_code}"
        return f"  {self.name:<28} {self.ready_seconds:>7.1f} s  {max(self.restarts, known['RestartCount']):>8}  {user:<12} {told}"


def run_job(manifest, known):
    job = copy.deepcopy(manifest.one("Job", "everstep-migrate"))
    put_in_variables(container_of(job), known)
    begun = time.monotonic()
    play([job])
    container = next(name for name in podman("ps", "--all", "--format", "{{.Names}}").split() if name.startswith("everstep-migrate-pod-"))
    podman("wait", container)
    state = inspect("container", container)["State"]
    if state["ExitCode"] != 0:
        raise SystemExit(f"pods: the migration ended with {state['ExitCode']}: {logs(container)}")
    say(f"the Job has migrated, in {time.monotonic() - begun:.1f} s, {inspect('container', container)['RestartCount']} restarts")


def logs(container, lines=20):
    done = podman("logs", "--tail", lines, container, check=False)
    return done.stdout + done.stderr


def roll(manifest, pods, known):
    """A rolling update of one pod: the new one is ready before the old one is told to stop."""
    (old,) = pods
    strategy = manifest.one("Deployment", old.deployment)["spec"]["strategy"]["rollingUpdate"]
    unavailable = strategy["maxUnavailable"]
    # A share is rounded down, so of one pod none.
    if unavailable != 0 and not (isinstance(unavailable, str) and unavailable.endswith("%") and unavailable != "100%"):
        raise SystemExit(f"pods: of one {old.deployment}, {unavailable} may be missing in a rolling update: nothing would be left")
    new = Pod(manifest, old.deployment, "b", known)
    new.wait_ready()
    pods.append(new)
    old.stop()
    say(f"{old.deployment}: {new.name} ready after {new.ready_seconds:.1f} s, {old.name} stopped in {old.stop_seconds:.1f} s")


# --- orders ----------------------------------------------------------------------------------------------------------


class Orders:
    """Starts orders by the command inside of a coordinator's container, and asks what became of them."""

    def __init__(self, coordinators):
        self.coordinators = coordinators
        lines = map(json.loads, (REPOSITORY / "examples/orders.jsonl").open())
        good = [line["input"] for line in lines if line["expect"] == "complete"]
        self.inputs = itertools.cycle(good)
        self.started = []
        self.repeated = 0
        self.ending = threading.Event()

    def start(self, count):
        """As anybody would do it who must not lose an order: the same again until the answer is yes."""
        batch = [{"id": f"order-{len(self.started) + number:05}", "input": next(self.inputs)} for number in range(1, count + 1)]
        lines = "".join(json.dumps(order) + "\n" for order in batch)
        end = time.monotonic() + 60
        while True:
            pod = [pod for pod in self.coordinators if pod.stopped is None][-1]
            done = podman("exec", "-i", pod.container, "everstep", "start", "--batch", "-", "fulfil", give=lines, check=False)
            if done.returncode == 0:
                break
            if time.monotonic() > end:
                raise SystemExit(f"pods: orders cannot be started: {done.stdout}{done.stderr}")
            self.repeated += 1
            time.sleep(0.2)
        self.started += [order["id"] for order in batch]

    def keep_on(self):
        while not self.ending.is_set():
            self.start(BATCH)
            self.ending.wait(PAUSE_SECONDS)

    def ask(self, paths):
        """The HTTP API is served inside of the pod only: it is asked from there, as `kubectl port-forward` does."""
        pod = [pod for pod in self.coordinators if pod.stopped is None][-1]
        process = inspect("container", pod.container)["State"]["Pid"]
        answers, failure = [], []

        def work():
            try:
                with open(f"/proc/{process}/ns/net") as network:
                    os.setns(network.fileno(), os.CLONE_NEWNET)
                for path in paths:
                    with urllib.request.urlopen(f"http://127.0.0.1:7070{path}", timeout=30) as answer:
                        answers.append(json.load(answer))
            except (OSError, ValueError) as error:
                failure.append(error)

        # A thread of its own, because it does not come back from that network.
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return answers

    def wait_ended(self, seconds):
        open_instances = "/v1/default/instances?status=open&limit=1"
        wait_for("all orders ended", seconds, lambda: not self.ask([open_instances])[0]["instances"])

    def count(self):
        """Of all that were started: how many are complete, and every entry of a journal that tells of more than a first attempt that succeeded."""
        complete, failed = 0, []
        paths = [f"/v1/default/workflows/fulfil/instances/{name}" for name in self.started]
        for name, instance in zip(self.started, self.ask(paths)):
            complete += instance["status"] == "complete"
        for name, journal in zip(self.started, self.ask([f"{path}/journal?limit=1000" for path in paths])):
            for entry in journal["entries"]:
                again = (entry.get("attempt") or 1) > 1
                if entry["kind"] in ("lost", "parked") or again or entry.get("error") or entry.get("outcome") not in (None, "succeeded", "complete"):
                    failed.append((name, {key: value for key, value in entry.items() if key not in ("input", "output")}))
        return complete, failed


def charges():
    """The ledger of the payment service: how often each order was charged."""
    root = pathlib.Path(f"/proc/{inspect('container', 'payments-server')['State']['Pid']}/root")
    counted = {}
    for line in (root / "data/charges.jsonl").open():
        order = json.loads(line)["order"]
        counted[order] = counted.get(order, 0) + 1
    return counted


# --- the check -------------------------------------------------------------------------------------------------------


def main():
    try:
        check()
    except BaseException:
        for container in podman("ps", "--all", "--format", "{{.Names}}").split():
            if not container.endswith("-infra"):
                print(f"--- {container}\n{logs(container)}")
        raise


def check():
    manifest = Manifest(pathlib.Path(sys.argv[1]))
    WORK.mkdir()
    begin()
    postgres_image(POSTGRES)
    rabbitmq_image(RABBITMQ)
    for image in sorted({container_of(document)["image"] for kind in ("Deployment", "Job") for document in manifest.all(kind)}):
        local = "localhost/" + image.split("/")[-1]
        if not image_exists(local):
            raise SystemExit(f"pods: {local} is missing: scripts/images.sh builds it")
        # The name that the manifest says is found here, and not asked of a registry.
        podman("tag", local, image)
    podman("network", "create", NETWORK)
    known = operators_secrets()
    play_postgres(manifest, known)
    play_rabbitmq(manifest, known)
    play_payments(container_of(manifest.one("Deployment", "everstep-worker-orders"))["image"])
    wait_for("PostgreSQL", 60, lambda: podman("exec", "postgres-server", "pg_isready", "-h", "127.0.0.1", check=False).returncode == 0)
    wait_for("RabbitMQ", 60, lambda: podman("exec", "rabbitmq-server", "rabbitmq-diagnostics", "-q", "check_port_connectivity", check=False).returncode == 0)
    say("PostgreSQL and RabbitMQ are there")

    # All at once, as `kubectl apply` does it: coordinators that come up before the tables are there end, and are started again.
    names = [document["metadata"]["name"] for document in manifest.all("Deployment")]
    pods = {name: [Pod(manifest, name, "a", known)] for name in names}
    run_job(manifest, known)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda both: both[0].wait_ready(), pods.values()))
    say(f"{len(pods)} pods are ready")

    orders = Orders(pods["everstep-coordinator"])
    orders.start(FIRST_ORDERS)
    orders.wait_ended(120)
    say(f"{FIRST_ORDERS} orders have ended")

    load = threading.Thread(target=orders.keep_on)
    load.start()
    try:
        for name in sorted(names, key=lambda name: name != "everstep-coordinator"):
            roll(manifest, pods[name], known)
    finally:
        orders.ending.set()
        load.join()
    orders.wait_ended(120)
    complete, failed = orders.count()
    counted = charges()
    wrong = [name for name in orders.started if counted.get(name) != 1]

    print(f"  {'pod':<28} {'ready':>9}  {'restarts':>8}  {'user':<12} told to stop")
    everyone = [pod for both in pods.values() for pod in both]
    for pod in everyone:
        print(pod.row())
    print(f"  starts that had to be said again: {orders.repeated}")
    faults = [f"{pod.name} did not answer its liveness probe" for pod in everyone if pod.misses]
    faults += [f"{pod.name} ended with {pod.exit_code}" for pod in everyone if pod.exit_code not in (None, 0)]
    faults += [f"{pod.name} needed {pod.stop_seconds:.0f} s to stop" for pod in everyone if pod.stop_seconds and pod.stop_seconds >= pod.grace]
    faults += [f"{name} was charged {counted.get(name, 0)} times" for name in wrong]
    faults += [f"{name}: {entry}" for name, entry in failed]
    for fault in faults[:20]:
        print(f"  {fault}")
    print(f"pods: {complete} orders ended, {len(failed)} failed attempts, {len(orders.started) - complete} lost")
    if faults or complete != len(orders.started):
        raise SystemExit(1)
    forget()


if __name__ == "__main__":
    main()
