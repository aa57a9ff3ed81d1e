#!/usr/bin/env bash
# PostgreSQL and RabbitMQ for development and tests, on this machine, apart from any other server it runs.
#
#   scripts/services.sh up       start both, or do nothing when they run; returns once they are ready
#   scripts/services.sh status   say what runs; exits 1 when something is missing
#   scripts/services.sh env      print export lines:  eval "$(scripts/services.sh env)"
#   scripts/services.sh down     stop what `up` started, and nothing else; the data stays
#
# Where they come from, for each of the two:
#   1. EVERSTEP_TEST_POSTGRES_URL / EVERSTEP_TEST_AMQP_URL name a server: nothing is started, it is only checked.
#   2. A container engine runs (`docker info`): deploy/compose.dev.yaml.
#   3. Otherwise the machine's own programs, with their own ports, node name, cookie and data. What is missing is
#      installed with apt-get, and the servers that packages would start are neither started nor touched.
#
# As root the data is under /var/lib/everstep-dev and the servers run as the users postgres and rabbitmq. As another
# user it is under ${XDG_STATE_HOME:-~/.local/state}/everstep-dev. The file `env` in there holds the settings.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
compose_file=$repository/deploy/compose.dev.yaml
compose_project=everstep-dev

postgres_port=54329
amqp_port=56729
epmd_port=54369
dist_port=56739
node=everstep-dev@localhost

own_postgres_url=postgres://everstep:everstep@127.0.0.1:$postgres_port/everstep
own_amqp_url=amqp://everstep:everstep@127.0.0.1:$amqp_port/everstep

if [ "$(id -u)" = 0 ]; then
  state=/var/lib/everstep-dev
else
  state=${XDG_STATE_HOME:-$HOME/.local/state}/everstep-dev
fi
rabbit=$state/rabbitmq
ctl=$state/rabbitmqctl

say() { printf 'services: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# The servers may not be able to enter the caller's directory.
cd /

# --- who runs what -------------------------------------------------------------------------------------------------

# An URL that is our own is what `env` printed before, not a server that somebody else runs.
named() { [ -n "${1:-}" ] && [ "$1" != "$2" ]; }
postgres_is_named() { named "${EVERSTEP_TEST_POSTGRES_URL:-}" "$own_postgres_url"; }
amqp_is_named() { named "${EVERSTEP_TEST_AMQP_URL:-}" "$own_amqp_url"; }

containers_run() { command -v docker >/dev/null && docker info >/dev/null 2>&1 && docker compose version >/dev/null 2>&1; }

compose() { docker compose --project-name "$compose_project" --file "$compose_file" "$@"; }

# The way of the last `up` wins until `down`, so that starting a container engine meanwhile confuses nothing.
mode() {
  if [ -s "$state/mode" ]; then cat "$state/mode"
  elif containers_run; then echo containers
  else echo programs
  fi
}

# as USER COMMAND...: as root, become that user; otherwise stay who we are.
as() {
  local user=$1
  shift
  if [ "$(id -u)" = 0 ]; then
    setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@"
  else
    "$@"
  fi
}

own() {
  if [ "$(id -u)" = 0 ]; then chown -R "$1:" "${@:2}"; fi
}

# pid_in FILE: the process that the first line names, if it lives. One that died but was not reaped yet does not count.
pid_in() {
  local pid state_letter
  pid=$(head -n 1 "$1" 2>/dev/null | tr -dc 0-9)
  [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || return 1
  state_letter=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null || ps -o stat= -p "$pid" 2>/dev/null || true)
  case $state_letter in Z*) return 1 ;; esac
  echo "$pid"
}

# --- probes --------------------------------------------------------------------------------------------------------

# host_and_port URL DEFAULT_PORT
host_and_port() {
  local rest=${1#*://}
  rest=${rest%%[/?]*}
  rest=${rest##*@}
  rest=${rest%%,*}
  case $rest in
    \[*\]:*) printf '%s %s\n' "$(sed 's/^\[\(.*\)\]:.*/\1/' <<<"$rest")" "${rest##*:}" ;;
    \[*\]) printf '%s %s\n' "${rest:1:-1}" "$2" ;;
    *:*) printf '%s %s\n' "${rest%:*}" "${rest##*:}" ;;
    *) printf '%s %s\n' "$rest" "$2" ;;
  esac
}

