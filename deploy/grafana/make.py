#!/usr/bin/env python3
"""Writes the dashboards of deploy/grafana/dashboards. They are data for Grafana, and this is where they are changed: rows, panels and
queries stand once, in words, and all panels look alike. `make ops-check` fails if what is committed is not what this writes.

    deploy/grafana/make.py            write
    deploy/grafana/make.py --check    exit 1 if the files differ
"""

import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent / "dashboards"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: The place of the installation. Where no scraper names it, "All" fits what has no such label.
HERE = 'namespace=~"$namespace"'


def query(expression, legend=""):
    """One query. HERE stands for what every selector begins with."""
    return expression, legend


def panel(kind, title, queries, unit="short", text="", *, width=12, height=8, thresholds=(), stack=False, zero=True):
    """A panel without its place."""
    steps = [{"color": "green", "value": None}]
    steps += [{"color": color, "value": value} for value, color in thresholds]
    defaults = {
        "unit": unit,
        "color": {"mode": "palette-classic"} if kind == "timeseries" else {"mode": "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if zero:
        defaults["min"] = 0
    options = {}
    if kind == "timeseries":
        custom = {"lineWidth": 1, "fillOpacity": 30 if stack else 10, "showPoints": "never"}
        custom["stacking"] = {"mode": "normal" if stack else "none", "group": "A"}
        custom["thresholdsStyle"] = {"mode": "line" if thresholds else "off"}
        defaults["custom"] = custom
        options = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    elif kind == "stat":
        options = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "orientation": "auto",
            "textMode": "auto",
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
        }
    elif kind == "table":
        options = {"showHeader": True, "cellHeight": "sm", "frameIndex": 0}
        defaults["custom"] = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
    targets = []
    for index, (expression, legend) in enumerate(queries):
        target = {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        if kind == "table":
            target |= {"instant": True, "range": False, "format": "table"}
        targets.append(target)
    made = {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }
    if kind == "table":
        made["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
    return made


def lines(title, queries, unit="short", text="", **more):
    return panel("timeseries", title, queries, unit, text, **more)


def number(title, expression, unit="short", text="", **more):
    return panel("stat", title, [query(expression)], unit, text, **{"width": 4, "height": 4, **more})


def table(title, expression, text="", **more):
    return panel("table", title, [query(expression)], "short", text, **more)


def row(title):
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": 24, "h": 1}}


def placed(panels):
    """Gives each panel its number and place: from left to right, and down where the line is full."""
    x = y = tallest = 0
    for number_, made in enumerate(panels, 1):
        place = made["gridPos"]
        if x + place["w"] > 24 or made["type"] == "row":
            x, y, tallest = 0, y + tallest, 0
        made["id"] = number_
        made["gridPos"] = {"x": x, "y": y, **place}
        x, tallest = x + place["w"], max(tallest, place["h"])
    return panels


def variable(name, label, values, text=""):
    return {
        "name": name,
        "label": label,
        "description": text,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": values, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
        "regex": "",
        "hide": 0,
        "skipUrlSync": False,
    }


def dashboard(name, title, text, panels, variables=()):
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "options": [],
        "regex": "",
        "hide": 0,
        "skipUrlSync": False,
    }
    place = variable("namespace", "Installation", "label_values(everstep_build_info, namespace)")
    return f"everstep-{name}.json", {
        "uid": f"everstep-{name}",
        "title": f"Everstep / {title}",
        "description": text,
        "tags": ["everstep"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "fiscalYearStartMonth": 0,
        "liveNow": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "weekStart": "",
        "version": 1,
        "annotations": {"list": []},
        "links": [
            {
                "title": "Everstep",
                "type": "dashboards",
                "tags": ["everstep"],
                "asDropdown": True,
                "icon": "external link",
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [source, place, *variables]},
        "panels": placed(panels),
    }


def quantiles(metric, by="", where=HERE, window="$__rate_interval"):
    """Median and 99th percentile of a histogram."""
    names = f"{by}, le" if by else "le"
    rate = f"sum by ({names}) (rate({metric}_bucket{{{where}}}[{window}]))"
    shown = f" {{{{{by}}}}}" if by else ""
    return [query(f"histogram_quantile({q}, {rate})", f"p{int(q * 100)}{shown}") for q in (0.5, 0.99)]


RATE = "[$__rate_interval]"


def fleet():
    bad = ((0.5, "red"),)
    return dashboard(
        "fleet",
        "Fleet",
        "Whether the installation works, and how much it does.",
        [
            number("Coordinators", f"count(everstep_build_info{{{HERE}}})", thresholds=()),
            number("Workers", f"max(everstep_sessions{{{HERE}}})"),
            number("Started", f"sum(rate(everstep_instances_started_total{{{HERE}}}{RATE}))", "ops"),
            number("Ended", f"sum(rate(everstep_instances_ended_total{{{HERE}}}{RATE}))", "ops"),
            number("Steps", f"sum(rate(everstep_steps_ended_total{{{HERE}}}{RATE}))", "ops"),
            number(
                "Wait for a person",
                f"sum(max by (kind, age) (everstep_attention{{{HERE}}})) or vector(0)",
                thresholds=((1, "orange"),),
            ),
            lines(
                "Instances started and ended",
                [
                    query(f"sum(rate(everstep_instances_started_total{{{HERE}}}{RATE}))", "started"),
                    query(f"sum by (status) (rate(everstep_instances_ended_total{{{HERE}}}{RATE}))", "{{status}}"),
                ],
                "ops",
            ),
            lines(
                "Open instances",
                [query(f"max by (status, reason) (everstep_open_instances{{{HERE}}})", "{{status}} {{reason}}")],
                text="Counted at most once a minute; of those that wait up to 1,000,000.",
                stack=True,
            ),
            lines(
                "Schedule to start",
                quantiles("everstep_schedule_to_start_seconds"),
                "s",
                "From runnable to the lease. Direct grants count as zero.",
            ),
            lines(
                "The oldest in each queue",
                [query(f"max by (queue) (everstep_queue_oldest_seconds{{{HERE}}})", "{{queue}}")],
                "s",
                "More than a minute for 5 minutes is an alert. Scale those workers.",
                thresholds=((60, "orange"),),
            ),
            lines("Timers, late by", quantiles("everstep_timer_lateness_seconds"), "s", thresholds=((5, "orange"),)),
            lines(
                "Steps by outcome",
                [query(f"sum by (outcome) (rate(everstep_steps_ended_total{{{HERE}}}{RATE}))", "{{outcome}}")]
                + [query(f"sum(rate(everstep_step_retries_total{{{HERE}}}{RATE}))", "retried")],
                "ops",
            ),
            row("Database and broker"),
            lines(
                "The database answers",
                [query(f"everstep_store_up{{{HERE}}}", "{{instance}}")],
                text="1: it answered this coordinator when it was asked last.",
            ),
            lines(
                "The broker takes messages",
                [
                    query(f"everstep_broker_up{{{HERE}}}", "{{instance}}"),
                    query(f"everstep_worker_broker_up{{{HERE}}}", "worker {{instance}}"),
                ],
            ),
            row("What must stay at zero"),
            number(
                "Epochs from the future",
                f'sum(increase(everstep_decisions_total{{{HERE},answer="from_the_future"}}[1h]))',
                text="The database has lost history.",
                width=6,
                thresholds=bad,
            ),
            number(
                "Undecidable inputs",
                f'sum(increase(everstep_batch_failures_total{{{HERE},kind=~"culprit|corrupt"}}[1h]))',
                width=6,
                thresholds=bad,
            ),
            number(
                "Rejected messages",
                f"sum(increase(everstep_messages_rejected_total{{{HERE}}}[1h]))",
                width=6,
                thresholds=bad,
            ),
            number(
                "Ready and not served",
                f"sum(max by (queue) (everstep_unserved{{{HERE}}})) or vector(0)",
                width=6,
                thresholds=bad,
            ),
        ],
    )


def workflow():
    of = f'{HERE},workflow=~"$workflow"'
    step = f'{of},step=~"$step"'
    return dashboard(
        "workflow",
        "One workflow",
        "What instances of a workflow do, and where their steps fail or take long.",
        [
            lines(
                "Started and ended",
                [
                    query(f"sum by (workflow) (rate(everstep_instances_started_total{{{of}}}{RATE}))", "{{workflow}} started"),
                    query(
                        f"sum by (workflow, status) (rate(everstep_instances_ended_total{{{of}}}{RATE}))",
                        "{{workflow}} {{status}}",
                    ),
                ],
                "ops",
            ),
            lines(
                "Ended with an error",
                [
                    query(
                        f'sum by (workflow) (rate(everstep_instances_ended_total{{{of},status="errored"}}{RATE}))'
                        f" / (sum by (workflow) (rate(everstep_instances_ended_total{{{of}}}{RATE})) > 0)",
                        "{{workflow}}",
                    )
                ],
                "percentunit",
                thresholds=((0.1, "orange"),),
            ),
            lines(
                "From creation to end",
                quantiles("everstep_instance_duration_seconds", "workflow", of),
                "s",
                "Waits included.",
            ),
            lines(
                "The oldest that waits for a worker",
                [query(f'max by (queue) (everstep_queue_oldest_seconds{{{HERE},queue=~"workflow ($workflow).*|pool .*"}})', "{{queue}}")],
                "s",
            ),
            row("Steps"),
            lines(
                "Outcomes of steps",
                [
                    query(
                        f"sum by (step, outcome) (rate(everstep_steps_ended_total{{{step}}}{RATE}))",
                        "{{step}} {{outcome}}",
                    )
                ],
                "ops",
            ),
            lines(
                "Retries for each outcome",
                [
                    query(
                        f"sum by (step) (rate(everstep_step_retries_total{{{step}}}{RATE}))"
                        f" / (sum by (step) (rate(everstep_steps_ended_total{{{step}}}{RATE})) > 0)",
                        "{{step}}",
                    )
                ],
                thresholds=((1, "orange"),),
            ),
            lines("Time of attempts, p99", quantiles("everstep_worker_attempt_seconds", "step", step)[1:], "s"),
            lines(
                "Attempts by outcome",
                [
                    query(
                        f"sum by (step, outcome) (rate(everstep_worker_attempts_total{{{step}}}{RATE}))",
                        "{{step}} {{outcome}}",
                    )
                ],
                "ops",
                "As workers counted them: lost ones are not in it.",
            ),
            lines(
                "Attempts begun, and again",
                [
                    query(f"sum by (step) (rate(everstep_worker_attempts_started_total{{{step}}}{RATE}))", "{{step}}"),
                    query(f"sum by (step) (rate(everstep_worker_retries_total{{{step}}}{RATE}))", "{{step}} again"),
                ],
                "ops",
            ),
            lines(
                "Threads kept busy",
                [query(f"sum by (step) (rate(everstep_worker_step_busy_seconds_total{{{step}}}{RATE}))", "{{step}}")],
                "short",
                "Seconds of polls a second: 1 is one thread. A step that waits for others keeps none busy.",
            ),
        ],
        [
            variable(
                "workflow",
                "Workflow",
                'label_values(everstep_instances_started_total{namespace=~"$namespace"}, workflow)',
            ),
            variable(
                "step",
                "Step",
                'label_values(everstep_steps_ended_total{namespace=~"$namespace",workflow=~"$workflow"}, step)',
            ),
        ],
    )


def coordinators():
    pg = 'datname=~"$database"'
    return dashboard(
        "coordinators",
        "Coordinators and database",
        "How coordinators keep up, and what the database says. PostgreSQL's own numbers come from postgres_exporter.",
        [
            lines(
                "Transactions take",
                quantiles("everstep_commit_seconds"),
                "s",
                "From the first statement to the commit.",
                thresholds=((1, "orange"),),
            ),
            lines(
                "Inputs in a transaction",
                [
                    query(
                        f"sum by (instance) (rate(everstep_batch_inputs_sum{{{HERE}}}{RATE}))"
                        f" / (sum by (instance) (rate(everstep_batch_inputs_count{{{HERE}}}{RATE})) > 0)",
                        "{{instance}}",
                    )
                ],
                text="Large batches under load are good: they are how one coordinator keeps up.",
            ),
            lines(
                "Inputs that wait",
                [query(f"everstep_inputs_waiting{{{HERE}}}", "{{instance}}")],
                thresholds=((5000, "orange"),),
            ),
            lines(
                "Decisions by answer",
                [query(f"sum by (answer) (rate(everstep_decisions_total{{{HERE}}}{RATE})) > 0", "{{answer}}")],
                "ops",
                "fenced: somebody reported under a lease that was over.",
            ),
            lines(
                "Transactions that were run again",
                [query(f"sum by (kind) (rate(everstep_batch_failures_total{{{HERE}}}{RATE}))", "{{kind}}")],
                "ops",
            ),
            lines(
                "Sessions that ended",
                [query(f"sum by (cause) (increase(everstep_sessions_ended_total{{{HERE}}}[5m]))", "{{cause}}")],
                text="In 5 minutes. silent and unroutable are workers that died.",
            ),
            lines(
                "Leases lost",
                [
                    query(f"sum by (of) (increase(everstep_leases_lost_total{{{HERE}}}[5m]))", "{{of}}"),
                    query(f"sum(increase(everstep_leases_unconfirmed_total{{{HERE}}}[5m]))", "never confirmed"),
                ],
                text="In 5 minutes.",
            ),
            lines(
                "Duties",
                [query(f"sum by (duty) (everstep_duty{{{HERE}}})", "{{duty}}")],
                text="How many coordinators have each: 1, for a moment 0 or 2.",
            ),
            lines(
                "The store did not answer",
                [query(f"sum by (instance) (increase(everstep_store_failures_total{{{HERE}}}[5m]))", "{{instance}}")],
                text="Of 60 times in 5 minutes.",
            ),
            lines(
                "Journal entries read for workers",
                [query(f"sum(rate(everstep_entries_read_total{{{HERE}}}{RATE}))", "entries")],
                "ops",
                "For grants: replays of long journals.",
            ),
            row("PostgreSQL"),
            lines(
                "Commits and rollbacks",
                [
                    query(f"sum(rate(pg_stat_database_xact_commit{{{pg}}}{RATE}))", "commits"),
                    query(f"sum(rate(pg_stat_database_xact_rollback{{{pg}}}{RATE}))", "rollbacks"),
                ],
                "ops",
            ),
            lines(
                "Connections",
                [
                    query(
                        f"sum by (state) (pg_stat_activity_count{{{pg}}}) or sum by (state) (cnpg_backends_total{{{pg}}})",
                        "{{state}}",
                    )
                ],
                text="A coordinator takes postgres.pool_max at most.",
                stack=True,
            ),
            lines(
                "Found in memory",
                [
                    query(
                        f"sum(rate(pg_stat_database_blks_hit{{{pg}}}{RATE}))"
                        f" / (sum(rate(pg_stat_database_blks_hit{{{pg}}}{RATE})) + sum(rate(pg_stat_database_blks_read{{{pg}}}{RATE})))",
                        "shared_buffers",
                    )
                ],
                "percentunit",
            ),
            lines(
                "The longest transaction",
                [
                    query(
                        f"max by (state) (pg_stat_activity_max_tx_duration{{{pg}}})"
                        f" or max by (state) (cnpg_backends_max_tx_duration_seconds{{{pg}}})",
                        "{{state}}",
                    )
                ],
                "s",
                "What stays open long keeps dead rows alive.",
            ),
            lines("Size", [query(f"sum by (datname) (pg_database_size_bytes{{{pg}}})", "{{datname}}")], "bytes"),
            lines(
                "Rows written",
                [
                    query(f"sum(rate(pg_stat_database_tup_inserted{{{pg}}}{RATE}))", "inserted"),
                    query(f"sum(rate(pg_stat_database_tup_updated{{{pg}}}{RATE}))", "updated"),
                    query(f"sum(rate(pg_stat_database_tup_deleted{{{pg}}}{RATE}))", "deleted"),
                ],
                "ops",
            ),
        ],
        [variable("database", "Database", "label_values(pg_stat_database_xact_commit, datname)")],
    )


def workers():
    of = f'{HERE},instance=~"$worker"'
    return dashboard(
        "workers",
        "Workers",
        "Whether workers have room, and what keeps them busy.",
        [
            lines(
                "Attempts that run, and their slots",
                [
                    query(f"sum(everstep_worker_running{{{of}}})", "run"),
                    query(f"sum(everstep_worker_queued{{{of}}})", "wait for a slot"),
                    query(f"sum(everstep_worker_slots{{{of}}})", "slots"),
                ],
            ),
            lines("Instances held", [query(f"everstep_worker_held{{{of}}}", "{{instance}}")]),
            lines(
                "Has a session",
                [query(f"everstep_worker_session_up{{{of}}}", "{{instance}}")],
                text="1: a coordinator has opened it and answers its heartbeats.",
            ),
            lines(
                "From report to answer",
                quantiles("everstep_worker_report_to_ack_seconds", "", of),
                "s",
                thresholds=((2, "orange"),),
            ),
            lines(
                "Attempts by outcome",
                [query(f"sum by (outcome) (rate(everstep_worker_attempts_total{{{of}}}{RATE}))", "{{outcome}}")],
                "ops",
            ),
            lines(
                "Bodies keep the work loop busy",
                [query(f"rate(everstep_worker_poll_seconds_sum{{{of}}}{RATE})", "{{instance}}")],
                "percentunit",
                "One thread a worker. Near 1: move work into steps, or add workers.",
            ),
            lines("One poll of a body", quantiles("everstep_worker_poll_seconds", "", of), "s"),
            lines(
                "Steps keep threads busy",
                [query(f"sum by (instance) (rate(everstep_worker_step_busy_seconds_total{{{of}}}{RATE}))", "{{instance}}")],
                "short",
                "Seconds of polls a second.",
            ),
            lines(
                "Replays and kept bodies",
                [
                    query(f"sum(rate(everstep_worker_replays_total{{{of}}}{RATE}))", "replayed"),
                    query(f"sum(rate(everstep_worker_resumed_total{{{of}}}{RATE}))", "body was kept"),
                ],
                "ops",
            ),
            lines("Memory of kept bodies", [query(f"everstep_worker_cached_bytes{{{of}}}", "{{instance}}")], "bytes"),
            lines(
                "Sent again, fenced, set aside",
                [
                    query(f"sum(rate(everstep_worker_resends_total{{{of}}}{RATE}))", "sent again"),
                    query(f"sum(rate(everstep_worker_fences_total{{{of}}}{RATE}))", "leases that ended"),
                    query(f"sum(rate(everstep_worker_folds_refused_total{{{of}}}{RATE}))", "folds refused"),
                ],
                "ops",
            ),
            lines(
                "Timed out and still there",
                [query(f"everstep_worker_written_off{{{of}}}", "{{instance}}")],
                text="Each keeps a slot.",
                thresholds=((1, "orange"),),
            ),
        ],
        [variable("worker", "Worker", 'label_values(everstep_worker_slots{namespace=~"$namespace"}, instance)')],
    )


def broker():
    of = 'queue=~"everstep[.].*"'
    return dashboard(
        "broker",
        "Broker",
        "What coordinators see of RabbitMQ, and RabbitMQ's own numbers by queue (its plugin rabbitmq_prometheus).",
        [
            lines("Connected", [query(f"everstep_broker_up{{{HERE}}}", "{{instance}}")]),
            lines(
                "Blocked",
                [query(f"everstep_broker_blocked{{{HERE}}}", "{{instance}}")],
                text="Memory or disk alarm.",
                thresholds=((1, "red"),),
            ),
            lines(
                "Messages of coordinators",
                [
                    query(f"sum by (queue) (rate(everstep_messages_received_total{{{HERE}}}{RATE}))", "from {{queue}}"),
                    query(f"sum(rate(everstep_messages_sent_total{{{HERE}}}{RATE}))", "sent"),
                ],
                "ops",
            ),
            lines(
                "Connections made so far",
                [query(f"everstep_broker_connections{{{HERE}}}", "{{instance}}")],
                text="Steps are reconnects.",
            ),
            lines(
                "Unreadable or of another life",
                [
                    query(f"sum by (queue) (increase(everstep_messages_unreadable_total{{{HERE}}}[5m]))", "unreadable {{queue}}"),
                    query(f"sum(increase(everstep_messages_set_aside_total{{{HERE}}}[5m]))", "another incarnation"),
                ],
                text="In 5 minutes.",
            ),
            lines(
                "Lifecycle messages",
                [query(f"sum by (outcome) (rate(everstep_lifecycle_messages_total{{{HERE}}}{RATE}))", "{{outcome}}")],
                "ops",
            ),
            row("Queues"),
            lines(
                "Messages of producers that wait",
                [
                    query(
                        'max by (vhost, queue) (rabbitmq_detailed_queue_messages_ready{queue=~"everstep[.](start|event|dead|rejected)[.].*"})',
                        "{{queue}}",
                    )
                ],
                text="These exist nowhere else. dead: what the broker gave up; rejected: copies that nobody has read.",
            ),
            lines(
                "Messages that wait, by the rest",
                [
                    query(
                        f"topk(10, max by (vhost, queue) (rabbitmq_detailed_queue_messages_ready{{{of},queue!~"
                        '"everstep[.](start|event|dead|rejected)[.].*"}))',
                        "{{queue}}",
                    )
                ],
                text="Hints and repeats: losing them costs seconds.",
            ),
            lines(
                "Delivered and not settled",
                [query(f"topk(10, max by (vhost, queue) (rabbitmq_detailed_queue_messages_unacked{{{of}}}))", "{{queue}}")],
            ),
            lines("Consumers", [query(f"topk(10, max by (vhost, queue) (rabbitmq_detailed_queue_consumers{{{of}}}))", "{{queue}}")]),
            row("Nodes"),
            lines("Memory", [query("max by (instance) (rabbitmq_process_resident_memory_bytes)", "{{instance}}")], "bytes"),
            lines(
                "Free disk",
                [
                    query("min by (instance) (rabbitmq_disk_space_available_bytes)", "{{instance}}"),
                    query("max by (instance) (rabbitmq_disk_space_available_limit_bytes)", "{{instance}} alarm"),
                ],
                "bytes",
            ),
        ],
    )


def attention():
    return dashboard(
        "attention",
        "Attention",
        "What waits for a person, what could not be accepted, and what fails.",
        [
            lines(
                "Waits for a person",
                [query(f"max by (kind, age) (everstep_attention{{{HERE}}})", "{{kind}}, {{age}}")],
                text="everstep attention list. hour: asked within an hour; day: within a day; older.",
                stack=True,
            ),
            table(
                "By kind",
                f"sum by (kind) (max by (kind, age) (everstep_attention{{{HERE}}}))",
                "Each kind has a page under docs/errors.",
            ),
            lines(
                "Open, by status and reason",
                [query(f'max by (status, reason) (everstep_open_instances{{{HERE},status=~"attention|paused|pausing"}})', "{{status}} {{reason}}")],
                stack=True,
            ),
            lines(
                "Ready and served by nobody",
                [query(f"max by (queue) (everstep_unserved{{{HERE}}})", "{{queue}}")],
                thresholds=((1, "orange"),),
            ),
            lines(
                "Rejected messages",
                [query(f"sum by (code) (increase(everstep_messages_rejected_total{{{HERE}}}[5m])) > 0", "{{code}}")],
                text="In 5 minutes. everstep rejected list.",
            ),
            lines(
                "Records of rejected messages",
                [query(f"max by (exported_namespace, namespace) (everstep_rejected_bytes{{{HERE}}})", "{{exported_namespace}}{{namespace}}")],
                "bytes",
                "At coordinator.rejected_bytes the namespace's intake stops.",
            ),
            lines(
                "Intake stopped",
                [query(f"max by (exported_namespace, namespace) (everstep_intake_stopped{{{HERE}}})", "{{exported_namespace}}{{namespace}}")],
                thresholds=((1, "red"),),
            ),
            lines(
                "Workflows that end with an error",
                [query(f'sum by (workflow) (increase(everstep_instances_ended_total{{{HERE},status="errored"}}[5m]))', "{{workflow}}")],
                text="In 5 minutes.",
            ),
        ],
    )


def main():
    check = "--check" in sys.argv[1:]
    FOLDER.mkdir(exist_ok=True)
    wanted = dict(make() for make in (fleet, workflow, coordinators, workers, broker, attention))
    stale = [file.name for file in FOLDER.glob("*.json") if file.name not in wanted]
    for name, content in wanted.items():
        file, text = FOLDER / name, json.dumps(content, indent=2) + "\n"
        if check and (not file.exists() or file.read_text() != text):
            stale.append(name)
        elif not check:
            file.write_text(text)
    if stale:
        sys.exit(f"dashboards: not what deploy/grafana/make.py writes: {', '.join(sorted(stale))}")


if __name__ == "__main__":
    main()
