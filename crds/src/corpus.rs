//! Specs that must be accepted or rejected: one table for the CRD's rules, the rules of webhook and controller, and a
//! real API server.

use std::collections::BTreeMap;
use std::error::Error;

use serde::Deserialize;
use serde_json::Value;

const CORPUS: &str = include_str!("../../tests/corpus/specs.yaml");
const FORMER: &str = include_str!("../../tests/corpus/former.yaml");

/// Actors as written for the Go operator.
///
/// # Errors
/// If the file is not valid YAML.
pub fn former_actors() -> Result<Vec<Value>, Box<dyn Error>> {
    Ok(serde_saphyr::from_multiple(FORMER)?)
}

/// An actor that is created or updated, and the expected result.
#[derive(Clone, Debug)]
pub struct Case {
    /// IDs of the requirements that the case covers.
    pub rules: Vec<String>,
    /// The stored actor, if the case is an update.
    pub old: Option<Value>,
    /// The actor to create or update.
    pub new: Value,
    /// Why the actor is rejected; `None` if it is accepted.
    pub refusal: Option<Refusal>,
}

/// Why an actor is rejected.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Path of the rejected field.
    pub path: String,
    /// The message after the path.
    pub text: String,
    /// Whether the CRD rejects it, or only webhook and controller.
    pub by_crd: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    bases: BTreeMap<String, Value>,
    accepted: Vec<Accepted>,
    refused: Vec<Refused>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    rules: Vec<String>,
    base: String,
    #[serde(default)]
    change: bool,
    patch: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    rule: String,
    #[serde(default)]
    cel: bool,
    base: String,
    #[serde(default)]
    change: bool,
    patch: Value,
    says: String,
}

/// All cases in `tests/corpus/specs.yaml`.
///
/// # Errors
/// If the file does not have the expected structure.
pub fn cases() -> Result<Vec<Case>, Box<dyn Error>> {
    let table: Table = serde_saphyr::from_str(CORPUS)?;
    let mut cases = Vec::new();
    for row in table.accepted {
        let (old, new) = built(&table.bases, &row.base, row.patch.as_ref(), row.change)?;
        cases.push(Case {
            rules: row.rules,
            old,
            new,
            refusal: None,
        });
    }
    for row in table.refused {
        let (old, new) = built(&table.bases, &row.base, Some(&row.patch), row.change)?;
        let (path, text) = row
            .says
            .split_once(": ")
            .ok_or_else(|| format!("{}: \"says\" must be PATH: TEXT", row.rule))?;
        cases.push(Case {
            rules: vec![row.rule],
            old,
            new,
            refusal: Some(Refusal {
                path: path.to_owned(),
                text: text.to_owned(),
                by_crd: row.cel,
            }),
        });
    }
    Ok(cases)
}

fn built(
    bases: &BTreeMap<String, Value>,
    base: &str,
    patch: Option<&Value>,
    change: bool,
) -> Result<(Option<Value>, Value), Box<dyn Error>> {
    let old = bases
        .get(base)
        .ok_or_else(|| format!("no base named {base}"))?;
    let mut new = old.clone();
    if let Some(patch) = patch {
        json_patch::merge(&mut new, patch);
    }
    Ok((change.then(|| old.clone()), new))
}
