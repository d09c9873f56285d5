use std::time::Duration;

use asya_shared::resolve::{Claim, ObjectRef, Related, Resolution, Scale, resolver};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{ClaimWrite, Claiming, after_rollout, judge, plan};
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::model::binding::{BindingSeen, Resolved};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{By, Rolled};
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::roll::facts::{Act, Rolling};
use crate::reconcile::plan::scaling::{Removal, ScalingPlan};
use crate::reconcile::plan::steps::ScalingStep;
use crate::reconcile::tests::fixtures::{actor, observed};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

fn claim(is_made: bool) -> Claim {
    let owner = ObjectRef {
        api_version: "serving.kserve.io/v1beta1".to_owned(),
        kind: "InferenceService".to_owned(),
        name: "iris".to_owned(),
        uid: Some("iris-uid".to_owned()),
    };
    Claim {
        owner,
        is_made,
        is_followed: true,
    }
}

fn scaled(fault: Option<Fault>) -> ScalingStep {
    ScalingStep::Wanted(ScalingPlan {
        trigger_authentication: ChildStep::Wait,
        scaled_object: ChildStep::Wait,
        fault,
        waits_for: None,
    })
}

/// No pod has the sidecar yet.
fn unproved() -> ScalingStep {
    match scaled(None) {
        ScalingStep::Wanted(plan) => ScalingStep::Wanted(ScalingPlan {
            waits_for: Some("the sidecar"),
            ..plan
        }),
        other => other,
    }
}

fn unscaled(released: bool) -> ScalingStep {
    ScalingStep::Unwanted(Removal {
        released,
        ..Removal::default()
    })
}

/// Actor `ns/a`, whose target has an owner on which the claim is made or not.
fn claiming(is_made: bool, status: &Value) -> Observed {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let row = resolver("apps", "Deployment");
    let Resolution::Found(mut target) = row.resolve(&object, &Related::default()) else {
        panic!()
    };
    target.scale = Scale::Claimed(target.workload.clone(), claim(is_made));
    let mut observed = seen(&[], false);
    observed.previous = serde_json::from_value(status.clone()).unwrap();
    let resolved = Resolved {
        target: *target,
        replicas: Some(1),
        spec: "spec".into(),
        templated: None,
    };
    observed.binding = Some(BindingSeen {
        target: Some(Ok(Box::new(resolved))),
        ..BindingSeen::default()
    });
    observed
}

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().unwrap()
}

/// SO-5, ROLL-3
#[test]
fn claim_is_written_with_a_due_rollout_or_when_none_is_coming() {
    let rival = || Fault::until_change(Reason::RivalAutoscaler, "theirs");
    let wait = Rolling::Wait(Reason::RolloutWaiting, String::new(), <_>::default());
    let annotate = Rolling::Act(Act::Annotate("v".to_owned()));
    let (wanted, off) = (|| scaled(None), || unscaled(true));
    for (is_made, mut scaling, roll, told) in [
        (
            false,
            wanted(),
            Some(&Rolling::Rest),
            Some(Claiming::Wanted(FieldDecision::Write)),
        ),
        (
            false,
            wanted(),
            Some(&annotate),
            Some(Claiming::Wanted(FieldDecision::Write)),
        ),
        (false, unproved(), Some(&Rolling::Rest), None),
        (
            false,
            unproved(),
            Some(&annotate),
            Some(Claiming::Wanted(FieldDecision::Write)),
        ),
        (false, wanted(), Some(&wait), None),
        (false, wanted(), Some(&Rolling::Act(Act::Prove)), None),
        (false, wanted(), Some(&Rolling::Halt(String::new())), None),
        (false, wanted(), None, None),
        (false, scaled(Some(rival())), Some(&Rolling::Rest), None),
        (
            false,
            off(),
            Some(&Rolling::Rest),
            Some(Claiming::Wanted(FieldDecision::Over)),
        ),
        (
            true,
            wanted(),
            Some(&Rolling::Rest),
            Some(Claiming::Wanted(FieldDecision::Over)),
        ),
        (true, off(), Some(&Rolling::Rest), Some(Claiming::GiveUp)),
        (true, off(), Some(&annotate), Some(Claiming::GiveUp)),
        (true, off(), Some(&wait), None),
        (
            true,
            unscaled(false),
            Some(&Rolling::Rest),
            Some(Claiming::Wanted(FieldDecision::Over)),
        ),
    ] {
        let observed = claiming(is_made, &json!({}));
        let found = plan(&observed, Some(&mut scaling), roll, now());
        assert_eq!(found, told, "{is_made}, {scaling:?}, {roll:?}");
    }
    let plain = seen(&[], false);
    let found = plan(&plain, Some(&mut wanted()), Some(&Rolling::Rest), now());
    assert_eq!(found, None);
}

