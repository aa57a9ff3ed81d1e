//! The ports of one process: the store and the broker that all share, with faults on the way to them.

pub(crate) mod broker;
pub(crate) mod store;
pub(crate) mod wire;
