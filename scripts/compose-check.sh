#!/usr/bin/env bash
# Runs deploy/compose.yaml with docker-compose of Debian 13 against podman, in a world of its own (scripts/debian13.sh): an order that is
# started with the command at the file's head must end, and Prometheus must reach all that it scrapes and evaluate all rules.
#
#   scripts/images.sh FOLDER_OF_BINARIES && scripts/compose-check.sh
#
# Images that come from registries are made of Debian's packages here. There is none of Grafana: that service is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=scripts/containers/folders.sh
source scripts/containers/folders.sh
engine_folder
server_folders
monitoring_folder
timeout 900 scripts/debian13.sh run engine "$PWD:/repository:ro" "${EVERSTEP_DEBIAN13:-/var/lib/everstep-dev/debian13}:/folders:ro" -- \
  python3 -B /repository/scripts/containers/compose.py
echo "compose: nothing is left of it on this machine"
