#!/usr/bin/env bash
# Proves what is not there:
#   - the engine, the protocol and the calendar depend, at any depth, on no runtime, driver, clock or randomness;
#   - each driver is named by the one crate that hides it, and by no other crate of the workspace;
#   - the command brings along nothing that is for tests alone;
#   - what makes HTTP calls and what writes to users' databases bring along no more than they need, and nothing brings them along;
#   - what users depend on brings along neither what is for tests alone, nor an allocator: that is a program's own choice;
#   - the engine's source has no async code and reads no clock.
# Prints every breach, and exits 1 if there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

locked=()
if [ -n "${CI:-}" ]; then locked=(--locked); fi
tree() { cargo tree "${locked[@]}" --quiet --all-features --target all --prefix none --format '{p}' "$@"; }

breaches=0
breach() {
  echo "absences: $*" >&2
  breaches=$((breaches + 1))
}

# Tests may use what the crate itself may not, hence no dev-dependencies here.
forbidden='tokio|async-std|lapin|tokio-postgres|rusqlite|rand|chrono|time|futures'
for crate in everstep-engine everstep-protocol everstep-calendar; do
  packages=$(tree --package "$crate" --edges normal,build)
  grep -q "^$crate " <<<"$packages" || breach "cargo tree shows nothing of $crate"
  while read -r name; do
    breach "$crate depends on $name: cargo tree -p $crate -i $name"
  done < <(awk '{ print $1 }' <<<"$packages" | grep -xE "$forbidden" | sort -u)
done

dev_only='everstep-(testbed|testkit|simulator|system-tests|conformance|loadtest|soak|examples|fleet-demo|ledger-proof|chaos|label-worker|producer|cli)|mimalloc'
for crate in everstep everstep-coordinator; do
  while read -r name; do
    breach "$crate depends on $name: cargo tree -p $crate -i $name --edges normal,build"
  done < <(tree --package "$crate" --edges normal,build | awk 'NF { print $1 }' | grep -xE "$dev_only" | sort -u)
done

# brings CRATE WHAT UNWANTED [FLAG...]: what a crate, with these flags, brings along at any depth matches this nowhere.
brings() {
  local crate=$1 what=$2 unwanted=$3 packages name
  shift 3
  packages=$(cargo tree "${locked[@]}" --quiet --package "$crate" "$@" --target all --prefix none --format '{p}' \
    --edges normal,build | awk 'NF { print $1 }' | sort -u)
  grep -qx "$crate" <<<"$packages" || breach "cargo tree shows nothing of $crate"
  while read -r name; do
    breach "$what depends on $name: cargo tree -p $crate $* -i $name --edges normal,build"
  done < <(grep -xE "$unwanted" <<<"$packages" || true)
}
# Of the workspace, what workflow code itself is written against is enough for both.
beyond_sdk=$(tree --workspace --depth 0 | awk 'NF { print $1 }' | sort -u | grep -vxE 'everstep-(http|postgres|sdk|protocol|macros)' | paste -sd '|')
# Whoever only describes HTTP calls, as workflows do, brings along no client.
brings everstep-http "everstep-http without its worker" "$beyond_sdk|hyper|hyper-util|reqwest|rustls|lapin|tokio-postgres|rusqlite" \
  --no-default-features
# Its worker is one of the fleet: it knows no store, and reads no database.
brings everstep-http "everstep-http" "$dev_only|everstep-(coordinator|store|client|check|postgres)|tokio-postgres|deadpool-postgres|rusqlite|reqwest" \
  --all-features
# A step's writes to its own database bring along neither a worker nor a pool: the connection is the user's.
brings everstep-postgres "everstep-postgres" "$beyond_sdk|lapin|deadpool-postgres|rusqlite|hyper|axum|rustls" --all-features
# Both are for users. The command prints the migration of the one; nothing else of the product knows them.
for crate in everstep everstep-{broker,check,client,coordinator,engine,protocol,sdk,settings,store,testkit,worker}; do
  brings "$crate" "$crate" 'everstep-(http|postgres)' --all-features
done
brings everstep-cli everstep-cli everstep-http --all-features

# The product's binary runs the example workflows in `dev`, but is no test.
while read -r name; do
  breach "everstep-cli depends on $name: cargo tree -p everstep-cli -i $name --edges normal,build"
done < <(tree --package everstep-cli --edges normal,build | awk 'NF { print $1 }' |
  grep -xE 'everstep-(testbed|simulator|system-tests|conformance|loadtest|soak|fleet-demo|ledger-proof|chaos)' | sort -u)

members=$(tree --workspace --depth 0 | awk 'NF { print $1 }' | sort -u)

# only CRATES DRIVER...: no other member names one of these, not even for its tests. The benchmark may: its floor is what a driver
# alone costs. So may the example of a producer, which is none of us, and the chaos run, which looks at the database past all of us.
only() {
  local homes=" $1 " member direct driver
  shift
  for member in $(grep -vxE 'everstep-(chaos|loadtest|producer)' <<<"$members"); do
    direct=$(tree --package "$member" --depth 1 --edges normal,build,dev | awk 'NR > 1 { print $1 }')
    for driver in "$@"; do
      if grep -qx "$driver" <<<"$direct"; then
        [[ $homes == *" $member "* ]] || breach "$member names $driver, which belongs to${homes}alone"
      elif [[ $homes == *" $member "* ]]; then
        breach "$member does not name $driver: this check no longer guards anything"
      fi
    done
  done
}
only everstep-broker lapin
# Users' own databases are written to through a driver that users name too.
only "everstep-store everstep-postgres" tokio-postgres deadpool-postgres
only everstep-store rusqlite
# Which moments an expression names is one crate's business.
only everstep-calendar croner jiff

# Comments may speak of what code may not do.
while IFS= read -r line; do
  breach "the engine is pure: $line"
done < <(grep -rnE --include='*.rs' 'async |SystemTime|Instant::now|Timestamp::now|Zoned::now' crates/{engine,calendar}/src | grep -vE '^[^:]+:[0-9]+:[[:space:]]*//')

if [ "$breaches" -gt 0 ]; then exit 1; fi
echo "absences: nothing is there that must not be"
