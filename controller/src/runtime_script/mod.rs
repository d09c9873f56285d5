//! The runtime script: where it comes from, and the `ConfigMap` that holds it.

pub mod config_map;
pub mod source;
