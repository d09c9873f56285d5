//! Escapes control characters. Names, messages of Events and conditions, and responses of servers come from other
//! people, who must not be able to control the user's terminal.

use std::borrow::Cow;

use super::style;

/// Escapes the control characters of a text, colours included. Line breaks are kept; a tab becomes a space, since its
/// width depends on its position.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(is_command) && !text.contains('\t') {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\t' => safe.push(' '),
            _ => push(&mut safe, letter),
        }
    }
    Cow::Owned(safe)
}

/// Escapes every control character of a complete output, except line breaks, tabs and this program's colours.
pub(super) fn without_commands(text: &str) -> Cow<'_, str> {
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let colour = style::CODES.iter().find(|code| rest.starts_with(**code));
        if let Some(code) = colour {
            safe.push_str(code);
        } else {
            push(&mut safe, letter);
        }
        rest = &rest[colour.map_or(letter.len_utf8(), |code| code.len())..];
    }
    Cow::Owned(safe)
}

/// Escapes the control characters that JSON allows in strings: DEL and C1.
pub(super) fn in_json(text: String) -> String {
    if !text.contains(is_command) {
        return text;
    }
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            _ if is_command(letter) => {
                let escape = format!("\\u{:04x}", u32::from(letter));
                safe.push_str(&escape);
            }
            _ => safe.push(letter),
        }
    }
    safe
}

fn push(safe: &mut String, letter: char) {
    if is_command(letter) {
        safe.extend(letter.escape_default());
    } else {
        safe.push(letter);
    }
}

fn is_command(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, Paint, Table, paint, wrapped};

    /// Erases a line, sets the clipboard, begins a sequence with one character, overwrites the line, rings, colours.
    const FORGED: &str =
        "a\x1b[1A\x1b[2K\x1b]52;c;eA==\x07b\u{9b}1mc\rd\u{7f}e\tf\x1b[32mg\x1b[31;5mh";

    fn has_commands(text: &str) -> bool {
        text.contains(|letter: char| letter.is_control() && letter != '\n')
    }

    #[test]
    fn texts_of_others_have_no_control_characters_in_tables_and_headings() {
        let mut table = Table::new(&["EVENT", "MESSAGE"]);
        table.row(["Queued", FORGED]);
        table.row([FORGED, "line 1\nline 2"]);
        for width in [None, Some(40)] {
            let text = table.render(width);
            assert!(!has_commands(&text), "{text:?}");
            assert!(text.contains("\\u{1b}[1A"), "{text:?}");
        }
        let text = paint(FORGED, Paint::Bad);
        assert!(
            !has_commands(&text["\x1b[31m".len()..text.len() - "\x1b[0m".len()]),
            "{text:?}"
        );
    }

    #[test]
    fn output_keeps_only_the_colours_of_this_program() {
        let text = format!("{} {FORGED}", paint("ok", Paint::Good));
        assert_eq!(
            without_commands(&wrapped(&text, None).join("\n")),
            "\x1b[32mok\x1b[0m a\\u{1b}[1A\\u{1b}[2K\\u{1b}]52;c;eA==\\u{7}b\\u{9b}1mc\\rd\\u{7f}e\tf\x1b[32mg\\u{1b}[31;5mh"
        );
        assert_eq!(without_commands("a\n\tb"), "a\n\tb");
    }

    #[test]
    fn json_and_yaml_have_no_control_characters_and_keep_the_value() {
        for format in [Format::Json, Format::Yaml] {
            let text = format.write(&[FORGED], String::new).unwrap();
            assert!(!has_commands(&text), "{format:?}: {text:?}");
            assert_eq!(without_commands(&text), text);
            let read: Vec<String> = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(read, [FORGED], "{format:?}: {text}");
        }
    }
}