port_answers() { timeout 3 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$1" "$2" 2>/dev/null; }

# An AMQP 0-9-1 server answers the protocol header with a method frame, whose first byte is 1.
amqp_answers() {
  [ "$(timeout 5 bash -c '
    exec 3<>"/dev/tcp/$0/$1" || exit 1
    printf "AMQP\0\0\011\001" >&3
    head -c 1 <&3 | od -An -tx1 | tr -d " \n"' "$1" "$2" 2>/dev/null)" = 01 ]
}

own_postgres_answers() {
  port_answers 127.0.0.1 $postgres_port || return 1
  local found
  found=$(PGCONNECT_TIMEOUT=5 "$postgres_bin/psql" -X -At -d "$own_postgres_url" -c 'SHOW data_directory' 2>/dev/null) || return 1
  [ "$found" = "$postgres_data" ]
}

# One call of rabbitmqctl takes a second, so one expression asks everything: does our node (found by its name, its
# epmd and its cookie) hold the port, and do user and vhost exist?
own_rabbitmq_answers() {
  amqp_answers 127.0.0.1 $amqp_port && [ -x "$ctl" ] || return 1
  "$ctl" -q eval "
    Holds = lists:member($amqp_port, [element(6, L) || L <- rabbit_networking:active_listeners(), element(2, L) =:= node()]),
    User = element(1, rabbit_access_control:check_user_pass_login(<<\"everstep\">>, <<\"everstep\">>)) =:= ok,
    {node(), Holds, User, rabbit_vhost:exists(<<\"everstep\">>)}." 2>/dev/null |
    grep -qF "{'$node',true,true,true}"
}

# --- programs ------------------------------------------------------------------------------------------------------

find_postgres() {
  local found
  found=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
  if [ -z "$found" ] || [ ! -x "$found/initdb" ]; then
    found=$(dirname "$(command -v initdb || echo /nowhere/initdb)")
  fi
  postgres_bin=$found
  [ -x "$postgres_bin/initdb" ] && [ -x "$postgres_bin/psql" ] || return 1
  local major
  major=$("$postgres_bin/postgres" --version | grep -oE '[0-9]+' | head -n 1)
  # A data directory belongs to one major version, so an upgrade of the programs starts an empty one.
  postgres_data=$state/postgres-$major
}

find_rabbitmq() {
  # Debian's own /usr/sbin/rabbitmq-server always becomes the user rabbitmq with the packaged node's home.
  local candidate
  for candidate in /usr/lib/rabbitmq/bin "$(dirname "$(command -v rabbitmq-server || echo /nowhere/x)")"; do
    if [ -x "$candidate/rabbitmq-server" ] && [ -x "$candidate/rabbitmqctl" ]; then
      rabbitmq_bin=$candidate
      return 0
    fi
  done
  return 1
}

install_missing() {
  local packages=()
  postgres_is_named || find_postgres || packages+=(postgresql)
  amqp_is_named || find_rabbitmq || packages+=(rabbitmq-server)
  [ ${#packages[@]} -gt 0 ] || return 0

  command -v apt-get >/dev/null || die "install ${packages[*]} first (or run a container engine): there is no apt-get here"
  local elevate=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "installing ${packages[*]} needs root or sudo"
    elevate=(sudo)
  fi
  say "installing ${packages[*]}"
  # Packages ask this file whether they may start their server. Ours is there only while they are installed.
  # shellcheck disable=SC2016
  "${elevate[@]}" env DEBIAN_FRONTEND=noninteractive bash -euc '
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
      trap "rm -f $policy" EXIT
      printf "#!/bin/sh\nexit 101\n" > "$policy"
      chmod 755 "$policy"
    fi
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$@"' install "${packages[@]}" </dev/null >&2
  postgres_is_named || find_postgres || die "PostgreSQL is still missing after the installation"
  amqp_is_named || find_rabbitmq || die "RabbitMQ is still missing after the installation"
}

start_postgres() {
  if own_postgres_answers; then return 0; fi
  if pid_in "$postgres_data/postmaster.pid" >/dev/null; then
    say "PostgreSQL is running but does not answer yet"
  else
    if port_answers 127.0.0.1 $postgres_port; then die "port $postgres_port belongs to another server"; fi
    if [ ! -s "$postgres_data/PG_VERSION" ]; then
      # A directory without this file is what an interrupted initdb left.
      rm -rf "$postgres_data"
      mkdir -p -m 700 "$postgres_data"
      own postgres "$postgres_data"
      # The password file must be readable by the server's user; the password itself is no secret.
      echo everstep >"$state/initdb.password"
      as postgres "$postgres_bin/initdb" -D "$postgres_data" -U everstep --pwfile="$state/initdb.password" \
        --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 >"$state/initdb.log" 2>&1 ||
        { cat "$state/initdb.log" >&2; rm -rf "$postgres_data"; die "initdb failed"; }
      echo "include 'everstep.conf'" >>"$postgres_data/postgresql.conf"
    fi
    # Durability stays on: what tests and measurements prove must hold for a real installation.
    cat >"$postgres_data/everstep.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $postgres_port
unix_socket_directories = ''
max_connections = 300
shared_buffers = 512MB
max_wal_size = 4GB
fsync = on
synchronous_commit = on
full_page_writes = on
autovacuum = on
shared_preload_libraries = ''
timezone = 'UTC'
log_timezone = 'UTC'
CONF
    own postgres "$postgres_data/everstep.conf"
    # A killed server that its parent has not reaped keeps PostgreSQL from starting: it looks alive to kill(2).
    for _ in $(seq 150); do
      local pid
      pid=$(head -n 1 "$postgres_data/postmaster.pid" 2>/dev/null || true)
      [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || break
      sleep 0.2
    done
    as postgres "$postgres_bin/pg_ctl" -D "$postgres_data" -l "$postgres_data/server.log" -w -t 60 start \
      </dev/null >/dev/null 9>&- || { tail -n 20 "$postgres_data/server.log" >&2; die "PostgreSQL did not start"; }
  fi
  # Recovery after a crash may refuse connections for a while.
  local maintenance=postgres://everstep:everstep@127.0.0.1:$postgres_port/postgres
  for _ in $(seq 100); do
    if [ "$("$postgres_bin/psql" -X -At -d "$maintenance" -c 'SHOW data_directory' 2>/dev/null)" = "$postgres_data" ]; then break; fi
    sleep 0.2
  done
  "$postgres_bin/psql" -X -At -d "$maintenance" -c "SELECT 1 FROM pg_database WHERE datname = 'everstep'" | grep -q 1 ||
    "$postgres_bin/psql" -X -q -d "$maintenance" -c 'CREATE DATABASE everstep' >&2
  own_postgres_answers || die "the server on port $postgres_port is not the one in $postgres_data"
}

write_rabbitmq_files() {
  mkdir -p "$rabbit/mnesia" "$rabbit/log"
  cat >"$rabbit/rabbitmq.conf" <<CONF
listeners.tcp.1 = 127.0.0.1:$amqp_port
default_user = everstep
default_pass = everstep
default_vhost = everstep
default_user_tags.administrator = true
disk_free_limit.absolute = 50MB
collect_statistics_interval = 60000
log.console = false
log.file.level = warning
CONF
  echo '[].' >"$rabbit/enabled_plugins"
  # What rabbitmqctl says of a quorum queue is as old as the queue's last tick, by default five seconds.
  echo '[{rabbit, [{quorum_tick_interval, 1000}]}].' >"$rabbit/advanced.config"
  : >"$rabbit/rabbitmq-env.conf"
  if [ ! -s "$rabbit/.erlang.cookie" ]; then
    (umask 077 && head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$rabbit/.erlang.cookie")
  fi
  chmod 400 "$rabbit/.erlang.cookie"
  own rabbitmq "$rabbit"

  # Everything that says which node this is, for the server and for rabbitmqctl alike. The packaged node's settings
  # under /etc/rabbitmq are kept out by naming files of our own, and the caller's environment by starting empty.
  local environment=(
    "HOME=$rabbit"
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$rabbitmq_bin"
    "LANG=C.UTF-8"
    "RABBITMQ_NODENAME=$node"
    "RABBITMQ_DIST_PORT=$dist_port"
    "RABBITMQ_MNESIA_BASE=$rabbit/mnesia"
    "RABBITMQ_LOG_BASE=$rabbit/log"
    "RABBITMQ_PID_FILE=$rabbit/pid"
    "RABBITMQ_CONFIG_FILE=$rabbit/rabbitmq.conf"
    "RABBITMQ_ADVANCED_CONFIG_FILE=$rabbit/advanced.config"
    "RABBITMQ_CONF_ENV_FILE=$rabbit/rabbitmq-env.conf"
    "RABBITMQ_ENABLED_PLUGINS_FILE=$rabbit/enabled_plugins"
    "ERL_EPMD_PORT=$epmd_port"
    "ERL_EPMD_ADDRESS=127.0.0.1"
    # No busy waiting: an idle broker leaves the processor to what is being measured.
    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"
  )
  {
    echo '#!/bin/sh'
    echo '# Runs a program of the development RabbitMQ with the environment and the user of its node.'
    echo 'cd /'
    printf 'run() { exec "$@"; }\n'
    if [ "$(id -u)" = 0 ]; then
      # shellcheck disable=SC2016
      printf '[ "$(id -u)" != 0 ] || run() { exec setpriv --reuid=rabbitmq --regid=%s --init-groups -- "$@"; }\n' "$(id -g rabbitmq)"
    fi
    printf 'run env -i'
    printf " '%s'" "${environment[@]}"
    echo ' "$@"'
  } >"$state/rabbitmq-run"
  {
    echo '#!/bin/sh'
    echo '# rabbitmqctl of the development RabbitMQ. Written by scripts/services.sh up.'
    printf "exec '%s' '%s' \"\$@\"\n" "$state/rabbitmq-run" "$rabbitmq_bin/rabbitmqctl"
  } >"$ctl"
  chmod 755 "$state/rabbitmq-run" "$ctl"
}

start_rabbitmq() {
  if own_rabbitmq_answers; then return 0; fi
  if port_answers 127.0.0.1 $amqp_port; then
    if [ -x "$ctl" ] && "$ctl" -q eval 'node().' 2>/dev/null | grep -q "$node"; then
      say "user or vhost are missing on $node: creating them again"
      repair_rabbitmq
      own_rabbitmq_answers || die "$node does not answer as it should; see $rabbit/log"
      return 0
    fi
    die "port $amqp_port belongs to another server"
  fi
  write_rabbitmq_files
  rm -f "$rabbit/pid"
  # Erlang reserves memory by the limit, so a huge one is no favour.
  local limit
  limit=$(ulimit -Hn)
  if [ "$limit" = unlimited ] || [ "$limit" -gt 65536 ]; then limit=65536; fi
  (
    ulimit -n "$limit" || true
    exec setsid nohup "$state/rabbitmq-run" "$rabbitmq_bin/rabbitmq-server" </dev/null >"$state/rabbitmq.out" 2>&1 9>&-
  ) &
  local started=$!
  for _ in $(seq 300); do
    if amqp_answers 127.0.0.1 $amqp_port; then break; fi
    kill -0 "$started" 2>/dev/null || { tail -n 20 "$state/rabbitmq.out" >&2; die "RabbitMQ did not start; see $rabbit/log"; }
    sleep 0.2
  done
  own_rabbitmq_answers || { repair_rabbitmq; own_rabbitmq_answers; } || die "$node does not answer as it should; see $rabbit/log"
}

repair_rabbitmq() {
  "$ctl" -q add_vhost everstep >/dev/null 2>&1 || true
  "$ctl" -q add_user everstep everstep >/dev/null 2>&1 || "$ctl" -q change_password everstep everstep >/dev/null
  "$ctl" -q set_user_tags everstep administrator >/dev/null
  "$ctl" -q set_permissions -p everstep everstep '.*' '.*' '.*' >/dev/null
}

# --- servers that somebody else runs -------------------------------------------------------------------------------

check_named_postgres() {
  local url=$EVERSTEP_TEST_POSTGRES_URL address
  if command -v psql >/dev/null; then
    PGCONNECT_TIMEOUT=5 psql -X -At -d "$url" -c 'SELECT 1' >/dev/null || die "EVERSTEP_TEST_POSTGRES_URL does not answer"
  else
    read -ra address <<<"$(host_and_port "$url" 5432)"
    port_answers "${address[@]}" || die "EVERSTEP_TEST_POSTGRES_URL does not answer at ${address[*]}"
  fi
}

check_named_amqp() {
  local url=$EVERSTEP_TEST_AMQP_URL address
  case $url in
    amqps://*)
      read -ra address <<<"$(host_and_port "$url" 5671)"
      port_answers "${address[@]}" || die "EVERSTEP_TEST_AMQP_URL does not answer at ${address[*]}"
      ;;
    *)
      read -ra address <<<"$(host_and_port "$url" 5672)"
      amqp_answers "${address[@]}" || die "EVERSTEP_TEST_AMQP_URL does not speak AMQP at ${address[*]}"
      ;;
  esac
}

# --- containers ----------------------------------------------------------------------------------------------------

start_containers() {
  local wanted=()
  postgres_is_named || wanted+=(postgres)
  amqp_is_named || wanted+=(rabbitmq)
  compose up --detach --wait "${wanted[@]}" >&2
  {
    echo '#!/bin/sh'
    echo '# rabbitmqctl of the development RabbitMQ. Written by scripts/services.sh up.'
    printf "exec docker compose --project-name '%s' --file '%s' exec -T rabbitmq rabbitmqctl \"\$@\"\n" "$compose_project" "$compose_file"
  } >"$ctl"
  chmod 755 "$ctl"
  containers_answer || die "the containers of $compose_project do not hold the ports $postgres_port and $amqp_port"
}

containers_answer() {
  if ! postgres_is_named; then
    [ "$(compose port postgres 5432 2>/dev/null)" = "127.0.0.1:$postgres_port" ] && port_answers 127.0.0.1 $postgres_port || return 1
  fi
  if ! amqp_is_named; then
    [ "$(compose port rabbitmq 5672 2>/dev/null)" = "127.0.0.1:$amqp_port" ] && amqp_answers 127.0.0.1 $amqp_port || return 1
  fi
}

# --- commands ------------------------------------------------------------------------------------------------------

write_env() {
  local rabbitmqctl=$ctl
  if amqp_is_named; then rabbitmqctl=${EVERSTEP_RABBITMQCTL:-}; fi
  {
    echo "EVERSTEP_TEST_POSTGRES_URL=${EVERSTEP_TEST_POSTGRES_URL:-$own_postgres_url}"
    echo "EVERSTEP_TEST_AMQP_URL=${EVERSTEP_TEST_AMQP_URL:-$own_amqp_url}"
    if [ -n "$rabbitmqctl" ]; then echo "EVERSTEP_RABBITMQCTL=$rabbitmqctl"; fi
  } >"$state/env.new"
  mv "$state/env.new" "$state/env"
}

# Two calls of this script at once take turns.
lock() {
  mkdir -p "$state"
  exec 9>"$state/lock"
  flock 9
}

up() {
  lock
  if postgres_is_named; then check_named_postgres; fi
  if amqp_is_named; then check_named_amqp; fi
  if postgres_is_named && amqp_is_named; then
    :
  elif [ "$(mode)" = containers ]; then
    echo containers >"$state/mode"
    start_containers
  else
    echo programs >"$state/mode"
    install_missing
    postgres_is_named || start_postgres
    amqp_is_named || start_rabbitmq
  fi
  write_env
  say "up: PostgreSQL $(host_and_port "${EVERSTEP_TEST_POSTGRES_URL:-$own_postgres_url}" 5432 | tr ' ' :)," \
    "RabbitMQ $(host_and_port "${EVERSTEP_TEST_AMQP_URL:-$own_amqp_url}" 5672 | tr ' ' :)"
}

down() {
  lock
  rm -f "$state/env"
  case $(cat "$state/mode" 2>/dev/null || true) in
    containers) compose down >&2 ;;
    programs)
      if find_postgres && pid_in "$postgres_data/postmaster.pid" >/dev/null; then
        as postgres "$postgres_bin/pg_ctl" -D "$postgres_data" -m fast -w -t 60 stop >/dev/null
        say "PostgreSQL stopped"
      fi
      if pid_in "$rabbit/pid" >/dev/null && [ -x "$ctl" ]; then
        "$ctl" -q stop "$rabbit/pid" >/dev/null || die "RabbitMQ (process $(pid_in "$rabbit/pid")) does not answer and was left alone"
        say "RabbitMQ stopped"
      fi
      # Refuses while a node is registered, and asks only the epmd on our own port.
      if [ -x "$state/rabbitmq-run" ]; then "$state/rabbitmq-run" epmd -port $epmd_port -kill >/dev/null 2>&1 || true; fi
      ;;
    *) say "nothing was started" ;;
  esac
  rm -f "$state/mode"
}

status() {
  local missing=0
  line() { printf '%-11s %-8s %s\n' "$1" "$2" "$3"; [ "$2" = up ] || missing=1; }
  if postgres_is_named; then
    if (check_named_postgres) 2>/dev/null; then line PostgreSQL up named; else line PostgreSQL down named; fi
  elif [ "$(mode)" = containers ]; then
    if containers_answer; then line PostgreSQL up container; else line PostgreSQL down container; fi
  elif find_postgres && own_postgres_answers; then line PostgreSQL up "$own_postgres_url"
  else line PostgreSQL down "port $postgres_port"
  fi
  if amqp_is_named; then
    if (check_named_amqp) 2>/dev/null; then line RabbitMQ up named; else line RabbitMQ down named; fi
  elif [ "$(mode)" = containers ]; then
    if containers_answer; then line RabbitMQ up container; else line RabbitMQ down container; fi
  elif own_rabbitmq_answers; then line RabbitMQ up "$own_amqp_url"
  else line RabbitMQ down "port $amqp_port"
  fi
  return $missing
}

print_env() {
  [ -s "$state/env" ] || die "not up: run scripts/services.sh up first"
  local name value
  while IFS='=' read -r name value; do
    printf 'export %s=%q\n' "$name" "$value"
  done <"$state/env"
}

case ${1:-} in
  up) up ;;
  down) down ;;
  env) print_env ;;
  status) status ;;
  *)
    echo "usage: $0 up|down|env|status" >&2
    exit 2
    ;;
esac
