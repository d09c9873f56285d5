//! What `check` reads: each part may fail without the others.

/// What was read, or why it could not be read.
pub type Read<T> = Result<T, String>;
