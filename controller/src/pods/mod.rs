//! What keeps pods from running, and how status summarizes it.

pub mod mounts;
pub mod refusals;
pub mod summary;
