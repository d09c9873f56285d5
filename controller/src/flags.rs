//! Parsers of flag values that several modules share.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses a duration such as 30s, 5m or 10h; 0 needs no unit.
///
/// # Errors
/// If the text is not such a duration, or it is negative.
pub fn interval(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let error = || "must be a time such as 30s, 5m or 10h".to_owned();
    let parsed: SignedDuration = text.parse().map_err(|_| error())?;
    Duration::try_from(parsed).map_err(|_| error())
}
