//! The names of attributes: those of OpenTelemetry's semantic conventions 1.45, and our own. No value is ever a payload.

/// Which messaging system.
pub const MESSAGING_SYSTEM: &str = "messaging.system";
/// The value of [`MESSAGING_SYSTEM`].
pub const RABBITMQ: &str = "rabbitmq";
/// What is done with the message, in the words of the system.
pub const MESSAGING_OPERATION_NAME: &str = "messaging.operation.name";
/// What is done with the message, in the words of the conventions: `process`, `send`.
pub const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
/// The exchange.
pub const MESSAGING_DESTINATION: &str = "messaging.destination.name";
/// The message's id.
pub const MESSAGING_MESSAGE_ID: &str = "messaging.message.id";
/// The length of its body.
pub const MESSAGING_BODY_SIZE: &str = "messaging.message.body.size";
/// The key that it was published with.
pub const ROUTING_KEY: &str = "rabbitmq.destination.routing_key";
/// What kind of failure it was.
pub const ERROR_TYPE: &str = "error.type";
/// The method of a request.
pub const HTTP_METHOD: &str = "http.request.method";
/// The route of a request, without what users put in it.
pub const HTTP_ROUTE: &str = "http.route";
/// The status of a response.
pub const HTTP_STATUS: &str = "http.response.status_code";

/// Namespace.
pub const NAMESPACE: &str = "everstep.namespace";
/// Workflow.
pub const WORKFLOW: &str = "everstep.workflow";
/// The id that users see.
pub const INSTANCE: &str = "everstep.instance";
/// The run of the instance.
pub const RUN: &str = "everstep.run";
/// The epoch of the lease.
pub const EPOCH: &str = "everstep.epoch";
/// The worker's session.
pub const SESSION: &str = "everstep.session";
/// The step's name.
pub const STEP: &str = "everstep.step";
/// Its kind of call: `step`, `remote`, `compensation`.
pub const CALL: &str = "everstep.call";
/// Its count among calls of that kind and name.
pub const COUNT: &str = "everstep.count";
/// Which attempt.
pub const ATTEMPT: &str = "everstep.attempt";
/// What became of a start, how a lease ended.
pub const OUTCOME: &str = "everstep.outcome";
