//! Scenarios on a real cluster. Most share the one that `asya-cluster run`
//! starts, each in a namespace of its own; one that breaks its cluster starts
//! its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;
