//! Limits of `events.k8s.io/v1`: an Event that exceeds one is rejected as a whole.

/// Longest note, in bytes.
const LONGEST_NOTE: usize = 1024;
/// Longest reporting instance, in bytes.
const LONGEST_INSTANCE: usize = 128;
/// Longest part of an object's name in the name of an Event, in bytes; leaves room for a time.
const LONGEST_PREFIX: usize = 200;

/// Shortens a note to what the API server accepts, and marks that.
#[must_use]
pub fn note(text: &str) -> String {
    const REST: &str = " …";
    if text.len() <= LONGEST_NOTE {
        return text.to_owned();
    }
    format!("{}{REST}", clipped(text, LONGEST_NOTE - REST.len()))
}

/// Shortens the name of a reporting instance to what the API server accepts.
#[must_use]
pub fn instance(name: &str) -> &str {
    clipped(name, LONGEST_INSTANCE)
}

/// Name of an Event about `object`, made unique by the time in nanoseconds. `generateName` would not work, because its
/// prefix must not end with a dot.
#[must_use]
pub fn name(object: &str, nanoseconds: i128) -> String {
    // Clipping may leave a trailing character that a name must not end with.
    let prefix = clipped(object, LONGEST_PREFIX).trim_end_matches(['.', '-']);
    format!("{prefix}.{nanoseconds:x}")
}

/// Longest prefix of `text` of at most `max_bytes` bytes.
fn clipped(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_INSTANCE, LONGEST_NOTE, instance, name, note};

    /// OPS-7, OBS-2
    #[test]
    fn long_notes_names_and_instances_are_truncated_to_valid_events() {
        assert_eq!(note("short"), "short");
        let exact = "x".repeat(LONGEST_NOTE);
        assert_eq!(note(&exact), exact);
        for letter in ["x", "ü", "语", "🦀"] {
            let short = note(&letter.repeat(LONGEST_NOTE + 1));
            assert!(short.len() <= LONGEST_NOTE && short.len() > LONGEST_NOTE - 8);
            assert!(short.ends_with(" …"), "truncation is marked");
        }
        assert_eq!(instance(&"x".repeat(253)).len(), LONGEST_INSTANCE);
        assert_eq!(name("echo", 1_000_000_000), "echo.3b9aca00");
        let long = format!("{}.b{}", "a".repeat(199), "c".repeat(52));
        assert_eq!(
            name(&long, 1_000_000_000),
            format!("{}.3b9aca00", "a".repeat(199)),
            "no empty label in the name"
        );
    }
}
