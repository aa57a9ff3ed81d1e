//! Durable workflows on a worker fleet: the crate to depend on.
