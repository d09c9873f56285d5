use std::collections::BTreeSet;

use asya_shared::api::InjectionStatus;
use asya_shared::inject::bound::Gate;
use k8s_openapi::jiff::Timestamp;

use super::{Known, Probed};

const HASH: &str = "today.release";

fn now() -> Timestamp {
    "2026-01-01T00:00:00.5Z".parse().unwrap()
}

fn limits(names: &[&str]) -> BTreeSet<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

/// What is known in a namespace without quotas on limits.
fn known<'a>(before: Option<&'a InjectionStatus>, limits: &'a BTreeSet<Box<str>>) -> Known<'a> {
    Known {
        before,
        hash: HASH,
        generation: 2,
        limits: Some(limits),
        injected: false,
        admitted: false,
    }
}

fn proved() -> InjectionStatus {
    InjectionStatus {
        proved: Some("today".to_owned()),
        generation: Some(2),
        platform: Some("release".to_owned()),
        ..InjectionStatus::default()
    }
}

fn refusal() -> Probed {
    Probed::Refused("exceeded quota".to_owned())
}

fn gate(status: Option<&InjectionStatus>) -> Gate {
    Gate::of(status, "today")
}

/// SAFE-1
#[test]
fn gate_opens_with_the_first_passed_dry_run_and_closes_with_the_first_refusal() {
    let none = limits(&[]);
    let begun = known(None, &none).after(&Probed::Untried, true, now());
    assert_eq!(gate(begun.as_ref()), Gate::Unproved);
    let known = known(begun.as_ref(), &none);
    for nothing in [Probed::Untried, Probed::NotInjected("webhook".to_owned())] {
        assert_eq!(known.after(&nothing, false, now()), begun, "{nothing:?}");
    }
    let open = known.after(&Probed::Admitted, false, now());
    assert_eq!(gate(open.as_ref()), Gate::Open);
    let known = super::tests::known(open.as_ref(), &none);
    assert_eq!(known.after(&Probed::Untried, false, now()), open, "at rest");
    let closed = known.after(&refusal(), false, now()).unwrap();
    assert_eq!(
        gate(Some(&closed)),
        Gate::Refused("exceeded quota".to_owned())
    );
    assert_eq!(closed.proved, None, "it was this part that was proved");
    let known = super::tests::known(Some(&closed), &none);
    let open = known.after(&Probed::Admitted, false, now());
    assert_eq!(gate(open.as_ref()), Gate::Open);
}

/// SAFE-1: returning to a spec that was admitted needs no new dry run before pods get the sidecar.
#[test]
fn refusal_of_another_part_keeps_the_proof() {
    let none = limits(&[]);
    let earlier = InjectionStatus {
        proved: Some("earlier".to_owned()),
        ..proved()
    };
    let after = known(Some(&earlier), &none).after(&refusal(), false, now());
    assert_eq!(Gate::of(after.as_ref(), "earlier"), Gate::Open);
    assert_ne!(gate(after.as_ref()), Gate::Open);
}

/// SAFE-3
#[test]
fn gate_of_an_earlier_release_stays_open_until_a_dry_run_is_refused() {
    let none = limits(&[]);
    let known = |injected| Known {
        injected,
        ..known(None, &none)
    };
    let without = known(false);
    assert!(without.wants_probe(), "no pod tells");
    for nothing in [Probed::Untried, Probed::NotInjected("webhook".to_owned())] {
        assert_eq!(without.after(&nothing, false, now()), None, "{nothing:?}");
    }
    let refused = without.after(&refusal(), false, now());
    assert_ne!(gate(refused.as_ref()), Gate::Open);

    let with = known(true);
    assert!(!with.wants_probe(), "its pods tell");
    let status = with.after(&Probed::Untried, false, now()).unwrap();
    assert_eq!(gate(Some(&status)), Gate::Open);
    assert_eq!(
        (status.generation, status.platform.as_deref()),
        (Some(2), Some("release"))
    );
}

