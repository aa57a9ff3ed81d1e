//! System tests, one per rule of the specification, on both back ends where storage or broker matter.
//!
//! What they prove: whole systems keep the rules while their parts are killed, cut off and robbed of messages. What they do
//! not: every interleaving (the simulator), every commit point (the crash matrix), speed (the benchmark).

mod alarms;
mod auditor;
mod bulks;
mod changes;
mod children;
mod control;
mod events;
mod generations;
mod hooks;
mod instances;
mod leases;
mod ledger;
mod long;
#[cfg(feature = "crash")]
mod nodes;
mod progress;
mod queues;
mod remote;
mod replay;
mod restore;
mod retries;
mod saga;
mod schedules;
mod shown;
mod steps;
mod storms;
mod strangers;
mod time;
mod topology;
mod webhooks;
