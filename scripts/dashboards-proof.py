"""A fleet under load, a Prometheus that scrapes it, and all queries of dashboards and alerts. See dashboards-proof.sh."""

import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

import pika
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/operations/pictures"
SCRAPE = 2
#: What stands for Grafana's own interval: four scrapes, as it would take.
WINDOW = "20s"


def say(text):
    print(f"dashboards-proof: {text}", flush=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, ask, within=60):
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            answer = ask()
            if answer:
                return answer
        except (OSError, pika.exceptions.AMQPError):
            pass
        time.sleep(0.2)
    sys.exit(f"dashboards-proof: {what}: not within {within} s")


def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


class Fleet:
    """All processes, of which none outlives this one."""

    def __init__(self, binaries, folder):
        self.binaries, self.folder = binaries, folder
        self.running = {}

    def spawn(self, name, command, **environment):
        log = open(self.folder / f"{name}.log", "ab")
        env = {key: value for key, value in os.environ.items() if not key.startswith("EVERSTEP_")} | environment
        process = subprocess.Popen([str(part) for part in command], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.running[name] = process
        return process

    def end(self, name, how=signal.SIGTERM):
        process = self.running.pop(name)
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()

    def end_all(self):
        for name in reversed(list(self.running)):
            self.end(name)


def rabbitmq(fleet):
    """A node with ports, name and data of its own. Answers with its URL, its ports, and what ends it."""
    data = fleet.folder / "rabbitmq"
    data.mkdir()
    amqp, metrics, dist, epmd = (free_port() for _ in range(4))
    (data / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{amqp}\nprometheus.tcp.ip = 127.0.0.1\nprometheus.tcp.port = {metrics}\n"
        "log.console = false\nlog.file.level = warning\ndefault_vhost = everstep\ndefault_user = everstep\ndefault_pass = everstep\n"
        "default_permissions.configure = .*\ndefault_permissions.read = .*\ndefault_permissions.write = .*\n"
    )
    (data / "enabled_plugins").write_text("[rabbitmq_prometheus].\n")
    environment = {
        "HOME": str(data),
        "RABBITMQ_NODENAME": f"proof{os.getpid()}@localhost",
        "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
        "RABBITMQ_LOG_BASE": str(data / "log"),
        "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "enabled_plugins"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_DIST_PORT": str(dist),
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    fleet.spawn("rabbitmq", ["/usr/lib/rabbitmq/bin/rabbitmq-server"], **environment)
    url = f"amqp://everstep:everstep@127.0.0.1:{amqp}/everstep"

    def opened():
        pika.BlockingConnection(pika.URLParameters(url)).close()
        return True

    until("RabbitMQ answers", opened, 120)
    return url, metrics, lambda: subprocess.run(
        ["epmd", "-port", str(epmd), "-kill"], env=os.environ | environment, capture_output=True, check=False
    )


def psql(url, statement):
    done = subprocess.run(["psql", "-qAt", "-F", " ", url, "-c", statement], check=True, capture_output=True, text=True)
    return done.stdout


def sizes(postgres):
    """What the tables that grow with instances take, for an instance."""
    instances = max(1, int(psql(postgres, "SELECT count(*) FROM instance")))
    for table in ("instance", "instance_name", "message_decision", "journal", "ended", "wait", "remote_step"):
        rows, size = psql(postgres, f"SELECT count(*), pg_total_relation_size('{table}') FROM {table}").split()
        say(f"{table}: {int(rows) / instances:.2f} rows and {int(size) / instances:.0f} bytes an instance")
    say(f"the database: {int(psql(postgres, 'SELECT pg_database_size(current_database())')) / instances:.0f} bytes an instance, {instances} of them")


class Load(threading.Thread):
    """Publishes orders at a steady rate, and now and then what cannot be accepted."""

    def __init__(self, url, rate):
        super().__init__(daemon=True)
        self.url, self.rate, self.over, self.count = url, rate, threading.Event(), 0

    def run(self):
        orders = [json.loads(line) for line in (ROOT / "examples/orders.jsonl").read_text().split("\n") if line]
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        channel = connection.channel()
        while not self.over.wait(1):
            for _ in range(self.rate):
                order = orders[self.count % len(orders)]
                send(channel, "fulfil", f"{order['id']}-{self.count}", order["input"])
                self.count += 1
            send(channel, "ghost", f"g-{self.count}", {}) if self.count % (20 * self.rate) == 0 else None
            # Neither an input that fits nor a name: recorded as rejected.
            if self.count % (5 * self.rate) == 0:
                channel.basic_publish("everstep.start", "default", b"{", pika.BasicProperties(content_type="application/json"))
        connection.close()


def send(channel, workflow, name, given):
    body = json.dumps({"workflow": workflow, "id": name, "input": given}).encode()
    channel.basic_publish(
        "everstep.start", "default", body, pika.BasicProperties(content_type="application/json", delivery_mode=2, message_id=name)
    )


def start(fleet, folder, postgres, amqp):
    """Migrates, and starts coordinators, workers and what they call. Answers with the addresses to scrape."""
    everstep = fleet.binaries / "everstep"
    environment = {"EVERSTEP_POSTGRES__URL": postgres, "EVERSTEP_AMQP__URL": amqp, "EVERSTEP_LOG__LEVEL": "warn"}
    subprocess.run([everstep, "migrate"], env=os.environ | environment, check=True, capture_output=True)
    coordinators, workers = [], []
    for number in range(2):
        address = f"127.0.0.1:{free_port()}"
        fleet.spawn(
            f"coordinator-{number}",
            [everstep, "coordinator", "--listen", f"127.0.0.1:{free_port()}"],
            EVERSTEP_METRICS__LISTEN=address,
            **environment,
        )
        until("a coordinator is ready", lambda: get(f"http://{address}/readyz") == "ok\n")
        coordinators.append(address)
    fleet.spawn("payment", [fleet.binaries / "payment", "--listen", f"127.0.0.1:{(port := free_port())}", "--ledger", folder / "ledger"])
    for number in range(2):
        address = f"127.0.0.1:{free_port()}"
        fleet.spawn(
            f"worker-{number}",
            [fleet.binaries / "worker", "--payment", f"http://127.0.0.1:{port}", "--metrics", address],
            EVERSTEP_AMQP__URL=amqp,
        )
        workers.append(address)
    address = f"127.0.0.1:{free_port()}"
    fleet.spawn("labels", [fleet.binaries / "everstep-label-worker", "--metrics", address], EVERSTEP_AMQP__URL=amqp)
    workers.append(address)
    for address in workers:
        until("a worker is ready", lambda address=address: get(f"http://{address}/readyz") == "ok\n")
    return coordinators, workers


def park(fleet, folder, amqp):
    """One instance whose journal the code that follows contradicts: it waits for a person."""
    command = [fleet.binaries / "examples/test_worker", "--amqp", amqp, "--ledger", folder / "attempts", "--grace", "0"]
    fleet.spawn("before", command)
    connection = pika.BlockingConnection(pika.URLParameters(amqp))
    send(connection.channel(), "echo3", "parked", {"text": "t", "gate": str(folder / "never")})
    connection.close()
    until("its second step runs", lambda: "second 1 begun" in (folder / "attempts").read_text(), 90)
    fleet.end("before")
    fleet.spawn("after", [*command, "--renamed"])


def prometheus(fleet, folder, coordinators, workers, rabbit, exporter):
    """Scrapes as deploy/prometheus/prometheus.yaml does, with the real addresses and more often."""
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yaml").read_text())
    targets = {
        "everstep-coordinator": coordinators,
        "everstep-worker": workers,
        "rabbitmq": [f"127.0.0.1:{rabbit}"],
        "rabbitmq-queues": [f"127.0.0.1:{rabbit}"],
        "postgres": [exporter],
    }
    config["global"] = {"scrape_interval": f"{SCRAPE}s", "evaluation_interval": f"{SCRAPE}s"}
    config["rule_files"] = [str(ROOT / "deploy/prometheus" / name) for name in config["rule_files"]]
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": targets[job["job_name"]]}]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    fleet.spawn(
        "prometheus",
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
    )
    until("Prometheus is ready", lambda: get(f"http://127.0.0.1:{port}/-/ready"))
    return f"http://127.0.0.1:{port}"


def ask_range(server, expression, begin, end):
    parameters = urllib.parse.urlencode({"query": expression, "start": begin, "end": end, "step": 5})
    answer = json.loads(get(f"{server}/api/v1/query_range?{parameters}"))
    series = []
    for result in answer["data"]["result"]:
        points = [(at - begin, float(value)) for at, value in result["values"]]
        points = [point for point in points if not math.isnan(point[1])]
        if points:
            series.append((result["metric"], points))
    return series


def substituted(expression):
    # Of the databases on that server only the proof's own.
    expression = expression.replace("$__rate_interval", WINDOW).replace("$database", "everstep_proof_.*")
    return re.sub(r"\$\{?\w+\}?", ".*", expression)


def legend(form, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), form) or ""


