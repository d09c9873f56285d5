//! Writes `crds/asyncactors.yaml`; with `--check` only reports whether the file is up to date.

use std::error::Error;
use std::process::ExitCode;
use std::{env, fs};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/asyncactors.yaml");

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("asya-crds: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let wanted = asya_crds::yaml()?;
    match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => {
            fs::write(PATH, wanted).map_err(|error| format!("crds/asyncactors.yaml: {error}"))?;
            Ok(ExitCode::SUCCESS)
        }
        [flag] if flag == "--check" => match fs::read_to_string(PATH) {
            Ok(found) if found == wanted => Ok(ExitCode::SUCCESS),
            Ok(_) => Err(
                "crds/asyncactors.yaml differs from shared/src/api; run `cargo run -p asya-crds`"
                    .into(),
            ),
            Err(error) => {
                Err(format!("crds/asyncactors.yaml: {error}; run `cargo run -p asya-crds`").into())
            }
        },
        _ => Err("usage: asya-crds [--check]".into()),
    }
}
