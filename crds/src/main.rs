//! Writes `crds/asyncactors.yaml` and the JSON files of `docs/reference`; with `--check`, reports only whether they are
//! up to date.

use std::error::Error;
use std::process::ExitCode;
use std::{env, fs};

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../");

/// A generated file.
struct Generated {
    /// Path in the repository.
    path: &'static str,
    /// The source that it is generated from.
    source: &'static str,
    content: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("asya-crds: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let files = [
        Generated {
            path: "crds/asyncactors.yaml",
            source: "shared/src/api",
            content: asya_crds::yaml()?,
        },
        Generated {
            path: "docs/reference/reasons.json",
            source: "shared/src/reason.rs",
            content: asya_crds::reasons()?,
        },
        Generated {
            path: "docs/reference/states.json",
            source: "shared/src/api/status.rs",
            content: asya_crds::states()?,
        },
        Generated {
            path: "docs/reference/events.json",
            source: "shared/src/reason/event.rs",
            content: asya_crds::events()?,
        },
        Generated {
            path: "docs/reference/reviews.json",
            source: "shared/src/reason",
            content: asya_crds::reviews()?,
        },
    ];
    let handle = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => write,
        [flag] if flag == "--check" => check,
        _ => return Err("usage: asya-crds [--check]".into()),
    };
    files.iter().try_for_each(handle)
}

fn write(file: &Generated) -> Result<(), Box<dyn Error>> {
    let path = file.path;
    fs::write(format!("{TOP}{path}"), &file.content).map_err(|error| format!("{path}: {error}"))?;
    Ok(())
}

fn check(file: &Generated) -> Result<(), Box<dyn Error>> {
    let Generated { path, source, .. } = file;
    let how = "run `cargo run -p asya-crds`";
    match fs::read_to_string(format!("{TOP}{path}")) {
        Ok(found) if found == file.content => Ok(()),
        Ok(_) => Err(format!("{path} differs from {source}; {how}").into()),
        Err(error) => Err(format!("{path}: {error}; {how}").into()),
    }
}
