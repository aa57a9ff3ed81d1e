#!/bin/bash
# Stands in for the entry of the official image of PostgreSQL where no registry is reached: the same variables, the same folder, the same
# temporary server on the socket alone at the first start.
set -euo pipefail

data=${PGDATA:-/var/lib/postgresql/data}
user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
: "${POSTGRES_PASSWORD:?}"

if [ "$(id -u)" = 0 ]; then
  install -d -o postgres -g postgres /run/postgresql "$data"
  exec setpriv --reuid=postgres --regid=postgres --init-groups --bounding-set=-all "$0" "$@"
fi
if [ ! -s "$data/PG_VERSION" ]; then
  initdb --pgdata "$data" --username "$user" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") --auth-local=trust --auth-host=scram-sha-256 \
    --encoding=UTF8 --locale-provider=builtin --builtin-locale=C.UTF-8 --locale=C.UTF-8 >/dev/null
  echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
  pg_ctl --pgdata "$data" --wait --silent --options "-c listen_addresses=''" start >/dev/null
  if [ "$database" != postgres ]; then createdb --username "$user" --owner "$user" --maintenance-db postgres "$database"; fi
  pg_ctl --pgdata "$data" --wait --silent stop >/dev/null
fi
exec postgres -D "$data" -c "listen_addresses=*" "$@"
