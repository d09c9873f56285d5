//! Structured logging (OPS-5).

use tracing_subscriber::EnvFilter;

use crate::BoxError;

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Parses the value of `--log-level`. Also accepts the levels of its predecessor `--zap-log-level`, where greater
/// numbers are more verbose.
///
/// # Errors
/// If it is neither a level nor a filter by module. A single word that is not a level is rejected: as a filter, it
/// would log only a module of that name.
pub fn level(text: &str) -> Result<String, String> {
    let level = match text {
        "panic" | "dpanic" | "fatal" => "error",
        "1" => "debug",
        number if number.parse::<u8>().is_ok_and(|it| it > 1) => "trace",
        other => other,
    };
    let is_level = |word: &str| LEVELS.iter().any(|it| it.eq_ignore_ascii_case(word));
    let is_unknown = |it: &&str| !it.contains(['=', '[']) && !is_level(it);
    if let Some(word) = level.split(',').map(str::trim).find(is_unknown) {
        let levels = LEVELS.join(", ");
        return Err(format!(
            "{word:?} is none of {levels}; a filter by module is MODULE=LEVEL"
        ));
    }
    EnvFilter::try_new(level).map_err(|error| error.to_string())?;
    Ok(level.to_owned())
}

/// Logs JSON lines. Disables the target of kube's client, which logs response bodies that it cannot decode, including
/// Secrets.
///
/// # Errors
/// If `level` is neither a log level nor a filter.
pub fn start(level: &str) -> Result<(), BoxError> {
    let filter = EnvFilter::try_new(level)?.add_directive("kube_client::client=off".parse()?);
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(filter)
        .try_init()
}

#[cfg(test)]
mod tests {
    use super::level;

    /// OPS-1, OPS-2
    #[test]
    fn mistyped_level_is_refused_and_former_levels_keep_their_meaning() {
        for (text, expected) in [
            ("info", "info"),
            ("WARN", "WARN"),
            ("off", "off"),
            ("panic", "error"),
            ("1", "debug"),
            ("2", "trace"),
            ("asya_controller=debug", "asya_controller=debug"),
            ("info,asya_controller=debug", "info,asya_controller=debug"),
        ] {
            assert_eq!(level(text).as_deref(), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "warning",
            "asya_controller",
            "info,loud",
            "a=loud",
            "0",
            "-1",
        ] {
            assert!(level(bad).is_err(), "{bad}");
        }
    }
}
