//! The program `asya-controller`.

use std::process::ExitCode;

fn main() -> ExitCode {
    asya_process::program::block_on(asya_controller::main())
}
