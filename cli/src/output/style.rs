//! Colours. They are always written here; `main` drops them where output is no terminal.

const RESET: &str = "\x1b[0m";

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
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Heading => "\x1b[1m",
            Self::Faint => "\x1b[2m",
        }
    }
}

/// A text in a colour.
pub fn paint(text: &str, paint: Paint) -> String {
    match paint.code() {
        "" => text.to_owned(),
        _ if text.is_empty() => String::new(),
        code => format!("{code}{text}{RESET}"),
    }
}
