//! Breaks texts into lines.

use unicode_width::UnicodeWidthStr;

/// Breaks a text at spaces into lines of at most `width` columns; a longer word gets a line of its own. Line breaks of
/// the text stay. Without a width, only those break it.
pub fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else {
        return text.lines().map(str::to_owned).collect();
    };
    text.lines()
        .flat_map(|line| wrapped_line(line, width))
        .collect()
}

fn wrapped_line(line: &str, width: usize) -> Vec<String> {
    if line.width() <= width {
        return vec![line.to_owned()];
    }
    let indent = &line[..line.len() - line.trim_start().len()];
    let mut lines = Vec::new();
    let mut current = indent.to_owned();
    for word in line.split_whitespace() {
        let is_first = current.len() == indent.len();
        if !is_first && current.width() + 1 + word.width() > width {
            lines.push(std::mem::replace(&mut current, indent.to_owned()));
        } else if !is_first {
            current.push(' ');
        }
        current.push_str(word);
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_break_at_spaces_and_keep_their_indent() {
        for (text, width, lines) in [
            ("one two three", Some(8), &["one two", "three"][..]),
            ("one two three", None, &["one two three"]),
            ("  one two three", Some(9), &["  one two", "  three"]),
            (
                "a https://example.com/long b",
                Some(10),
                &["a", "https://example.com/long", "b"],
            ),
            ("one\ntwo", Some(20), &["one", "two"]),
            ("", Some(20), &[]),
        ] {
            assert_eq!(wrapped(text, width), lines, "{text}");
        }
    }
}
