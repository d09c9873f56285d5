use std::collections::BTreeSet;

use asya_shared::api::State;
use asya_shared::reason::{MissingSidecar, Reason};
use asya_shared::validate;

use super::*;

fn has(name: &str) -> bool {
    entry(name).is_some()
}

#[test]
fn entries_are_found_by_name_and_by_id_in_any_case() {
    for name in [
        "QueueConflict",
        "ASYA-QueueConflict",
        "asya-queueconflict",
        "ASYA-VAL-3",
        "val-3",
    ] {
        assert!(has(name), "{name}");
    }
    assert!(!has("ASYA-"));
    assert!(!has("ü"));
}

#[test]
fn names_are_unique_and_every_text_is_there() {
    let mut names = BTreeSet::new();
    for entry in all() {
        assert!(
            names.insert(entry.name.to_ascii_lowercase()),
            "{} is there twice",
            entry.name
        );
        assert!(entry.meaning.ends_with('.'), "{}", entry.name);
        assert!(!entry.fix.is_empty(), "{}", entry.name);
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../").to_owned() + entry.page;
        assert!(std::path::Path::new(&page).exists(), "{page}");
    }
}

#[test]
fn every_reason_of_injection_is_explained() {
    for reason in InjectionReason::ALL {
        assert!(has(reason.as_str()), "{reason}");
    }
}

/// Each reason has a single text, which is also in the reference.
#[test]
fn reasons_of_conditions_are_explained_as_in_the_reference() {
    for &reason in Reason::ALL {
        let entry = entry(reason.as_str()).unwrap();
        assert_eq!(entry.meaning, reason.meaning());
        assert_eq!(entry.fix, reason.remedy().unwrap_or("Nothing to do."));
    }
}

#[test]
fn every_value_of_status_is_explained() {
    for state in State::ALL {
        assert!(has(state.as_str()), "{state}");
    }
}

/// BIND-7
#[test]
fn every_reason_why_status_counts_a_pod_without_the_sidecar_is_explained() {
    for reason in MissingSidecar::ALL {
        assert!(has(reason.as_str()), "{reason}");
    }
}

#[test]
fn pod_that_the_webhook_missed_has_its_causes_and_both_ways_out() {
    let missed = entry("WebhookUnavailable").unwrap();
    for cause in ["could not reach", "no answer in time", "did not know"] {
        assert!(missed.meaning.contains(cause), "{}", missed.meaning);
    }
    for way in ["kubectl asya check", "kubectl asya roll NAME"] {
        assert!(missed.fix.contains(way), "{}", missed.fix);
    }
}

#[test]
fn remedy_of_a_failed_dry_run_is_that_of_the_webhooks_reason() {
    let message = |why: &str| {
        format!("no pod is replaced, because a new one would not get the sidecar: {why}")
    };
    for (reason, why, expected) in [
        ("ProbeFailed", "HostNetwork", "HostNetwork"),
        ("ProbeFailed", "RestartPolicy", "RestartPolicy"),
        ("ProbeFailed", "SpecConflict", "SpecConflict"),
        ("ProbeFailed", "no such host", "ProbeFailed"),
        ("ProbeRejected", "HostNetwork", "ProbeRejected"),
    ] {
        let found = remedy(reason, &message(why)).map(|it| it.name);
        assert_eq!(found, Some(expected), "{reason} {why}");
    }
    assert_eq!(remedy("OfTomorrow", ""), None);
}

/// Every requirement that a rule names.
#[test]
fn every_rule_is_explained() {
    let mut ids = validate::rule_ids().peekable();
    assert!(ids.peek().is_some());
    for id in ids {
        assert!(has(id), "{id}");
    }
}
