//! Values of flags that several parts of the program share.

use std::time::Duration;

use jiff::SignedDuration;

/// A time like 30s, 5m or 10h; 0 needs no unit.
///
/// # Errors
/// When it is none.
pub fn interval(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let wrong = || "must be a time such as 30s, 5m or 10h".to_owned();
    let parsed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).map_err(|_| wrong())
}
