//! Colours, the only control sequences of an output. They are always written; `print` drops them unless the output is a
//! terminal.

use super::escaped;

const RESET: &str = "\x1b[0m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const FAINT: &str = "\x1b[2m";

pub(super) const CODES: [&str; 6] = [RESET, GREEN, YELLOW, RED, BOLD, FAINT];

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Plain,
    Good,
    Warning,
    Bad,
    Heading,
    Faint,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => GREEN,
            Self::Warning => YELLOW,
            Self::Bad => RED,
            Self::Heading => BOLD,
            Self::Faint => FAINT,
        }
    }
}

/// Colours a text and escapes its control characters.
pub fn paint(text: &str, paint: Paint) -> String {
    let text = escaped(text);
    match paint.code() {
        "" => text.into_owned(),
        _ if text.is_empty() => String::new(),
        code => format!("{code}{text}{RESET}"),
    }
}
