#![allow(clippy::unwrap_used)]

mod contents;
mod rows;
