# The folders of Debian 13 that the checks of images, pods and the Compose file need; sourced by them from the repository's root.
# shellcheck shell=bash

engine_folder() {
  scripts/debian13.sh folder engine podman buildah runc netavark aardvark-dns catatonit nftables iptables iproute2 \
    docker-compose curl openssl python3 python3-yaml ca-certificates >/dev/null
}

server_folders() {
  scripts/debian13.sh folder postgres postgresql-17 >/dev/null
  scripts/debian13.sh folder rabbitmq rabbitmq-server >/dev/null
}

monitoring_folder() { scripts/debian13.sh folder prometheus prometheus prometheus-postgres-exporter >/dev/null; }
