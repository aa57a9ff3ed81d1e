//! Example workflows, and the services that they call.

pub mod audit;
pub mod payment;
