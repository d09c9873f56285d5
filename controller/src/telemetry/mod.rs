//! Events, metrics and health.

pub mod events;
pub mod health;
pub mod metrics;
