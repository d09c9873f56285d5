use std::collections::BTreeSet;

use asya_shared::api::InjectionStatus;
use asya_shared::inject::bound::ProbeResult;
use k8s_openapi::jiff::Timestamp;

use super::{InjectionInputs, ProbeOutcome};

const HASH: &str = "today.release";

fn now() -> Timestamp {
    "2026-01-01T00:00:00.5Z".parse().unwrap()
}

fn limits(names: &[&str]) -> BTreeSet<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

/// Inputs in a namespace without quotas on limits.
fn inputs<'a>(
    previous: Option<&'a InjectionStatus>,
    limits: &'a BTreeSet<Box<str>>,
) -> InjectionInputs<'a> {
    InjectionInputs {
        previous,
        hash: HASH,
        generation: 2,
        limits: Some(limits),
        injected: false,
        injected_for_any_actor: false,
    }
}

fn verified() -> InjectionStatus {
    InjectionStatus {
        verified_actor_hash: Some("today".to_owned()),
        generation: Some(2),
        platform: Some("release".to_owned()),
        ..InjectionStatus::default()
    }
}

fn rejection() -> ProbeOutcome {
    ProbeOutcome::Rejected("exceeded quota".to_owned())
}

fn probe_result(status: Option<&InjectionStatus>) -> ProbeResult {
    ProbeResult::from_status(status, "today")
}

/// SAFE-1
#[test]
fn injection_starts_with_the_first_passed_dry_run_and_stops_with_the_first_rejection() {
    let none = limits(&[]);
    let initial = inputs(None, &none).status_after(&ProbeOutcome::NotRun, true, now());
    assert_eq!(probe_result(initial.as_ref()), ProbeResult::Unverified);
    let inputs = inputs(initial.as_ref(), &none);
    for inconclusive in [
        ProbeOutcome::NotRun,
        ProbeOutcome::NotInjected("webhook".to_owned()),
    ] {
        assert_eq!(
            inputs.status_after(&inconclusive, false, now()),
            initial,
            "{inconclusive:?}"
        );
    }
    let verified = inputs.status_after(&ProbeOutcome::Admitted, false, now());
    assert_eq!(probe_result(verified.as_ref()), ProbeResult::Verified);
    let inputs = super::tests::inputs(verified.as_ref(), &none);
    assert_eq!(
        inputs.status_after(&ProbeOutcome::NotRun, false, now()),
        verified,
        "unchanged"
    );
    let rejected = inputs.status_after(&rejection(), false, now()).unwrap();
    assert_eq!(
        probe_result(Some(&rejected)),
        ProbeResult::Rejected("exceeded quota".to_owned())
    );
    assert_eq!(
        rejected.verified_actor_hash, None,
        "the verified hash itself was rejected"
    );
    let inputs = super::tests::inputs(Some(&rejected), &none);
    let verified = inputs.status_after(&ProbeOutcome::Admitted, false, now());
    assert_eq!(probe_result(verified.as_ref()), ProbeResult::Verified);
}

/// SAFE-1: returning to a spec that was admitted needs no new dry run before pods get the sidecar.
#[test]
fn rejection_of_another_actor_hash_keeps_the_verified_one() {
    let none = limits(&[]);
    let earlier = InjectionStatus {
        verified_actor_hash: Some("earlier".to_owned()),
        ..verified()
    };
    let after = inputs(Some(&earlier), &none).status_after(&rejection(), false, now());
    assert_eq!(
        ProbeResult::from_status(after.as_ref(), "earlier"),
        ProbeResult::Verified
    );
    assert_ne!(probe_result(after.as_ref()), ProbeResult::Verified);
}

/// SAFE-3
#[test]
fn injection_of_an_earlier_release_continues_until_a_dry_run_is_rejected() {
    let none = limits(&[]);
    let inputs = |injected| InjectionInputs {
        injected,
        ..inputs(None, &none)
    };
    let uninjected = inputs(false);
    assert!(uninjected.needs_probe(), "no pod has the sidecar");
    for inconclusive in [
        ProbeOutcome::NotRun,
        ProbeOutcome::NotInjected("webhook".to_owned()),
    ] {
        assert_eq!(
            uninjected.status_after(&inconclusive, false, now()),
            None,
            "{inconclusive:?}"
        );
    }
    let rejected = uninjected.status_after(&rejection(), false, now());
    assert_ne!(probe_result(rejected.as_ref()), ProbeResult::Verified);

    let injected = inputs(true);
    assert!(!injected.needs_probe(), "its pods have the sidecar");
    let status = injected
        .status_after(&ProbeOutcome::NotRun, false, now())
        .unwrap();
    assert_eq!(probe_result(Some(&status)), ProbeResult::Verified);
    assert_eq!(
        (status.generation, status.platform.as_deref()),
        (Some(2), Some("release"))
    );
}

