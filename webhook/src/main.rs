//! The admission webhook of Asya's `AsyncActor`s.

use std::process::ExitCode;

use asya_process::program;
use asya_webhook::{Args, start};
use clap::Parser;

fn main() -> ExitCode {
    program::block_on(start(Args::parse()))
}
