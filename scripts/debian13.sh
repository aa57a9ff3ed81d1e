#!/usr/bin/env bash
# Debian 13 in folders: what the checks of images, pods and the Compose file need and this machine's own distribution may not have.
#
#   scripts/debian13.sh folder NAME PACKAGE...            make the folder, or nothing when it is there; prints its path
#   scripts/debian13.sh run NAME [BIND...] -- COMMAND...  run a command with the folder as its root
#   scripts/debian13.sh remove                            remove all folders
#
# `run` gives the command a world of its own: mounts, network (loopback alone), processes, host name. When it ends, so does every process
# that it began, and with it every mount and every rule of its network: there is nothing to take down. What a container engine leaves in
# the control groups, which have no such world, is removed after it. Then it looks whether anything is left all the same, which is a
# failure. A BIND is FOLDER:PLACE or FOLDER:PLACE:ro, and shows a folder of this machine at a place in there. Two that run in one folder
# take turns.
#
# Needs root; mmdebstrap is installed if it is missing. The mirrors are those of this machine's apt. The folders are under
# /var/lib/everstep-dev/debian13, or where EVERSTEP_DEBIAN13 says; not in /tmp if that is mounted without devices.
set -euo pipefail

state=${EVERSTEP_DEBIAN13:-/var/lib/everstep-dev/debian13}
suite=trixie

say() { printf 'debian13: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# mirror LABEL: what apt has here for this part of Debian.
mirror() {
  # The text is apt's to read.
  # shellcheck disable=SC2016
  apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' "Label: $1" 2>/dev/null | sort -u | sed 1q
}

install_tool() {
  command -v mmdebstrap >/dev/null && return 0
  command -v apt-get >/dev/null || die "install mmdebstrap first: there is no apt-get here"
  say "installing mmdebstrap"
  apt-get update -qq >&2
  env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap </dev/null >&2
}

folder() {
  local name=$1
  shift
  local root=$state/$name wanted="$suite $*"
  mkdir -p "$state"
  exec 9>"$state/$name.lock"
  flock 9
  if [ "$(cat "$root.made" 2>/dev/null)" = "$wanted" ]; then
    echo "$root"
    return 0
  fi
  install_tool
  local main security begun=$SECONDS
  # Where apt was never asked for its lists, it does not know whose they are.
  [ -n "$(mirror Debian)" ] || apt-get update -qq >&2
  main=$(mirror Debian) security=$(mirror Debian-Security)
  if [ -z "$main" ] || [ -z "$security" ]; then die "no mirror of Debian and of its security updates in apt's sources"; fi
  rm -rf "$root" "$root.made"
  say "making $root: $*"
  # The manual pages and translations are a quarter of it, and nobody reads them there.
  mmdebstrap --quiet --mode=root --variant=minbase --include="$(IFS=,; echo "$*")" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    "$suite" "$root" \
    "deb $main $suite main" "deb $main $suite-updates main" "deb $security $suite-security main" </dev/null >&2 ||
    { rm -rf "$root"; die "$root could not be made"; }
  echo "$wanted" >"$root.made"
  say "made $root in $((SECONDS - begun)) s, $(du -sm "$root" | cut -f 1) MB"
  echo "$root"
}

# What engines left in the control groups; empty groups can be removed, those in use cannot.
groups() { find /sys/fs/cgroup -mindepth 1 -type d -path '*/libpod*' 2>/dev/null | sort -r; }

# traces ROOT: what a run could leave on this machine.
traces() {
  local process
  for process in /proc/[0-9]*; do
    if [ "$(readlink "$process/root" 2>/dev/null)" = "$1" ]; then echo "process ${process#/proc/}: $(tr '\0' ' ' <"$process/cmdline" | cut -c -100)"; fi
  done 2>/dev/null
  awk -v root="$1" '$5 == root || index($5, root "/") == 1 { print "mount " $5 }' /proc/self/mountinfo
  groups | sed 's/^/control group /'
  if command -v nft >/dev/null; then nft list tables 2>/dev/null; fi
}

run() {
  local name=$1 binds=()
  shift
  local root=$state/$name
  [ -e "$root.made" ] || die "there is no folder $root"
  while [ "${1:-}" != -- ]; do
    [ $# -gt 0 ] || die "run NAME [BIND...] -- COMMAND..."
    binds+=("$1")
    shift
  done
  shift
  exec 9>"$state/$name.lock"
  flock 9
  local before result=0 group left world
  before=$(traces "$root")
  # Whatever becomes of this script, the world ends with it; told to stop, it looks after what is left all the same.
  # pivot_root and not chroot: an engine changes its root again, and may do so only where the root is a mount.
  # The script in quotes is run in the new world, with its own arguments.
  # shellcheck disable=SC2016
  setpriv --pdeathsig KILL unshare --mount --net --pid --uts --ipc --fork --kill-child --propagation private bash -euc '
    root=$1 name=$2
    shift 2
    hostname "everstep-$name"
    mount --rbind "$root" "$root"
    cd "$root"
    mkdir -p .old
    mount --rbind /sys sys
    mount --rbind /dev dev
    mount -t proc proc proc
    mount -t tmpfs tmpfs run
    mount -t tmpfs tmpfs tmp
    chmod 1777 tmp
    mkdir -p run/lock
    while [ "$1" != -- ]; do
      IFS=: read -r from place how <<<"$1"
      mkdir -p ".$place"
      mount --bind "$from" ".$place"
      if [ "$how" = ro ]; then mount -o remount,bind,ro ".$place"; fi
      shift
    done
    shift
    pivot_root . .old
    exec chroot . /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euc "
      umount -l /.old
      ip link set lo up
      cd /
      # Not exec: process 1 has to wait for what others leave, and bash does.
      result=0
      \"\$@\" || result=\$?
      exit \$result" world "$@"' world "$root" "$name" "${binds[@]}" -- "$@" <&0 9>&- &
  world=$!
  trap 'kill -KILL "$world" 2>/dev/null || true' INT TERM
  wait "$world" || result=$?
  # A signal ends the first wait, not the second.
  wait "$world" 2>/dev/null || true
  trap - INT TERM
  while read -r group; do
    grep -qxF -- "control group $group" <<<"$before" || rmdir "$group" 2>/dev/null || true
  done < <(groups)
  left=$(comm -13 <(sort <<<"$before") <(traces "$root" | sort))
  if [ -n "$left" ]; then
    say "left behind:"$'\n'"$left"
    return 1
  fi
  return "$result"
}

remove() {
  local made
  for made in "$state"/*.made; do
    [ -e "$made" ] || continue
    ! grep -qF " ${made%.made}/" /proc/self/mountinfo || die "something is mounted under ${made%.made}"
    rm -rf "${made%.made}" "$made" "${made%.made}.lock"
  done
}

[ "$(id -u)" = 0 ] || die "needs root: it makes device files, mounts and namespaces"
case ${1:-} in
  folder) [ $# -ge 3 ] || die "folder NAME PACKAGE..."; folder "${@:2}" ;;
  run) [ $# -ge 3 ] || die "run NAME [BIND...] -- COMMAND..."; run "${@:2}" ;;
  remove) remove ;;
  *)
    echo "usage: $0 folder NAME PACKAGE... | run NAME [BIND...] -- COMMAND... | remove" >&2
    exit 2
    ;;
esac
