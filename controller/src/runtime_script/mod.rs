//! The runtime script: its source, and the `ConfigMap` that holds it.

pub mod config_map;
pub mod source;
