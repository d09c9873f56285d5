//! Shared test fixtures of the reconciler.

pub mod fixtures;
