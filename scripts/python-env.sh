#!/usr/bin/env bash
# Makes a Python environment with pika, for examples/producers, and prints the path of its python:
#
#   "$(scripts/python-env.sh)" examples/producers/publish_orders.py --help
#
# It lives in ${XDG_CACHE_HOME:-~/.cache}/everstep/python and is made once. Where the venv module is missing (Debian
# without python3-venv) it is installed with apt-get, and failing that virtualenv takes its place.
set -euo pipefail

pika='pika>=1.3,<2'
home=${XDG_CACHE_HOME:-$HOME/.cache}/everstep/python
python=$home/bin/python

say() { printf 'python-env: %s\n' "$*" >&2; }

works() { [ -x "$python" ] && "$python" -c 'import pika' 2>/dev/null; }

apt_install() {
  command -v apt-get >/dev/null || return 1
  local elevate=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || return 1
    elevate=(sudo)
  fi
  say "installing $*"
  "${elevate[@]}" apt-get update -qq >&2 &&
    "${elevate[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2
}

# Without ensurepip `python3 -m venv` fails halfway, so each try starts from nothing.
make_venv() { rm -rf "$home" && "$1" -m venv "$home" >/dev/null 2>&1; }

make_environment() {
  command -v python3 >/dev/null || apt_install python3 python3-venv || true
  if make_venv python3; then return 0; fi
  # The package serves Debian's own Python, which need not be the first one on the PATH.
  if apt_install python3-venv && { make_venv python3 || make_venv /usr/bin/python3; }; then return 0; fi
  say "no venv module, trying virtualenv"
  rm -rf "$home"
  { python3 -m pip install --quiet --user virtualenv || python3 -m pip install --quiet --user --break-system-packages virtualenv; } >&2 &&
    python3 -m virtualenv --quiet "$home" >&2
}

mkdir -p "$(dirname "$home")"
exec 9>"$(dirname "$home")/python.lock"
flock 9
if ! works; then
  make_environment || { say "cannot make a Python environment in $home"; exit 1; }
  "$python" -m pip install --quiet --disable-pip-version-check "$pika" >&2
  works || { say "pika cannot be imported from $python"; exit 1; }
fi
echo "$python"