/// SAFE-1, SAFE-3: for example after an actor was deleted and created again while the target's pods kept running.
#[test]
fn running_pods_with_the_current_actor_hash_verify_it_for_a_new_binding() {
    let none = limits(&[]);
    let inputs = |previous, injected_for_any_actor| InjectionInputs {
        injected_for_any_actor,
        ..inputs(previous, &none)
    };
    let initial = inputs(None, true)
        .status_after(&ProbeOutcome::NotRun, true, now())
        .unwrap();
    assert_eq!(probe_result(Some(&initial)), ProbeResult::Verified);
    assert!(
        inputs(Some(&initial), true).needs_probe(),
        "a dry run must still confirm it"
    );
    let unverified = inputs(None, false).status_after(&ProbeOutcome::NotRun, true, now());
    assert_eq!(probe_result(unverified.as_ref()), ProbeResult::Unverified);
    let listed =
        inputs(unverified.as_ref(), true).status_after(&ProbeOutcome::NotRun, false, now());
    assert_eq!(
        probe_result(listed.as_ref()),
        ProbeResult::Verified,
        "its pods were listed later"
    );
    let not_injected = ProbeOutcome::NotInjected("webhook".to_owned());
    let listed = inputs(unverified.as_ref(), true).status_after(&not_injected, false, now());
    assert_eq!(
        probe_result(listed.as_ref()),
        ProbeResult::Verified,
        "the webhook is unavailable"
    );

    let rejected = inputs(Some(&initial), true).status_after(&rejection(), false, now());
    assert_ne!(probe_result(rejected.as_ref()), ProbeResult::Verified);
    let later = inputs(rejected.as_ref(), true).status_after(&ProbeOutcome::NotRun, false, now());
    assert_eq!(
        later, rejected,
        "the rejection stands until the next dry run"
    );
}

/// SAFE-4: running pods older than a rejection do not verify the rejected actor hash.
#[test]
fn running_pods_do_not_resume_injection_after_a_rejection() {
    let none = limits(&[]);
    let rejected = inputs(Some(&verified()), &none).status_after(&rejection(), false, now());
    let inputs = InjectionInputs {
        injected: true,
        ..inputs(rejected.as_ref(), &none)
    };
    assert!(inputs.needs_probe());
    assert_eq!(
        inputs.status_after(&ProbeOutcome::NotRun, false, now()),
        rejected
    );
}

/// SAFE-4
#[test]
fn dry_run_is_due_only_for_a_new_actor_hash_spec_or_release() {
    let none = limits(&[]);
    assert!(!inputs(Some(&verified()), &none).needs_probe());
    for (case, previous) in [
        ("nothing verified", InjectionStatus::default()),
        (
            "another actor hash",
            InjectionStatus {
                verified_actor_hash: Some("earlier".to_owned()),
                ..verified()
            },
        ),
        (
            "rejected",
            InjectionStatus {
                rejected_actor_hash: Some("today".to_owned()),
                ..verified()
            },
        ),
        (
            "another spec",
            InjectionStatus {
                generation: Some(1),
                ..verified()
            },
        ),
        (
            "another version",
            InjectionStatus {
                platform: Some("previous".to_owned()),
                ..verified()
            },
        ),
    ] {
        assert!(inputs(Some(&previous), &none).needs_probe(), "{case}");
    }
}

/// SAFE-6
#[test]
fn limits_are_recorded_in_status_before_a_dry_run_depends_on_them() {
    let none = limits(&[]);
    let memory = limits(&["memory"]);
    let previous = InjectionStatus::default();
    let unlisted = InjectionInputs {
        limits: None,
        ..inputs(Some(&previous), &none)
    };
    assert!(!unlisted.needs_probe(), "quotas not listed yet");
    let kept = InjectionStatus {
        limits: vec!["memory".to_owned()],
        ..verified()
    };
    let unlisted = InjectionInputs {
        previous: Some(&kept),
        ..unlisted
    };
    let after = unlisted
        .status_after(&ProbeOutcome::NotRun, false, now())
        .unwrap();
    assert_eq!(
        after.limits,
        ["memory"],
        "recorded limits are kept until then"
    );

    let quota = inputs(Some(&previous), &memory);
    assert!(!quota.needs_probe(), "not recorded in status yet");
    let recorded = quota
        .status_after(&ProbeOutcome::NotRun, false, now())
        .unwrap();
    assert_eq!(recorded.limits, ["memory"]);
    assert_eq!(
        recorded.since.as_ref().unwrap().0.as_second(),
        now().as_second()
    );
    assert!(inputs(Some(&recorded), &memory).needs_probe());
    let gone = inputs(Some(&recorded), &none).status_after(&ProbeOutcome::NotRun, false, now());
    assert!(gone.unwrap().limits.is_empty());
}

#[test]
fn long_messages_are_truncated_at_a_character_boundary() {
    let none = limits(&[]);
    let long = ProbeOutcome::Rejected("ü".repeat(2000));
    let after = inputs(None, &none)
        .status_after(&long, true, now())
        .unwrap();
    let message = after.message.unwrap();
    assert_eq!(message.len(), 1024);
}
