#!/usr/bin/env bash
# Runs a real fleet under load, lets a real Prometheus scrape it, asks it every query of every dashboard and alert, and draws what came
# back into docs/operations/pictures. An empty answer is a failure.
#
#   scripts/dashboards-proof.sh FOLDER_OF_BINARIES [SECONDS]
#
# PostgreSQL is that of scripts/services.sh. RabbitMQ is one of its own, with the plugin that shows its queues, by the distribution's
# package; Prometheus and postgres_exporter are the distribution's too. What is missing is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

home=${XDG_CACHE_HOME:-$HOME/.cache}/everstep/proof-python
python=$home/bin/python

say() { printf 'dashboards-proof: %s\n' "$*" >&2; }

missing=()
command -v promtool >/dev/null || missing+=(prometheus)
command -v prometheus-postgres-exporter >/dev/null || missing+=(prometheus-postgres-exporter)
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || missing+=(rabbitmq-server)
if [ ${#missing[@]} -gt 0 ]; then
  elevate=()
  if [ "$(id -u)" != 0 ]; then elevate=(sudo); fi
  say "installing ${missing[*]}"
  "${elevate[@]}" apt-get update -qq >&2
  "${elevate[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null >&2
fi
if ! [ -x "$python" ]; then
  say "making $home"
  python3 -m venv "$home" >/dev/null
  "$python" -m pip install --quiet --disable-pip-version-check 'pyyaml==6.0.4' 'pika>=1.3,<2' 'matplotlib>=3.8,<4' >&2
fi
exec "$python" scripts/dashboards-proof.py "$@"
