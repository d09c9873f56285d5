//! Failures that keep pods from running, and their summary for the status.

pub mod creation_failures;
mod event_failures;
pub mod mount_failures;
pub mod summary;
