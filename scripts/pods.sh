#!/usr/bin/env bash
# Runs what `kubectl kustomize deploy/kubernetes/overlays/small` gives as real pods, without a cluster: podman of Debian 13 plays them in a
# world of their own (scripts/debian13.sh), from the images that scripts/images.sh has built. Orders run before and during a rolling update
# of every Deployment; each must end complete, at the first attempt of every step, and be charged once.
#
#   scripts/images.sh FOLDER_OF_BINARIES && scripts/pods.sh
#
# What the pods are given instead of the two operators' servers, and what differs from a cluster, stands in scripts/containers/pods.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=scripts/containers/folders.sh
source scripts/containers/folders.sh
engine_folder
server_folders

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# shellcheck source=scripts/kubectl.sh
kubectl=$(scripts/kubectl.sh)
"$kubectl" kustomize deploy/kubernetes/overlays/small >"$stage/small.yaml"

timeout 1200 scripts/debian13.sh run engine "$PWD:/repository:ro" "$stage:/stage" "${EVERSTEP_DEBIAN13:-/var/lib/everstep-dev/debian13}:/folders:ro" -- \
  python3 -B /repository/scripts/containers/pods.py /stage/small.yaml
echo "pods: nothing is left of them on this machine"
