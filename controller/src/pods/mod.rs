//! What keeps pods from running, and what status says of them.

pub mod mounts;
pub mod refusals;
pub mod summary;
