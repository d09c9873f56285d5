//! Wraps texts.

use unicode_width::UnicodeWidthChar;

/// Indent of continuation lines.
const CONTINUED: usize = 4;

/// Wraps a text at spaces into lines of at most `width` columns, and breaks longer words. Line breaks of the text are
/// kept; without a width, they are the only ones.
pub fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else {
        return text.lines().map(str::to_owned).collect();
    };
    text.lines()
        .flat_map(|line| wrapped_line(line, width))
        .collect()
}

/// The number of columns that a text takes up, without its colours.
fn columns(text: &str) -> usize {
    let mut is_escape = false;
    let mut columns = 0;
    for letter in text.chars() {
        match letter {
            '\x1b' => is_escape = true,
            _ if is_escape => is_escape = !letter.is_ascii_alphabetic(),
            _ => columns += letter.width().unwrap_or(0),
        }
    }
    columns
}

fn wrapped_line(line: &str, width: usize) -> Vec<String> {
    if columns(line) <= width {
        return vec![line.to_owned()];
    }
    let indent = &line[..line.len() - line.trim_start().len()];
    let mut lines = Vec::new();
    let mut current = indent.to_owned();
    for word in line.split_whitespace() {
        let is_first = current.len() == indent.len();
        if !is_first && columns(&current) + 1 + columns(word) > width {
            lines.push(std::mem::replace(&mut current, indent.to_owned()));
        } else if !is_first {
            current.push(' ');
        }
        let (mut full, rest) = broken(word, width.saturating_sub(columns(indent)));
        if let Some(first) = full.first_mut() {
            *first = std::mem::replace(&mut current, indent.to_owned()) + first;
        }
        let indented = full.into_iter().enumerate();
        lines.extend(indented.map(|(at, part)| match at {
            0 => part,
            _ => format!("{indent}{part}"),
        }));
        current.push_str(&rest);
    }
    lines.push(current);
    lines
}

/// Wraps a line of a diff: continuation lines also begin with its sign, and are indented further, like a continued text
/// in YAML.
pub fn continued(line: &str, width: Option<usize>) -> Vec<String> {
    let (Some(width), Some(sign)) = (width, line.chars().next()) else {
        return vec![line.to_owned()];
    };
    let text = &line[sign.len_utf8()..];
    if columns(line) <= width {
        return vec![line.to_owned()];
    }
    let indent = text.len() - text.trim_start().len();
    let further = " ".repeat((indent + CONTINUED).min(width / 2));
    // The first line has the width of the others, but begins further to the left.
    let parts = wrapped_line(
        &format!("{further}{}", text.trim_start()),
        width.saturating_sub(1),
    );
    let parts = parts.into_iter().enumerate();
    parts
        .map(|(at, part)| match at {
            0 => format!("{sign}{}{}", &text[..indent], part.trim_start()),
            _ => format!("{sign}{part}"),
        })
        .collect()
}

/// Splits a word into parts of `width` columns and the rest.
fn broken(word: &str, width: usize) -> (Vec<String>, String) {
    let (mut parts, mut rest) = (Vec::new(), String::new());
    if columns(word) <= width {
        return (parts, word.to_owned());
    }
    for letter in word.chars() {
        if columns(&rest) + letter.width().unwrap_or(0) > width.max(1) {
            parts.push(std::mem::take(&mut rest));
        }
        rest.push(letter);
    }
    (parts, rest)
}

#[cfg(test)]
mod tests {
    use super::{continued, wrapped};

    #[test]
    fn lines_break_at_spaces_and_keep_their_indent() {
        for (text, width, lines) in [
            ("one two three", Some(8), &["one two", "three"][..]),
            ("one two three", None, &["one two three"]),
            ("  one two three", Some(9), &["  one two", "  three"]),
            (
                "a https://example.com/long b",
                Some(10),
                &["a", "https://ex", "ample.com/", "long b"],
            ),
            ("one\ntwo", Some(20), &["one", "two"]),
            (
                "\x1b[31mone\x1b[0m two three",
                Some(8),
                &["\x1b[31mone\x1b[0m two", "three"],
            ),
            ("", Some(20), &[]),
        ] {
            assert_eq!(wrapped(text, width), lines, "{text}");
        }
    }

    #[test]
    fn parts_of_a_line_of_a_diff_have_its_sign() {
        for (line, width, lines) in [
            ("+  key: value", Some(20), &["+  key: value"][..]),
            ("+  key: value", None, &["+  key: value"]),
            (
                "-  message: one two three",
                Some(16),
                &["-  message:", "-      one two", "-      three"],
            ),
            (
                "+  url: http://example.com",
                Some(18),
                &["+  url:", "+      http://exam", "+      ple.com"],
            ),
            ("", Some(20), &[""]),
        ] {
            assert_eq!(continued(line, width), lines, "{line}");
        }
    }
}
