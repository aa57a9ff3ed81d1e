//! Example workflows, and the services that they call.

pub mod agent;
pub mod audit;
pub mod effects;
pub mod fulfil;
pub mod guide;
pub mod orders;
pub mod payment;
pub mod policies;
pub mod schedules;
pub mod webhooks;

pub use fulfil::registry;
