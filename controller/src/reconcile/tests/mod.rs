//! Shared test fixtures of the reconciler.

pub mod bindings;
pub mod fixtures;
mod modes;
