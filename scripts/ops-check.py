"""The part of ops-check.sh that reads: manifests that kustomize has built (in the folder given), dashboards, rules, documents."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
breaches = []


def breach(text):
    breaches.append(text)
    print(f"ops-check: {text}", file=sys.stderr)


# --- rules and runbooks ------------------------------------------------------------------------------------------------

#: Metrics of others that rules and dashboards ask for: RabbitMQ's plugin, postgres_exporter, CloudNativePG.
OTHERS = re.compile(r"^(rabbitmq_(detailed_queue|disk_space|process)_\w+|pg_(stat_(database|activity)|database_size)_\w+|cnpg_backends_\w+)$")
#: What is no metric in an expression.
WORDS = set(
    "sum max min count avg topk rate increase by without on ignoring group_left group_right and or unless absent histogram_quantile "
    "label_replace vector offset bool".split()
)


def known_metrics():
    page = (ROOT / "docs/reference/metrics.md").read_text()
    known = set()
    for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.M):
        known |= {name + end for end in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name}
    return known


def names(expression):
    """The metrics that an expression asks for."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    bare = re.sub(r"\{[^}]*\}", "{}", bare)
    bare = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", bare)
    bare = re.sub(r"\[[^\]]*\]", "", bare)
    return {word for word in re.findall(r"[a-zA-Z_:][\w:]*", bare) if word not in WORDS and not re.fullmatch(r"e\d*|[smhd]", word)}


def rules():
    groups = []
    for file in ("recording.rules.yaml", "alerts.rules.yaml"):
        groups += yaml.safe_load((ROOT / "deploy/prometheus" / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def check_metrics(where, expression, known):
    for name in names(expression) - known:
        if not OTHERS.match(name):
            breach(f"{where} asks for {name}, which docs/reference/metrics.md does not list")


def check_rules(known):
    tested = (ROOT / "deploy/prometheus/tests/alerts.test.yaml").read_text()
    folder = ROOT / "docs/operations/runbooks"
    listed = (folder / "README.md").read_text()
    alerts = set()
    for rule in rules():
        name = rule.get("alert") or rule["record"]
        check_metrics(name, rule["expr"], known)
        if "alert" not in rule:
            continue
        alerts.add(name)
        page = folder / f"{name}.md"
        if rule["annotations"].get("runbook_url") != str(page.relative_to(ROOT)):
            breach(f"{name}: its runbook_url is not {page.relative_to(ROOT)}")
        if rule["labels"].get("severity") not in ("critical", "warning"):
            breach(f"{name} has no severity that is known")
        if not page.exists():
            breach(f"{name} has no runbook {page.relative_to(ROOT)}")
            continue
        text = page.read_text()
        for heading in ("## What it means", "## What users feel", "## Look at", "## Do"):
            if heading not in text:
                breach(f"{page.relative_to(ROOT)} has no {heading!r}")
        if f"Severity: {rule['labels']['severity']}." not in text:
            breach(f"{page.relative_to(ROOT)} says another severity than the alert")
        if f"({name}.md)" not in listed:
            breach(f"{name} is not listed in docs/operations/runbooks/README.md")
        if not re.search(rf"alertname: {name}\b[^\n]*\n\s+eval_time[^\n]*\n\s+exp_alerts:\n", tested):
            breach(f"no unit test sees {name} fire")
    for page in folder.glob("*.md"):
        if page.stem not in alerts | {"README"}:
            breach(f"{page.relative_to(ROOT)} is of no alert")


# --- dashboards --------------------------------------------------------------------------------------------------------


def lost(ours, theirs, path=""):
    """What a schema's own types have not kept of a document: fields that it does not know, or values that it reads otherwise."""
    if isinstance(ours, dict):
        if not isinstance(theirs, dict):
            yield path
            return
        for key, value in ours.items():
            if key in theirs:
                yield from lost(value, theirs[key], f"{path}.{key}")
            elif value not in ([], {}, None, "", False, 0):
                yield f"{path}.{key}"
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            yield path
            return
        for index, (one, other) in enumerate(zip(ours, theirs)):
            yield from lost(one, other, f"{path}[{index}]")
    elif ours != theirs:
        yield f"{path} ({ours!r} is read as {theirs!r})"


def substituted(expression):
    """The expression as Prometheus gets it."""
    expression = expression.replace("$__rate_interval", "1m").replace("$__interval", "1m").replace("$__range", "1h")
    return re.sub(r"\$\{?\w+\}?", ".*", expression)


def check_dashboards(known):
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    records = {rule["record"] for rule in rules() if "record" in rule}
    expressions, uids = [], set()
    for file in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
        text = file.read_text()
        board = json.loads(text)
        where = file.name
        for path in lost(board, json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))):
            breach(f"{where}{path} is not in Grafana's schema")
        if board["uid"] in uids:
            breach(f"{where}: uid {board['uid']} is there twice")
        uids.add(board["uid"])
        for variable in board["templating"]["list"]:
            rest = text.replace(json.dumps(variable["name"]), "")
            if not re.search(rf"\$\{{?{variable['name']}\b", rest):
                breach(f"{where}: nothing uses the variable {variable['name']}")
            if variable["type"] == "query":
                check_metrics(f"{where}, variable {variable['name']}", variable["query"]["query"].split("(")[1].split(",")[0].split("{")[0], known)
        ids = [panel["id"] for panel in board["panels"]]
        if len(ids) != len(set(ids)):
            breach(f"{where}: two panels have one id")
        cells = set()
        for panel in board["panels"]:
            place = panel["gridPos"]
            own = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            if own & cells or place["x"] + place["w"] > 24:
                breach(f"{where}: panel {panel['title']!r} lies over another one, or outside")
            cells |= own
            for target in panel.get("targets", []):
                expression = substituted(target["expr"])
                expressions.append(expression)
                check_metrics(f"{where}, panel {panel['title']!r}", expression, known | records)
    check_syntax(expressions)
    return len(expressions)


