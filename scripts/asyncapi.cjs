// Holds docs/reference/asyncapi.yaml to AsyncAPI's own schema, and every example in it to the schema of its message. Prints the
// document as JSON for who wants to hold more to it.
//
//     NODE_PATH="$(scripts/node-env.sh)" node scripts/asyncapi.cjs

const fs = require("node:fs");
const path = require("node:path");
const Ajv = require("ajv");
const yaml = require("yaml");

const file = path.join(__dirname, "..", "docs", "reference", "asyncapi.yaml");
const document = yaml.parse(fs.readFileSync(file, "utf8"));
const schema = require("@asyncapi/specs/schemas/3.0.0-without-$id.json");

function hold(validate, value, what) {
  if (validate(value)) return;
  for (const error of validate.errors.slice(0, 20)) {
    process.stderr.write(`${what}${error.instancePath}: ${error.message}\n`);
  }
  process.exit(1);
}

const options = { strict: false, allErrors: true, validateFormats: false, logger: false };
hold(new Ajv(options).compile(schema), document, "asyncapi.yaml");

const ajv = new Ajv(options).addSchema({ $id: "document", components: document.components });
for (const [name, message] of Object.entries(document.components.messages)) {
  const fits = ajv.compile({ $ref: `document${message.payload.$ref}` });
  for (const example of message.examples) hold(fits, example.payload, `${name}.${example.name}`);
}
process.stdout.write(JSON.stringify(document));
