//! Findings as SARIF 2.1.0, which code hosting services show beside the lines of a change.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::decide::Linted;
use super::{LintFinding, Severity};
use crate::catalogue;

pub fn log(linted: &Linted) -> Value {
    let ids: BTreeSet<&str> = linted.findings.iter().map(|it| it.id.as_str()).collect();
    let rules: Vec<Value> = ids.iter().map(|id| rule(id)).collect();
    let results: Vec<Value> = linted.findings.iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "kubectl-asya",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "results": results,
        }],
    })
}

fn rule(id: &str) -> Value {
    let entry = catalogue::entry(id);
    json!({
        "id": id,
        "shortDescription": {"text": entry.map_or(id, |it| it.meaning)},
        "help": {"text": entry.map_or("", |it| it.fix)},
    })
}

fn result(finding: &LintFinding) -> Value {
    let level = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let fix = if finding.fix.is_empty() {
        String::new()
    } else {
        format!("; {}", finding.fix)
    };
    json!({
        "ruleId": finding.id,
        "level": level,
        "message": {"text": format!("{}{fix}", finding.message())},
        "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": finding.file},
            "region": {"startLine": finding.line},
        }}],
    })
}
