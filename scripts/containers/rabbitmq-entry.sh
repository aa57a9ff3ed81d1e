#!/bin/bash
# Stands in for the entry of the official image of RabbitMQ where no registry is reached: the same folder and the same plugins. The server
# itself reads RABBITMQ_DEFAULT_USER, RABBITMQ_DEFAULT_PASS and RABBITMQ_DEFAULT_VHOST.
set -euo pipefail

if [ "$(id -u)" = 0 ]; then
  chown rabbitmq:rabbitmq /var/lib/rabbitmq
  exec setpriv --reuid=rabbitmq --regid=rabbitmq --init-groups --bounding-set=-all "$0" "$@"
fi
exec /usr/lib/rabbitmq/bin/rabbitmq-server "$@"
