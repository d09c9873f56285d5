//! Annotations of an actor that control the operator. An unknown value must not be treated as absent, because the user
//! asked for something (FW-21).

use super::Violation;
use crate::names::annotation;

/// Annotations with a fixed set of values. Empty counts as absent, because templates may render an annotation empty.
pub const CONTROL_ANNOTATIONS: [(&str, &[&str]); 6] = [
    (annotation::RECONCILE, &["Always", "Once", "Paused"]),
    (annotation::PAUSED, SWITCH),
    (annotation::SKIP_QUEUE_DELETION, SWITCH),
    (annotation::RECLAIM_FIELDS, SWITCH),
    (annotation::ALLOW_RECREATE, SWITCH),
    (annotation::SKIP_UNBIND, SWITCH),
];

const SWITCH: &[&str] = &["true", "false"];

/// Whether an annotation that is true or false is on. An unknown value counts as on, so that a typo does not delete a
/// queue that should be kept.
#[must_use]
pub fn is_switched_on(value: Option<&str>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "false")
}

/// Annotations with an unknown value; `value_of` looks up an annotation.
pub fn annotations<'a>(value_of: impl Fn(&str) -> Option<&'a str>) -> Vec<Violation> {
    let unknown = CONTROL_ANNOTATIONS
        .into_iter()
        .filter_map(|(name, values)| {
            let value = value_of(name).filter(|it| !it.is_empty() && !values.contains(it))?;
            Some(Violation {
                path: format!("metadata.annotations[{name}]"),
                problem: format!("unknown value \"{}\"", shortened(value)),
                fix: Some(format!("use {}, or remove the annotation", one_of(values))),
            })
        });
    unknown.collect()
}

/// An annotation can hold 256 KiB, the message of a condition much less.
fn shortened(value: &str) -> &str {
    &value[..value.floor_char_boundary(64)]
}

fn one_of(values: &[&str]) -> String {
    match values.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{annotations, is_switched_on};
    use crate::validate::joined;

    /// FW-21, VAC-1
    #[test]
    fn unknown_value_of_a_control_annotation_is_rejected() {
        for (name, value, problem) in [
            ("asya.sh/reconcile", "Paused", ""),
            ("asya.sh/reconcile", "Always", ""),
            ("asya.sh/reconcile", "", ""),
            ("asya.sh/paused", "false", ""),
            ("asya.sh/roll-now", "any", ""),
            (
                "asya.sh/reconcile",
                "paused",
                "metadata.annotations[asya.sh/reconcile]: unknown value \"paused\"; use Always, Once or Paused, or \
                 remove the annotation",
            ),
            (
                "asya.sh/skip-queue-deletion",
                "yes",
                "metadata.annotations[asya.sh/skip-queue-deletion]: unknown value \"yes\"; use true or false, or remove \
                 the annotation",
            ),
        ] {
            let all = BTreeMap::from([(name, value)]);
            let found = annotations(|name| all.get(name).copied());
            assert_eq!(joined(&found), problem, "{name}={value}");
        }
        let long = "ü".repeat(4000);
        let found = joined(&annotations(|name| {
            (name == "asya.sh/paused").then_some(&*long)
        }));
        assert!(found.len() < 300, "{found}");
    }
    /// FW-21, FIN-4
    #[test]
    fn empty_switch_is_off_and_an_unknown_value_is_on() {
        for (value, on) in [
            (None, false),
            (Some(""), false),
            (Some("false"), false),
            (Some("true"), true),
            (Some("yes"), true),
        ] {
            assert_eq!(is_switched_on(value), on, "{value:?}");
        }
    }
}
