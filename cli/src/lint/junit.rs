//! Findings as `JUnit` XML: one test case per actor, which fails if there is an error. Warnings go to its output.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::decide::Linted;
use super::finding::Source;
use super::{LintFinding, Severity};

/// The whole report.
pub fn write(linted: &Linted) -> String {
    let mut cases: BTreeMap<&Source, Vec<&LintFinding>> =
        linted.actors.iter().map(|it| (it, Vec::new())).collect();
    for finding in &linted.findings {
        cases.entry(&finding.source).or_default().push(finding);
    }
    let is_failed =
        |findings: &&Vec<&LintFinding>| findings.iter().any(|it| it.severity == Severity::Error);
    let failed = cases.values().filter(is_failed).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuites>\n  <testsuite name=\"kubectl asya lint\" tests=\"{}\" failures=\"{failed}\">",
        cases.len()
    );
    for (source, findings) in &cases {
        case(&mut xml, source, findings);
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

fn case(xml: &mut String, source: &Source, findings: &[&LintFinding]) {
    let name = if source.actor.is_empty() {
        format!("line {}", source.line)
    } else {
        source.actor.clone()
    };
    let (name, file) = (escaped(&name), escaped(&source.file));
    let _ = writeln!(
        xml,
        "    <testcase classname=\"{file}\" name=\"{name}\" file=\"{file}\" line=\"{}\">",
        source.line
    );
    for finding in findings {
        let text = escaped(&format!(
            "line {}: {}\nfix: {}",
            finding.line,
            finding.message(),
            finding.fix
        ));
        let id = escaped(&finding.id);
        match finding.severity {
            Severity::Error => {
                let message = escaped(&finding.message());
                let _ = writeln!(
                    xml,
                    "      <failure type=\"{id}\" message=\"{message}\">{text}</failure>"
                );
            }
            Severity::Warning => {
                let _ = writeln!(xml, "      <system-out>{id}: {text}</system-out>");
            }
        }
    }
    xml.push_str("    </testcase>\n");
}

/// XML does not allow control characters, not even escaped ones.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
