#!/usr/bin/env bash
# Holds docs/conformance.md and the tests together:
#   - B1 to B150 and T1 to T51 are listed, each once;
#   - each row names a test, or says `does not apply:` or `later:` with the reason;
#   - each test that is named exists;
#   - each test of crates/conformance is named in the row of each number that it bears.
# Prints every breach, and exits 1 if there is one. To say that something is there now, name its test in place of `later:`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

list=docs/conformance.md
breaches=0
breach() {
  echo "conformance: $*" >&2
  breaches=$((breaches + 1))
}

declare -A rows exists
# One name a line, wherever tests are: `fn name(` in Rust.
while read -r name; do exists[$name]=1; done < <(
  grep -rhoE --include='*.rs' 'fn [a-z0-9_]+[(]' crates examples loadtest | sed -E 's/^fn //; s/[(]$//' | sort -u
)

# | number | what is checked | where |
while IFS='|' read -r _ number _ where _; do
  number=${number// /}
  if [ -n "${rows[$number]:-}" ]; then breach "$number is listed twice"; fi
  rows[$number]=" $where "
  names=$(grep -oE '`[a-z0-9_]+`' <<<"$where" | tr -d '`' || true)
  if [ -z "$names" ] && ! grep -qE '^ (does not apply|later): [^ ]' <<<"$where"; then
    breach "$number names no test and does not say why"
  fi
  for name in $names; do
    [ -n "${exists[$name]:-}" ] || breach "$number names \`$name\`, which does not exist"
  done
done < <(grep -E '^\| [BTO][0-9]+ \|' "$list")

for number in B{1..150} T{1..51}; do
  [ -n "${rows[$number]:-}" ] || breach "$number is not listed"
done
for number in "${!rows[@]}"; do
  grep -qE '^(B([1-9]|[1-9][0-9]|1[0-4][0-9]|150)|T([1-9]|[1-4][0-9]|5[01])|O[0-9]+)$' <<<"$number" ||
    breach "$number is no number of the list"
done

# The numbers in front of a test's name: b034_, t46_, o01_, any number of them.
while read -r name; do
  rest=$name
  while [[ $rest =~ ^([bto])0*([0-9]+)_(.*)$ ]]; do
    number=${BASH_REMATCH[1]^^}${BASH_REMATCH[2]}
    rest=${BASH_REMATCH[3]}
    [[ ${rows[$number]:-} == *"\`$name\`"* ]] || breach "$name bears the number $number, whose row does not name it"
  done
done < <(grep -rhoE --include='*.rs' 'fn [bto][0-9]+_[a-z0-9_]+' crates/conformance/tests | sed 's/^fn //' | sort -u)

if [ "$breaches" -gt 0 ]; then exit 1; fi
echo "conformance: ${#rows[@]} numbers, each with its test or its reason"
