#!/usr/bin/env python3
"""Writes deploy/kubernetes/components/monitoring/rules.yaml, the PrometheusRule, from deploy/prometheus.

    scripts/prometheus-rule.py            write
    scripts/prometheus-rule.py --check    exit 1 if the file differs

It copies text and needs no YAML library, so comments stay.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ["recording.rules.yaml", "alerts.rules.yaml"]
TARGET = ROOT / "deploy/kubernetes/components/monitoring/rules.yaml"
HEAD = """\
# Made by scripts/prometheus-rule.py of deploy/prometheus: change the rules there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: everstep
spec:
  groups:
"""


def groups(source):
    """What stands below `groups:`, as deep as it is there."""
    text = (ROOT / "deploy/prometheus" / source).read_text()
    _, found, below = text.partition("\ngroups:\n")
    if not found:
        sys.exit(f"prometheus-rule: {source} has no groups")
    return below


def main():
    body = "".join(groups(source) for source in SOURCES)
    text = HEAD + "".join(f"  {line}" if line.strip() else line for line in body.splitlines(keepends=True))
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text() != text:
            sys.exit("prometheus-rule: rules.yaml is not what deploy/prometheus says; run scripts/prometheus-rule.py")
    else:
        TARGET.write_text(text)


if __name__ == "__main__":
    main()
