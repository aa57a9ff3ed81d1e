#!/usr/bin/env bash
# Holds a running server to its OpenAPI document: schemathesis sends what the document allows, what it forbids and what nobody would
# think of, and checks that each answer is one that the document names, of its type and shape, and never a failure of the server.
#
#   scripts/contract.sh DIRECTORY-WITH-everstep [SECONDS]
#
# Three phases, each in a run of its own, since one that shares its time with others gets what they leave: what each schema's edges are, all of
# them; then for SECONDS what is drawn; then for SECONDS operations one after another, as an answer of one leads to the next.
# What is not asked of which operation, and why, is in scripts/contract.toml, what is no failure in scripts/contract_hooks.py. Streams of events are left out: they go on, and have tests of their
# own. The seed is fixed, so that a failure can be repeated; what is printed of it has a command for curl. One worker: with several, Python's
# reader of source text fails now and then where two read at once. Schemathesis is installed into
# ${XDG_CACHE_HOME:-~/.cache}/everstep/contract-python, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
everstep=$(realpath "${1:?where is everstep?}")/everstep
asked=$PWD/scripts/contract.toml
export SCHEMATHESIS_HOOKS=$PWD/scripts/contract_hooks.py
seconds=${2:-15}
seed=${SEED:-20260131}

packages='schemathesis==4.32.5'
home=${XDG_CACHE_HOME:-$HOME/.cache}/everstep/contract-python

say() { printf 'contract: %s\n' "$*" >&2; }

mkdir -p "$(dirname "$home")"
exec 9>"$home.lock"
flock 9
if [ "$(cat "$home/packages" 2>/dev/null)" != "$packages" ]; then
  say "making $home"
  rm -rf "$home"
  # The producers' script knows how to come by a Python with its venv module.
  "$(scripts/python-env.sh)" -m venv "$home"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check $packages >&2
  printf '%s' "$packages" >"$home/packages"
fi
exec 9>&-

dir=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
  rm -rf "$dir"
}
trap finish EXIT

port=$("$home/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
serve() {
  "$everstep" dev --data "$dir/data" --listen "127.0.0.1:$port" >>"$dir/log" 2>&1 &
  server=$!
  for _ in $(seq 100); do
    if curl -fsS -o /dev/null "$url/readyz" 2>/dev/null; then return; fi
    kill -0 "$server" 2>/dev/null || { cat "$dir/log"; say "the server has ended"; exit 1; }
    sleep 0.1
  done
}
end() {
  kill "$server"
  wait "$server" || true
}

# A token is made while none is asked for, and asked for from then on, here too.
serve
token=$("$everstep" access-token create --url "$url" --role admin --all-namespaces --name contract)
end
export EVERSTEP_HTTP__ACCESS=always
serve

# Something to be found: each of these is in another status.
open=(-H "authorization: Bearer $token")
start() { curl -fsS -o /dev/null "${open[@]}" -H 'content-type: application/json' "$url/v1/default/workflows/$1/instances" -d "$2"; }
for number in 1 2 3; do start orders "{\"id\":\"o-$number\",\"attributes\":{\"region\":\"eu\"}}"; done
start nobody '{"id":"queued"}'
start nobody '{"id":"paused","hook":{"token":"t-1","metadata":{"n":1}}}'
curl -fsS -o /dev/null "${open[@]}" -X POST "$url/v1/default/workflows/nobody/instances/paused/pause"

cd "$dir"
ask() {
  "$home/bin/schemathesis" --config-file "$asked" run "$url/openapi.json" "${open[@]}" --exclude-tag streams --phases "$@" \
    --workers 1 --seed "$seed" --request-timeout 30 --suppress-health-check all --warnings off --continue-on-failure --no-color \
    || { tail -20 "$dir/log"; exit 1; }
}
ask coverage
ask fuzzing --max-time "$seconds" --max-examples 30
ask stateful --max-time "$seconds" --max-examples 30
if grep -q panicked "$dir/log"; then
  cat "$dir/log"
  say "something panicked"
  exit 1
fi