/// SAFE-1, SAFE-3: for example after an actor was deleted and created again while the target's pods kept running.
#[test]
fn running_pods_with_the_current_part_prove_it_for_a_new_binding() {
    let none = limits(&[]);
    let known = |before, admitted| Known {
        admitted,
        ..known(before, &none)
    };
    let begun = known(None, true)
        .after(&Probed::Untried, true, now())
        .unwrap();
    assert_eq!(gate(Some(&begun)), Gate::Open);
    assert!(
        known(Some(&begun), true).wants_probe(),
        "it is confirmed by a dry run"
    );
    let bare = known(None, false).after(&Probed::Untried, true, now());
    assert_eq!(gate(bare.as_ref()), Gate::Unproved);
    let listed = known(bare.as_ref(), true).after(&Probed::Untried, false, now());
    assert_eq!(
        gate(listed.as_ref()),
        Gate::Open,
        "its pods were listed later"
    );
    let away = Probed::NotInjected("webhook".to_owned());
    let listed = known(bare.as_ref(), true).after(&away, false, now());
    assert_eq!(gate(listed.as_ref()), Gate::Open, "the webhook is away");

    let refused = known(Some(&begun), true).after(&refusal(), false, now());
    assert_ne!(gate(refused.as_ref()), Gate::Open);
    let still = known(refused.as_ref(), true).after(&Probed::Untried, false, now());
    assert_eq!(still, refused, "what was refused last counts");
}

/// SAFE-4: running pods older than a refusal do not prove the refused part.
#[test]
fn running_pods_do_not_reopen_a_gate_closed_by_a_refusal() {
    let none = limits(&[]);
    let closed = known(Some(&proved()), &none).after(&refusal(), false, now());
    let known = Known {
        injected: true,
        ..known(closed.as_ref(), &none)
    };
    assert!(known.wants_probe());
    assert_eq!(known.after(&Probed::Untried, false, now()), closed);
}

/// SAFE-4
#[test]
fn dry_run_is_due_for_each_new_part_spec_or_release_only() {
    let none = limits(&[]);
    let rest = proved();
    assert!(!known(Some(&rest), &none).wants_probe());
    for (what, before) in [
        ("nothing proved", InjectionStatus::default()),
        (
            "another part",
            InjectionStatus {
                proved: Some("earlier".to_owned()),
                ..proved()
            },
        ),
        (
            "refused",
            InjectionStatus {
                refused: Some("today".to_owned()),
                ..proved()
            },
        ),
        (
            "another spec",
            InjectionStatus {
                generation: Some(1),
                ..proved()
            },
        ),
        (
            "another release",
            InjectionStatus {
                platform: Some("former".to_owned()),
                ..proved()
            },
        ),
    ] {
        assert!(known(Some(&before), &none).wants_probe(), "{what}");
    }
}

/// SAFE-6
#[test]
fn limits_are_recorded_in_status_before_a_dry_run_depends_on_them() {
    let (none, memory) = (limits(&[]), limits(&["memory"]));
    let before = InjectionStatus::default();
    let unlisted = Known {
        limits: None,
        ..known(Some(&before), &none)
    };
    assert!(!unlisted.wants_probe(), "the quotas are not known yet");
    let kept = InjectionStatus {
        limits: vec!["memory".to_owned()],
        ..proved()
    };
    let unlisted = Known {
        before: Some(&kept),
        ..unlisted
    };
    let after = unlisted.after(&Probed::Untried, false, now()).unwrap();
    assert_eq!(after.limits, ["memory"], "what was told holds until then");

    let quota = known(Some(&before), &memory);
    assert!(!quota.wants_probe(), "the webhook does not know them");
    let told = quota.after(&Probed::Untried, false, now()).unwrap();
    assert_eq!(told.limits, ["memory"]);
    assert_eq!(
        told.since.as_ref().unwrap().0.as_second(),
        now().as_second()
    );
    assert!(known(Some(&told), &memory).wants_probe());
    let gone = known(Some(&told), &none).after(&Probed::Untried, false, now());
    assert!(gone.unwrap().limits.is_empty());
}

#[test]
fn long_messages_are_cut_at_a_character_boundary() {
    let none = limits(&[]);
    let long = Probed::Refused("ü".repeat(2000));
    let after = known(None, &none).after(&long, true, now()).unwrap();
    let message = after.message.unwrap();
    assert_eq!(message.len(), 1024);
}
