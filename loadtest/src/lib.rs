//! The benchmark: what a fleet and an embedded store carry, and what it costs.
