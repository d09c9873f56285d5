//! Ages in kubectl's format.

use k8s_openapi::jiff::Timestamp;

/// The time since a timestamp of the API, or `<unknown>`.
pub fn age(timestamp: Option<&str>, now: Timestamp) -> String {
    let then = timestamp.and_then(|text| text.parse::<Timestamp>().ok());
    then.map_or_else(|| "<unknown>".to_owned(), |then| since(then, now))
}

/// The time between two moments, in at most two units and only as precise as necessary.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 => two(days, "d", hours % 24, "h"),
        () if days < 730 => format!("{days}d"),
        () => two(days / 365, "y", days % 365, "d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_those_of_kubectl() {
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        for (then, text) in [
            ("2026-11-23T11:58:01Z", "119s"),
            ("2026-11-23T11:54:30Z", "5m30s"),
            ("2026-11-23T11:55:00Z", "5m"),
            ("2026-11-23T10:00:00Z", "120m"),
            ("2026-11-23T08:40:00Z", "3h20m"),
            ("2026-11-22T12:00:00Z", "24h"),
            ("2026-11-20T09:00:00Z", "3d3h"),
            ("2026-10-23T12:00:00Z", "31d"),
            ("2024-11-22T12:00:00Z", "2y1d"),
            ("2026-11-23T12:00:05Z", "0s"),
        ] {
            assert_eq!(age(Some(then), now), text, "{then}");
        }
        assert_eq!(age(None, now), "<unknown>");
    }
}
