#!/usr/bin/env bash
# Checks what stands in deploy and docs/operations, without a cluster, a Prometheus or a Grafana:
#
#   - rules: promtool reads them and runs their unit tests; each alert has its runbook, and the PrometheusRule is the same rules;
#   - dashboards: they are what deploy/grafana/make.py writes, fit Grafana's own schema, ask only for metrics that exist, and every
#     variable is used;
#   - Kubernetes: kustomize builds base and overlays; what is Kubernetes' own fits the schema of 1.37 and of 1.31, what is of the
#     Prometheus operator and KEDA their models, with unknown fields refused; pods keep to the restricted profile;
#   - the documents of the operations guide link to files that are there.
#
# What is missing is installed: promtool with apt-get, the rest into ${XDG_CACHE_HOME:-~/.cache}/everstep/ops-python, once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages='kubernetes-validate==1.37.0
pyyaml==6.0.4
cloudcoil-models-keda==2.16.1.0
cloudcoil-models-prometheus-operator==0.80.1.0
grafana-foundation-sdk==1769699998!10.1.0'
home=${XDG_CACHE_HOME:-$HOME/.cache}/everstep/ops-python
python=$home/bin/python

say() { printf 'ops-check: %s\n' "$*" >&2; }

apt_install() {
  local elevate=()
  if [ "$(id -u)" != 0 ]; then elevate=(sudo); fi
  say "installing $*"
  "${elevate[@]}" apt-get update -qq >&2
  # The package's own server is not started: a daemon is nothing that a check leaves behind.
  "${elevate[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2
}

command -v promtool >/dev/null || apt_install prometheus

mkdir -p "$(dirname "$home")"
exec 9>"$(dirname "$home")/ops-python.lock"
flock 9
if ! [ -x "$python" ] || [ "$(cat "$home/packages" 2>/dev/null)" != "$packages" ]; then
  say "making $home"
  rm -rf "$home"
  # Debian's Python has no venv module by itself; another one on the PATH may.
  if ! python3 -m venv "$home" >/dev/null 2>&1; then
    rm -rf "$home"
    apt_install python3-venv
    /usr/bin/python3 -m venv "$home"
  fi
  "$python" -m pip install --quiet --disable-pip-version-check $packages >&2
  printf '%s' "$packages" >"$home/packages"
fi
kubectl=$(scripts/kubectl.sh "$python")
flock -u 9

promtool check rules deploy/prometheus/recording.rules.yaml deploy/prometheus/alerts.rules.yaml >/dev/null
promtool check config deploy/prometheus/prometheus.yaml >/dev/null
promtool test rules deploy/prometheus/tests/*.yaml >/dev/null
scripts/prometheus-rule.py --check
deploy/grafana/make.py --check

built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
for folder in base overlays/small overlays/production; do
  "$kubectl" kustomize "deploy/kubernetes/$folder" >"$built/${folder##*/}.yaml"
done
# The components that no overlay takes.
mkdir "$built/with-hpa"
from=$(realpath --relative-to "$built/with-hpa" deploy/kubernetes)
cat >"$built/with-hpa/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [$from/base]
components: [$from/components/hpa, $from/components/otlp]
YAML
"$kubectl" kustomize "$built/with-hpa" >"$built/hpa.yaml"
"$python" scripts/ops-check.py "$built"
echo "ops-check: rules, dashboards, manifests and documents are in order"
