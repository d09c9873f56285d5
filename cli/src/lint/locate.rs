//! Finds the line of a field in a document. Supports block style, which people use in manifests; for a field within
//! flow style, such as `{a: 1}`, finds the line where that begins.

/// The line of the field at `path`, or of its nearest ancestor that has a line; 0 is the first line of the document.
pub fn line_of(document: &str, path: &str) -> usize {
    let lines: Vec<Line<'_>> = document.lines().map(Line::read).collect();
    let mut place = Place::default();
    for segment in segments(path) {
        let found = match segment {
            Segment::Key(key) => find_key(&lines, &place, key),
            Segment::Index(index) => find_item(&lines, &place, index),
        };
        match found {
            Some(found) => place = found,
            None => break,
        }
    }
    place
        .line
        .unwrap_or_else(|| lines.iter().position(|line| !line.is_blank()).unwrap_or(0))
}

enum Segment<'a> {
    Key(&'a str),
    Index(usize),
}

/// Splits a path such as `spec.containers[0].name` or `metadata.annotations[asya.sh/paused]`.
fn segments(path: &str) -> Vec<Segment<'_>> {
    let mut segments = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (segment, after) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        segments.push(match segment.parse() {
            Ok(index) if rest.starts_with('[') => Segment::Index(index),
            _ => Segment::Key(segment),
        });
        rest = after.strip_prefix('.').unwrap_or(after);
    }
    segments
}

struct Line<'a> {
    indent: usize,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Self {
        let text = line.trim_start();
        Self {
            indent: line.len() - text.len(),
            text: text.trim_end(),
        }
    }

    fn is_blank(&self) -> bool {
        self.text.is_empty() || self.text.starts_with('#')
    }

    /// The text after the dash of a list item, with its indent.
    fn item(&self) -> Option<(usize, &'a str)> {
        let after = self.text.strip_prefix('-')?;
        let inner = after.trim_start();
        let is_item = after.is_empty() || after.len() > inner.len();
        is_item.then(|| (self.indent + self.text.len() - inner.len(), inner))
    }

    fn has_key(text: &str, key: &str) -> bool {
        let unquoted = text.trim_start_matches(['"', '\'']);
        let after = unquoted
            .strip_prefix(key)
            .map(|it| it.trim_start_matches(['"', '\'']));
        after.is_some_and(|it| it.starts_with(':'))
    }
}

/// Where the value of a field or item begins.
#[derive(Default)]
struct Place {
    /// The line of the field or item; none for the document.
    line: Option<usize>,
    /// Indent of the field, or of the dash of the item; none for the document.
    indent: Option<usize>,
    is_item: bool,
}

fn find_key(lines: &[Line<'_>], place: &Place, key: &str) -> Option<Place> {
    let mut level = None;
    let begin = match (place.line, place.is_item) {
        (Some(line), true) => line,
        (Some(line), false) => line + 1,
        (None, _) => 0,
    };
    for (number, line) in lines
        .iter()
        .enumerate()
        .skip(begin)
        .filter(|(_, line)| !line.is_blank())
    {
        let is_first_of_item = place.is_item && Some(number) == place.line;
        let (indent, text) = if is_first_of_item {
            line.item()?
        } else {
            (line.indent, line.text)
        };
        if place.indent.is_some_and(|parent| indent <= parent) {
            return None;
        }
        if indent == *level.get_or_insert(indent) && Line::has_key(text, key) {
            return Some(Place {
                line: Some(number),
                indent: Some(indent),
                is_item: false,
            });
        }
    }
    None
}

fn find_item(lines: &[Line<'_>], place: &Place, index: usize) -> Option<Place> {
    let parent = place.indent?;
    let mut level = None;
    let mut seen = 0;
    for (number, line) in lines
        .iter()
        .enumerate()
        .skip(place.line? + 1)
        .filter(|(_, line)| !line.is_blank())
    {
        let is_item = line.item().is_some();
        // A list may have the same indent as its key.
        if line.indent < parent || (line.indent == parent && !is_item) {
            return None;
        }
        if !is_item || line.indent != *level.get_or_insert(line.indent) {
            continue;
        }
        if seen == index {
            return Some(Place {
                line: Some(number),
                indent: Some(line.indent),
                is_item: true,
            });
        }
        seen += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::line_of;

    const DOCUMENT: &str = "# an actor
kind: AsyncActor
metadata:
  annotations:
    \"asya.sh/paused\": maybe
spec:
  transport: rabbitmq

  workload:
    template:
      spec:
        containers:
        - image: one
          name: asya-runtime
        -   name: two
            env: [{name: A}]
          # a comment
        - name: three
  sidecar: {env: []}
";

    #[test]
    fn fields_are_found_by_their_paths() {
        for (path, line) in [
            ("", 1),
            ("kind", 1),
            ("metadata.annotations[asya.sh/paused]", 4),
            ("spec.transport", 6),
            ("spec.workload.template.spec.containers", 11),
            ("spec.workload.template.spec.containers[0].name", 13),
            ("spec.workload.template.spec.containers[1].name", 14),
            ("spec.workload.template.spec.containers[1].env[0].name", 15),
            ("spec.workload.template.spec.containers[2].name", 17),
            ("spec.workload.template.spec.containers[7].name", 11),
            ("spec.sidecar.env[0]", 18),
            ("spec.scaling.minReplicas", 5),
        ] {
            assert_eq!(line_of(DOCUMENT, path), line, "{path}");
        }
    }
}