/// CONF-3
#[test]
fn lost_claim_is_written_again_with_backoff_five_times_at_most() {
    let entry = |state: &str, losses: i32| {
        json!({"conflicts": [{
            "part": "Autoscaler", "uid": "web-uid", "object": "InferenceService/iris", "field": "f", "count": losses,
            "state": state, "losses": losses, "retryTime": "2026-01-01T00:10:30Z", "generation": 2, "target": "spec",
            "lastTime": "2026-01-01T00:09:00Z",
        }]})
    };
    let rest = Some(&Rolling::Rest);
    let mut lost = claiming(false, &json!({}));
    lost.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let mut scaling = ScalingStep::Refused(Removal::default(), super::lost(&claim(false)));
    let found = plan(&lost, Some(&mut scaling), rest, now());
    assert!(
        matches!(found, Some(Claiming::Wanted(FieldDecision::Lost(_)))),
        "{found:?}"
    );

    for (state, losses, at, told) in [
        (
            "Waiting",
            1,
            now(),
            Claiming::Wanted(FieldDecision::Wait(Duration::from_secs(30))),
        ),
        (
            "Waiting",
            1,
            "2026-01-01T00:10:30Z".parse().unwrap(),
            Claiming::Wanted(FieldDecision::Write),
        ),
        ("Stopped", 5, now(), Claiming::Wanted(FieldDecision::Stop)),
    ] {
        let observed = claiming(false, &entry(state, losses));
        let mut scaling = scaled(None);
        let found = plan(&observed, Some(&mut scaling), rest, at);
        let is_told = scaling.fault().map(|it| it.reason) == Some(Reason::RivalAutoscaler);
        assert_eq!(
            is_told,
            told != Claiming::Wanted(FieldDecision::Write),
            "{state}"
        );
        assert_eq!(found, Some(told));
    }
    // A rival that removes it at once leaves KEDA no time.
    let mut at_once = json!({"claimed": "web-uid"});
    for (status, is_lost) in [
        (at_once.clone(), true),
        (json!({"claimed": "another"}), false),
        (json!({}), false),
    ] {
        let found = plan(
            &claiming(false, &status),
            Some(&mut scaled(None)),
            rest,
            now(),
        );
        let lost = matches!(found, Some(Claiming::Wanted(FieldDecision::Lost(_))));
        assert_eq!(lost, is_lost, "{status}: {found:?}");
    }
    at_once["conflicts"] = entry("Held", 4)["conflicts"].clone();
    let mut scaling = scaled(None);
    let found = plan(&claiming(false, &at_once), Some(&mut scaling), rest, now());
    let lost = matches!(found, Some(Claiming::Wanted(FieldDecision::Lost(_))));
    assert!(lost, "{found:?}");
    let told = scaling.fault().map(|it| it.reason);
    assert_eq!(told, Some(Reason::RivalAutoscaler));

    let held = claiming(true, &entry("Held", 1));
    let found = plan(&held, Some(&mut scaled(None)), rest, now());
    assert_eq!(
        found,
        Some(Claiming::Wanted(FieldDecision::Stands(
            Duration::from_mins(14)
        )))
    );
}

fn seen(hpas: &[Value], stands: bool) -> Observed {
    let spec = json!({
        "transport": "mq", "scaling": {"enabled": true},
        "workloadRef": {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "iris"},
    });
    let mut seen = observed(&actor(&json!({}), &spec, &json!({})));
    seen.scaling.hpas = hpas.iter().map(hpa).collect();
    if stands {
        seen.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    }
    seen
}

/// SO-5, ROLL-3
#[test]
fn claim_is_written_with_the_rollout_or_alone_if_none_is_due() {
    let text = || "text".to_owned();
    let waits = Rolled::Waits(Reason::RolloutWaiting, text(), Requeue::AwaitChange);
    for (rolled, wanted) in [
        (
            Rolled::Asked(By::Annotation, text(), Requeue::AwaitChange),
            ClaimWrite::WithRollout,
        ),
        (Rolled::Rest, ClaimWrite::Alone),
        (Rolled::Untouched, ClaimWrite::Not),
        (Rolled::Proved, ClaimWrite::Not),
        (Rolled::Halted(text()), ClaimWrite::Not),
        (waits, ClaimWrite::Not),
    ] {
        assert_eq!(after_rollout(&rolled), wanted, "{rolled:?}");
    }
}

/// SO-5, CONF-3
#[test]
fn queue_scales_only_after_the_owners_autoscaler_is_deleted() {
    let owned = |uid: &str| {
        json!({"metadata": {"ownerReferences": [{
            "apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "iris", "uid": uid, "controller": true,
        }]}})
    };
    for (is_made, hpas, stands, (others, waits, lost)) in [
        (false, vec![], false, (0, true, false)),
        (true, vec![owned("iris-uid")], false, (0, true, false)),
        (true, vec![], false, (0, false, false)),
        (true, vec![], true, (0, false, false)),
        (true, vec![owned("other")], false, (1, false, false)),
        (true, vec![owned("iris-uid")], true, (0, true, true)),
        (false, vec![], true, (0, true, true)),
    ] {
        let judged = judge(&seen(&hpas, stands), Some(&claim(is_made)));
        assert_eq!(
            (judged.hpas.len(), judged.waits, judged.lost.is_some()),
            (others, waits, lost),
            "{is_made}, {hpas:?}, {stands}"
        );
    }
    let plain = judge(&seen(&[owned("iris-uid")], true), None);
    assert_eq!((plain.hpas.len(), plain.waits), (1, false));
}
