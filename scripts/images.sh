#!/usr/bin/env bash
# Builds both images of deploy/Containerfile and looks at them; no registry is needed, and no container engine on this machine.
#
#   scripts/images.sh FOLDER_OF_BINARIES [FOLDER_FOR_ARCHIVES]
#
# The programs were compiled outside, on a distribution whose glibc is not newer than Debian 13's. They stand on what they need of Debian 13
# and nothing else: no shell, no package manager. The engine is buildah and podman of Debian 13 in a folder (scripts/debian13.sh). With a
# second folder both images are saved there as archives, which `podman load` and `docker load` read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[ $# -ge 1 ] || { echo "usage: $0 FOLDER_OF_BINARIES [FOLDER_FOR_ARCHIVES]" >&2; exit 2; }
binaries=$1
archives=${2:-}

# shellcheck source=scripts/containers/folders.sh
source scripts/containers/folders.sh
engine_folder

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/out" "$stage/archives"
cp "$binaries"/{everstep,everstep-http-worker,everstep-label-worker,payment} Cargo.lock LICENSE "$stage/out/"
cp "$binaries/worker" "$stage/out/everstep-example-worker"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
revision=$(git describe --always --abbrev=40 --exclude '*' --dirty=-changed 2>/dev/null || echo unknown)

timeout 900 scripts/debian13.sh run engine "$PWD:/repository:ro" "$stage:/stage" -- \
  python3 -B /repository/scripts/containers/images.py "$version" "$revision" ${archives:+--save}
if [ -n "$archives" ]; then
  mkdir -p "$archives"
  mv "$stage/archives"/*.tar "$archives/"
  ls -l "$archives"
fi