def draw(board, answers, file):
    """The panels where they stand on the board. Drawn with matplotlib, not by Grafana."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    tall = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    figure = pyplot.figure(figsize=(18, tall * 0.42))
    figure.suptitle(f"{board['title']}: its queries, answered by Prometheus in a run of the proof", fontsize=11)
    grid = figure.add_gridspec(tall, 24, hspace=6, wspace=5, left=0.04, right=0.98, top=0.95, bottom=0.03)
    for panel in panels:
        place = panel["gridPos"]
        axes = figure.add_subplot(grid[place["y"] : place["y"] + place["h"] - 1, place["x"] : place["x"] + place["w"]])
        axes.set_title(panel["title"], fontsize=8)
        axes.tick_params(labelsize=6)
        unit = panel["fieldConfig"]["defaults"]["unit"]
        shown = [(legend(form, labels), points) for form, series in answers[panel["id"]] for labels, points in series]
        if panel["type"] == "timeseries":
            for name, points in shown[:10]:
                axes.plot([at for at, _ in points], [value for _, value in points], linewidth=1, label=name[:40])
            axes.set_ylim(bottom=0)
            axes.set_ylabel({"short": "", "ops": "1/s", "percentunit": "share"}.get(unit, unit), fontsize=6)
            if any(name for name, _ in shown):
                axes.legend(fontsize=5, loc="upper left", ncols=2, framealpha=0.5)
            for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]:
                if step["value"] < axes.get_ylim()[1]:
                    axes.axhline(step["value"], color=step["color"], linewidth=0.7, linestyle="--")
        else:
            axes.axis("off")
            lines = [f"{name + ': ' if name else ''}{points[-1][1]:.4g}" for name, points in shown]
            if panel["type"] == "table":
                lines = [f"{', '.join(labels.values())}: {points[-1][1]:.4g}" for _, series in answers[panel["id"]] for labels, points in series]
            axes.text(0.5, 0.5, "\n".join(lines), ha="center", va="center", fontsize=11 if panel["type"] == "stat" else 8)
    figure.savefig(file, dpi=70)
    pyplot.close(figure)


def check_boards(server, begin, end):
    empty, count = [], 0
    PICTURES.mkdir(parents=True, exist_ok=True)
    for file in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
        board, answers = json.loads(file.read_text()), {}
        for panel in board["panels"]:
            answers[panel["id"]] = []
            for target in panel.get("targets", []):
                series = ask_range(server, substituted(target["expr"]), begin, end)
                count += 1
                if not series:
                    empty.append(f"{board['title']}, {panel['title']}: {target['expr']}")
                answers[panel["id"]].append((target["legendFormat"], series))
        draw(board, answers, PICTURES / f"{file.stem}.png")
    return empty, count


#: From here on an expression says what is too much of what stands before.
THRESHOLD = re.compile(r"\s(?:>|==|<)\s[\d.]+\s*(?=\)|$|\n|\sand\s|\sor\s)")


def check_rules(server, begin, end):
    """Each rule is evaluated without an error, and each alert's expression has data where its threshold is left out."""
    empty, count = [], 0
    for group in json.loads(get(f"{server}/api/v1/rules"))["data"]["groups"]:
        for rule in group["rules"]:
            if rule["health"] != "ok":
                empty.append(f"{rule['name']}: {rule.get('lastError')}")
    for group in yaml.safe_load((ROOT / "deploy/prometheus/alerts.rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            bare = THRESHOLD.sub(" ", rule["expr"])
            bare = re.sub(r"^absent\((.*)\)$", r"\1", bare.strip())
            count += 1
            if not ask_range(server, bare.replace("[15m]", "[2m]"), begin, end):
                empty.append(f"alert {rule['alert']}: {bare}")
    fired = {alert["labels"]["alertname"] for alert in json.loads(get(f"{server}/api/v1/alerts"))["data"]["alerts"]}
    return empty, count, fired


def main():
    binaries = pathlib.Path(sys.argv[1]).resolve()
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    base = os.environ.get("EVERSTEP_TEST_POSTGRES_URL") or sys.exit("dashboards-proof: EVERSTEP_TEST_POSTGRES_URL is not set")
    database = f"everstep_proof_{os.getpid()}"
    postgres = re.sub(r"/[^/]*$", f"/{database}", base)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="everstep-proof-"))
    fleet, ended = Fleet(binaries, folder), []
    psql(base, f"CREATE DATABASE {database}")
    try:
        amqp, rabbit, forget = rabbitmq(fleet)
        ended.append(forget)
        coordinators, workers = start(fleet, folder, postgres, amqp)
        exporter = f"127.0.0.1:{free_port()}"
        fleet.spawn(
            "exporter",
            ["prometheus-postgres-exporter", f"--web.listen-address={exporter}"],
            DATA_SOURCE_NAME=postgres + "?sslmode=disable",
        )
        server = prometheus(fleet, folder, coordinators, workers, rabbit, exporter)
        begin = time.time() + 4 * SCRAPE
        load = Load(amqp, 20)
        load.start()
        say(f"a fleet of {len(coordinators)} coordinators and {len(workers)} workers is under load for {seconds} s")
        park(fleet, folder, amqp)
        time.sleep(max(0, begin + seconds / 3 - time.time()))
        # A worker and a coordinator die in the middle of it.
        fleet.end("worker-1", signal.SIGKILL)
        time.sleep(max(0, begin + seconds / 2 - time.time()))
        fleet.end("coordinator-1", signal.SIGKILL)
        time.sleep(max(0, begin + seconds - time.time()))
        end = time.time()
        sizes(postgres)
        empty, queries = check_boards(server, begin, end)
        more, alerts, fired = check_rules(server, begin, end)
        load.over.set()
        load.join(10)
        say(f"{load.count} orders; {queries} queries of dashboards and {alerts} expressions of alerts were asked")
        say(f"alerts that were pending or firing by themselves: {', '.join(sorted(fired)) or 'none'}")
        for line in empty + more:
            say(f"no data: {line}")
        if empty or more:
            sys.exit(1)
        say(f"each of them has data; pictures are in {PICTURES.relative_to(ROOT)}")
    finally:
        fleet.end_all()
        for end_it in ended:
            end_it()
        psql(base, f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        if sys.exc_info()[0] is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            say(f"what was said is in {folder}")


main()
