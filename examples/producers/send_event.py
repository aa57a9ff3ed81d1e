#!/usr/bin/env python3
"""Sends one event to an instance by publishing a message: a producer that knows nothing of Rust.

    "$(scripts/python-env.sh)" examples/producers/send_event.py --url amqp://... fulfil order-17 approved '{"by": "Ada"}'

The message goes to the exchange everstep.event with the namespace as routing key. Its message id is the event's id:
sending the same again is harmless.
"""

import argparse
import json
import sys
import uuid

import pika
import pika.exceptions

EXCHANGE = "everstep.event"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="the broker, amqp://user:password@host:port/vhost")
    parser.add_argument("--namespace", default="default", help="the namespace of the instance (default: default)")
    parser.add_argument("--id", default=str(uuid.uuid4()), help="the event's id (default: a new one)")
    parser.add_argument("--key", help="the correlation key")
    parser.add_argument("workflow")
    parser.add_argument("instance", help="the instance's id")
    parser.add_argument("type", help="the event's type")
    parser.add_argument("payload", nargs="?", default="null", help="what it says, as JSON (default: null)")
    return parser.parse_args()


def main():
    options = arguments()
    event = {
        "workflow": options.workflow,
        "id": options.instance,
        "type": options.type,
        "payload": json.loads(options.payload),
    }
    if options.key is not None:
        event["key"] = options.key
    connection = pika.BlockingConnection(pika.URLParameters(options.url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(
            exchange=EXCHANGE,
            routing_key=options.namespace,
            body=json.dumps(event, ensure_ascii=False).encode(),
            properties=pika.BasicProperties(
                content_type="application/json",
                delivery_mode=pika.DeliveryMode.Persistent.value,
                message_id=options.id,
            ),
            mandatory=True,
        )
    except pika.exceptions.UnroutableError:
        sys.exit(f"no queue takes events of the namespace {options.namespace}")
    except pika.exceptions.NackError:
        sys.exit(f"the broker refused the message; with --id {options.id} sending it again is safe")
    finally:
        if connection.is_open:
            connection.close()
    print(f"published event {options.id}", flush=True)


if __name__ == "__main__":
    main()
