#!/usr/bin/env bash
# Counts the instructions that an instance of five steps costs in the engine and on the wire (rule W38), and fails if a part
# of it costs over a tenth more than recorded in crates/engine/instructions.txt:
#
#   scripts/instructions.sh            # compare
#   scripts/instructions.sh --record   # write what is counted; the commit says why
#
# Instructions hardly depend on the machine or its load, where time does. Each mode of the example seq5_cost runs with 10
# and with 1,010 instances under valgrind, so that what a process costs by itself cancels out. Installs valgrind with
# apt-get where it is missing. The figures are of Linux on x86-64; elsewhere nothing is compared, and it says so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

record=no
case "${1:-}" in
  '') ;;
  --record) record=yes ;;
  *)
    echo "usage: scripts/instructions.sh [--record]" >&2
    exit 2
    ;;
esac

figures=crates/engine/instructions.txt
modes=(decide encode decode replay)
program=${CARGO_TARGET_DIR:-target}/release/examples/seq5_cost

say() { echo "instructions: $*"; }

if [ "$(uname -sm)" != 'Linux x86_64' ]; then
  say "not counted: the recorded figures are of Linux on x86-64, this is $(uname -sm)"
  exit
fi

install_valgrind() {
  local elevate=()
  if [ "$(id -u)" != 0 ]; then elevate=(sudo); fi
  if ! command -v apt-get >/dev/null || ! command -v "${elevate[0]:-true}" >/dev/null; then
    say "valgrind is missing and cannot be installed from here" >&2
    exit 1
  fi
  say "installing valgrind"
  "${elevate[@]}" apt-get update -qq >&2
  "${elevate[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends valgrind libc6-dbg </dev/null >&2
}

# count MODE N: the instructions of one process.
count() {
  local log
  log=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" "$2" 2>&1) || {
    echo "$log" >&2
    return 1
  }
  awk '/Collected :/ { print $NF; found = 1 } END { exit !found }' <<<"$log"
}

command -v valgrind >/dev/null || install_valgrind

locked=()
if [ -n "${CI:-}" ]; then locked=(--locked); fi
cargo build --release --quiet "${locked[@]}" -p everstep-engine --example seq5_cost

counted=
for mode in "${modes[@]}"; do
  few=$(count "$mode" 10)
  many=$(count "$mode" 1010)
  counted+="$mode $(((many - few) / 1000))"$'\n'
done

if [ "$record" = yes ]; then
  {
    echo "# Instructions per instance of five steps, by part of the path: written by scripts/instructions.sh --record."
    printf '%s' "$counted"
  } >"$figures"
  say "recorded in $figures"
  cat "$figures"
  exit
fi

# Both files in one pass: what is recorded, then what was counted.
awk '
  /^#/ { next }
  NR == FNR { recorded[$1] = $2; next }
  {
    if (!($1 in recorded)) { printf "instructions: %s is not recorded\n", $1; bad = 1; next }
    change = 100 * ($2 - recorded[$1]) / recorded[$1]
    printf "instructions: %-7s %7d per instance, recorded %7d, %+.1f %%\n", $1, $2, recorded[$1], change
    if (change > 10) { printf "instructions: %s costs over a tenth more than recorded\n", $1; bad = 1 }
  }
  END { exit bad }
' "$figures" <(printf '%s' "$counted")