def check_syntax(expressions):
    """Prometheus's own parser, which promtool has for rules."""
    made = [{"record": f"check:{index}", "expr": expression} for index, expression in enumerate(expressions)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"groups": [{"name": "check", "rules": made}]}, file)
        file.flush()
        done = subprocess.run(["promtool", "check", "rules", file.name], capture_output=True, text=True)
        if done.returncode:
            breach(f"an expression of a dashboard cannot be read: {done.stdout}{done.stderr}")


# --- manifests ---------------------------------------------------------------------------------------------------------

CORE = ("v1", "apps/v1", "batch/v1", "policy/v1", "networking.k8s.io/v1", "autoscaling/v2", "scheduling.k8s.io/v1")
#: Of these no package offers a schema.
UNCHECKED = ("postgresql.cnpg.io/v1", "rabbitmq.com/v1beta1")


def check_manifest(where, document):
    import kubernetes_validate

    version = document["apiVersion"]
    name = f"{where}: {document['kind']} {document['metadata']['name']}"
    if version in CORE:
        for release in ("1.31", "1.37"):
            try:
                kubernetes_validate.validate(document, release, strict=True)
            except kubernetes_validate.ValidationError as error:
                breach(f"{name}: {error.message} at {'.'.join(map(str, error.path))} (Kubernetes {release})")
    elif version in ("keda.sh/v1alpha1", "monitoring.coreos.com/v1"):
        if version.startswith("keda"):
            from cloudcoil.models.keda import v1alpha1 as models
        else:
            from cloudcoil.models.prometheus_operator import v1 as models
        try:
            read = getattr(models, document["kind"]).model_validate(document)
        except ValueError as error:
            breach(f"{name}: {error}")
            return
        for path in lost(document, json.loads(read.model_dump_json(by_alias=True, exclude_unset=True))):
            breach(f"{name}{path} is not in the model")
    elif version not in UNCHECKED:
        breach(f"{name}: nobody checks {version}")
    pod = document.get("spec", {}).get("template", {}).get("spec")
    if version in ("apps/v1", "batch/v1"):
        check_pod(name, document, pod)


def check_pod(name, document, pod):
    """The restricted profile of the Pod Security Standards, and what Everstep wants beside it."""
    security = pod.get("securityContext", {})
    wanted = [
        (pod.get("automountServiceAccountToken") is False, "mounts a token"),
        (pod.get("enableServiceLinks") is False, "has service links, whose variables may be taken for settings"),
        (security.get("runAsNonRoot") is True, "may run as root"),
        (security.get("seccompProfile", {}).get("type") == "RuntimeDefault", "has no seccomp profile"),
        (not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")), "shares something with its node"),
    ]
    for container in pod["containers"] + pod.get("initContainers", []):
        own = container.get("securityContext", {})
        resources = container.get("resources", {})
        wanted += [
            (own.get("allowPrivilegeEscalation") is False, "may gain privileges"),
            (own.get("readOnlyRootFilesystem") is True, "may write to its image"),
            (own.get("capabilities", {}).get("drop") == ["ALL"], "keeps capabilities"),
            ("memory" in resources.get("limits", {}), "has no limit of memory"),
            ("cpu" in resources.get("requests", {}), "asks for no CPU"),
            ("cpu" not in resources.get("limits", {}), "has a limit of CPU, which would only make it late"),
        ]
        if document["kind"] == "Deployment":
            ports = {port["name"] for port in container["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                asked = container.get(probe, {}).get("httpGet", {})
                wanted.append((asked.get("port") in ports, f"has no {probe} on a port of its own"))
    for good, text in wanted:
        if not good:
            breach(f"{name} {text}")
    labels = document["spec"]["template"]["metadata"]["labels"]
    selector = document["spec"].get("selector", {}).get("matchLabels", {})
    if not selector.items() <= labels.items():
        breach(f"{name} does not select its own pods")


def check_manifests(built):
    count = 0
    for file in sorted(built.glob("*.yaml")):
        documents = [document for document in yaml.safe_load_all(file.read_text()) if document]
        known = {(document["kind"], document["metadata"]["name"]) for document in documents}
        for document in documents:
            check_manifest(file.stem, document)
            count += 1
            target = document.get("spec", {}).get("scaleTargetRef")
            if target and ("Deployment", target["name"]) not in known:
                breach(f"{file.stem}: {document['kind']} scales {target['name']}, which is not there")
    return count


# --- documents ---------------------------------------------------------------------------------------------------------


def anchors(text):
    made = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        bare = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        made.add(bare.strip().replace(" ", "-"))
    return made


def check_documents():
    for page in [*(ROOT / "docs/operations").rglob("*.md"), ROOT / "docs/scaling.md", ROOT / "docs/reference/metrics.md"]:
        text = page.read_text()
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.S)):
            if "://" in link:
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                breach(f"{page.relative_to(ROOT)} links to {link}, which is not there")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                breach(f"{page.relative_to(ROOT)} links to {link}, which has no such heading")


def main():
    known = known_metrics()
    records = {rule["record"] for rule in rules() if "record" in rule}
    check_rules(known | records)
    queries = check_dashboards(known)
    documents = check_manifests(pathlib.Path(sys.argv[1]))
    check_documents()
    if breaches:
        sys.exit(1)
    print(f"ops-check: {len(rules())} rules, {queries} queries of dashboards, {documents} manifests")


main()
