#![allow(clippy::unwrap_used)]

mod coexistence;
mod contents;
mod eviction;
mod foreign_labels;
mod fuzz;
mod golden;
mod property;
mod rows;
mod second_call;
mod sidecar;
mod target;
mod template;
