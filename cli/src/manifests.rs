//! Manifests from files, folders and standard input.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::answer::Failure;

/// Larger files are not manifests.
const LARGEST: u64 = 16 << 20;

/// An object in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The file, as named by the user.
    pub file: String,
    /// Line at which its document begins, from 1.
    pub line: usize,
    /// The text of the document from that line on; empty for the items of a list.
    pub text: Arc<str>,
    pub object: Value,
}

/// A document that is not a Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub file: String,
    /// Line at which the document begins, from 1.
    pub line: usize,
    pub problem: String,
}

/// The contents of manifest files.
#[derive(Debug, Default, PartialEq)]
pub struct Manifests {
    pub objects: Vec<Manifest>,
    pub unreadable: Vec<Unreadable>,
}

impl Manifest {
    pub fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// The group in its `apiVersion`.
    pub fn group(&self) -> &str {
        let version = self.object["apiVersion"].as_str().unwrap_or_default();
        version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// Reads all manifests below these paths; `-` is standard input.
///
/// # Errors
/// If a path cannot be read.
pub fn read(paths: &[PathBuf]) -> Result<Manifests, Failure> {
    let mut manifests = Manifests::default();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = String::new();
            let read = std::io::stdin().take(LARGEST).read_to_string(&mut text);
            read.map_err(|error| Failure::new(format!("standard input: {error}")))?;
            manifests.add("standard input", &text);
            continue;
        }
        for file in files(path)? {
            manifests.add(&file.display().to_string(), &text_of(&file)?);
        }
    }
    Ok(manifests)
}

/// The failure if there is no `AsyncActor` at these paths.
pub fn without_actors(paths: &[PathBuf]) -> Failure {
    let paths: Vec<String> = paths.iter().map(|it| it.display().to_string()).collect();
    Failure::new(format!(
        "no AsyncActor in {}; check the path (of folders, files *.yaml, *.yml and *.json are read)",
        paths.join(", ")
    ))
}

/// The text of a file.
///
/// # Errors
/// If it cannot be read.
pub fn text_of(file: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", file.display()));
    let size = fs::metadata(file).map_err(failed)?.len();
    if size > LARGEST {
        return Err(Failure::new(format!(
            "{}: larger than 16 MiB; not read as a manifest",
            file.display()
        )));
    }
    fs::read_to_string(file).map_err(failed)
}

/// The manifest at a path, or those in a folder and its subfolders, sorted by name.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        let is_hidden = entry
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let extension = entry.extension().and_then(|it| it.to_str());
        if is_hidden {
            continue;
        }
        if entry.is_dir() {
            found.extend(files(&entry)?);
        } else if matches!(extension, Some("yaml" | "yml" | "json")) {
            found.push(entry);
        }
    }
    Ok(found)
}

impl Manifests {
    fn add(&mut self, file: &str, text: &str) {
        for (line, document) in documents(text) {
            match serde_saphyr::from_str::<Value>(document) {
                Ok(Value::Null) => {}
                Ok(object) => self.add_object(file, line, document.into(), object),
                Err(error) => self.unreadable.push(Unreadable {
                    file: file.to_owned(),
                    line,
                    problem: parse_problem(&error),
                }),
            }
        }
    }

    /// Adds an object, or the items of a list.
    fn add_object(&mut self, file: &str, line: usize, text: Arc<str>, mut object: Value) {
        let is_list = object["kind"]
            .as_str()
            .is_some_and(|kind| kind.ends_with("List"));
        if let (true, Some(Value::Array(items))) = (is_list, object.get_mut("items")) {
            for item in std::mem::take(items) {
                self.add_object(file, line, "".into(), item);
            }
            return;
        }
        self.objects.push(Manifest {
            file: file.to_owned(),
            line,
            text,
            object,
        });
    }
}

/// The documents of a YAML stream, each with the number of its first line. Each is parsed separately, so that one that
/// cannot be read does not hide the others.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut begin, mut line, mut first_line) = (0, 1, 1);
    let mut at = 0;
    for text_line in text.split_inclusive('\n') {
        let is_separator = text_line == "---"
            || text_line.starts_with("---\n")
            || text_line.starts_with("--- ")
            || text_line.starts_with("---\r");
        if is_separator {
            documents.push((first_line, &text[begin..at]));
            begin = at + 3;
            first_line = line;
        }
        at += text_line.len();
        line += 1;
    }
    documents.push((first_line, &text[begin..]));
    let has_content = |document: &str| {
        document
            .lines()
            .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    };
    documents.retain(|(_, document)| has_content(document));
    for (line, document) in &mut documents {
        while let Some((blank, rest)) = document.split_once('\n')
            && blank.trim().is_empty()
        {
            *document = rest;
            *line += 1;
        }
    }
    documents
}

/// What is wrong with a YAML text, and where, in one line: the rest of the parser's message quotes the text.
pub fn parse_problem(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_text(text: &str) -> Manifests {
        let mut manifests = Manifests::default();
        manifests.add("a.yaml", text);
        manifests
    }

    #[test]
    fn each_document_has_its_line_and_a_bad_one_hides_no_other() {
        let found = read_text("# first\n---\nkind: A\n---\n\nkind: [\n--- # third\nkind: B\n");
        let objects: Vec<_> = found
            .objects
            .iter()
            .map(|it| (it.line, it.kind()))
            .collect();
        assert_eq!(objects, [(3, "A"), (7, "B")]);
        let unreadable: Vec<_> = found.unreadable.iter().map(|it| it.line).collect();
        assert_eq!(unreadable, [6]);
    }

    #[test]
    fn items_of_a_list_are_objects() {
        let list = json!({"kind": "List", "items": [{"kind": "A"}, {"kind": "AsyncActorList", "items": [{"kind": "B"}]}]});
        let found = read_text(&list.to_string());
        let kinds: Vec<_> = found.objects.iter().map(Manifest::kind).collect();
        assert_eq!(kinds, ["A", "B"]);
    }
}
