#!/usr/bin/env bash
# Makes a directory of Node packages, for examples/producers/node and for the check of the AsyncAPI document, and prints its path:
#
#   NODE_PATH="$(scripts/node-env.sh)" node examples/producers/node/publish_orders.mjs --url ... --orders ...
#
# It lives in ${XDG_CACHE_HOME:-~/.cache}/everstep/node and is made once. Where node or npm is missing it is installed with apt-get.
set -euo pipefail

packages='amqplib@2.3.1 @asyncapi/specs@6.11.1 ajv@8.20.0 yaml@2.9.1'
home=${XDG_CACHE_HOME:-$HOME/.cache}/everstep/node

say() { printf 'node-env: %s\n' "$*" >&2; }

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

mkdir -p "$(dirname "$home")"
exec 9>"$home.lock"
flock 9
command -v node >/dev/null && command -v npm >/dev/null || apt_install nodejs npm
if [ "$(cat "$home/packages" 2>/dev/null)" != "$packages" ]; then
  say "making $home"
  rm -rf "$home"
  mkdir -p "$home"
  # shellcheck disable=SC2086
  npm install --prefix "$home" --no-audit --no-fund --no-save --silent $packages >&2
  printf '%s' "$packages" >"$home/packages"
fi
echo "$home/node_modules"
