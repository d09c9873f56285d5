#![allow(clippy::unwrap_used)]

mod coexistence;
mod contents;
mod property;
mod rows;
mod second_call;
mod target;
mod template;
