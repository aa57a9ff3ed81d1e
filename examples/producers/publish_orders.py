#!/usr/bin/env python3
"""A producer that knows nothing of Rust: starts one workflow per order by publishing a message.

    "$(scripts/python-env.sh)" examples/producers/publish_orders.py --url amqp://... --orders examples/orders.jsonl

Each order of the file (one JSON object a line, with "id" and "input") becomes one persistent JSON message to the
exchange everstep.start, with the namespace as routing key. The broker confirms each message; one that no queue took
is an error. Sending an order again is harmless: its id and its message id are the same.
"""

import argparse
import concurrent.futures
import itertools
import json
import sys
import time

import pika
import pika.exceptions

EXCHANGE = "everstep.start"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="the broker, amqp://user:password@host:port/vhost")
    parser.add_argument("--namespace", default="default", help="the namespace of the instances (default: default)")
    parser.add_argument("--workflow", default="fulfil", help="the workflow to start (default: fulfil)")
    parser.add_argument("--orders", required=True, help="the file of orders, one JSON object a line")
    parser.add_argument("--limit", type=int, help="publish only the first so many orders")
    parser.add_argument("--connections", type=int, default=8, help="connections that publish at once (default: 8)")
    return parser.parse_args()


class Refused(Exception):
    """An order that the broker did not take, and why."""


def publish(channel, options, order):
    body = {"workflow": options.workflow, "id": order["id"], "input": order["input"]}
    try:
        channel.basic_publish(
            exchange=EXCHANGE,
            routing_key=options.namespace,
            body=json.dumps(body, ensure_ascii=False).encode(),
            properties=pika.BasicProperties(
                content_type="application/json",
                delivery_mode=pika.DeliveryMode.Persistent.value,
                message_id=f"{options.namespace}/{options.workflow}/{order['id']}",
            ),
            mandatory=True,
        )
    except pika.exceptions.UnroutableError:
        raise Refused(f"{order['id']}: no queue takes starts of the namespace {options.namespace}") from None
    except pika.exceptions.NackError:
        raise Refused(f"{order['id']}: the broker refused the message; publishing it again is safe") from None


def publish_all(options, orders):
    """Publishes over one connection, which belongs to one thread. Each publish waits for its confirm."""
    connection = pika.BlockingConnection(pika.URLParameters(options.url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        for order in orders:
            publish(channel, options, order)
    finally:
        if connection.is_open:
            connection.close()
    return len(orders)


def main():
    options = arguments()
    with open(options.orders, encoding="utf-8", newline="\n") as lines:
        orders = [json.loads(line) for line in itertools.islice(lines, options.limit)]
    started = time.monotonic()
    # A confirm takes as long as the broker's disk; several connections share its syncs.
    width = max(1, min(options.connections, len(orders)))
    try:
        with concurrent.futures.ThreadPoolExecutor(width) as pool:
            count = sum(pool.map(lambda first: publish_all(options, orders[first::width]), range(width)))
    except Refused as refused:
        sys.exit(str(refused))
    except pika.exceptions.AMQPError as error:
        sys.exit(f"the broker cannot be used: {error!r}")
    print(f"published {count} orders in {time.monotonic() - started:.2f} s", flush=True)


if __name__ == "__main__":
    main()
