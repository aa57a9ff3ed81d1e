// A producer that knows nothing of Rust: starts one workflow per order by publishing a message.
//
//     node examples/producers/node/publish_orders.mjs --url amqp://... --orders examples/orders.jsonl
//
// Each order of the file (one JSON object a line, with "id" and "input") becomes one persistent JSON message to the exchange
// everstep.start, with the namespace as routing key. The broker confirms each message; one that no queue took is an error. Sending an
// order again is harmless: its id and its message id are the same. `npm install` in this directory brings amqplib.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

// Found beside this file, or in the directory that NODE_PATH names.
const amqp = createRequire(import.meta.url)("amqplib");

const EXCHANGE = "everstep.start";

const { values: options } = parseArgs({
  options: {
    url: { type: "string" },
    namespace: { type: "string", default: "default" },
    workflow: { type: "string", default: "fulfil" },
    orders: { type: "string" },
    limit: { type: "string" },
  },
});

function fail(text) {
  process.stderr.write(`${text}\n`);
  process.exit(1);
}

if (!options.url || !options.orders) fail("--url and --orders are needed");

const lines = readFileSync(options.orders, "utf8").split("\n").filter((line) => line.trim() !== "");
const orders = lines.slice(0, options.limit ? Number(options.limit) : undefined);
const began = performance.now();

const connection = await amqp.connect(options.url);
const channel = await connection.createConfirmChannel();
// Without `mandatory` the broker would drop a message that no queue takes, and confirm it all the same.
let returned;
channel.on("return", (message) => { returned ??= message.properties.messageId; });

for (const line of orders) {
  const { id } = JSON.parse(line);
  if (typeof id !== "string") fail(`an order has no id: ${line.slice(0, 60)}`);
  // The rest of the line as it was written: JSON.parse would round large numbers.
  const body = `{"workflow":${JSON.stringify(options.workflow)},${line.trim().slice(1)}`;
  const room = channel.publish(EXCHANGE, options.namespace, Buffer.from(body), {
    contentType: "application/json",
    persistent: true,
    mandatory: true,
    messageId: `${options.namespace}/${options.workflow}/${id}`,
  });
  // The socket takes no more for now.
  if (!room) await new Promise((resolve) => channel.once("drain", resolve));
}

try {
  await channel.waitForConfirms();
} catch (error) {
  fail(`the broker refused a message: ${error.message}; publishing it again is safe`);
}
if (returned) fail(`${returned}: no queue takes starts of the namespace ${options.namespace}`);
await connection.close();
console.log(`published ${orders.length} orders in ${((performance.now() - began) / 1000).toFixed(2)} s`);
