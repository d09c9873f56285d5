#![allow(clippy::unwrap_used)]

mod coexistence;
mod contents;
mod golden;
mod property;
mod rows;
mod second_call;
mod target;
mod template;
