use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::fault::{Reason, Requeue};
use crate::reconcile::model::binding::BindingSeen;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::RolloutSeen;
use crate::reconcile::plan::roll::facts::Act;
use crate::reconcile::tests::fixtures::{actor, context_with, observed, proved_status};

/// An actor that binds Deployment `web`, with `injection` in its status and a pod for the next dry run.
fn bound(injection: Option<Value>) -> Observed {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"transport": "mq", "workloadRef": target});
    let mut status = proved_status();
    if let Some(injection) = injection {
        status["injection"] = injection;
    }
    let mut seen = observed(&actor(&json!({}), &spec, &status));
    let rollout = RolloutSeen {
        probe: Some(json!({"metadata": {}, "spec": {"containers": []}})),
        ..RolloutSeen::default()
    };
    seen.binding = Some(BindingSeen {
        rollout: Some(rollout),
        ..BindingSeen::default()
    });
    seen
}

fn hash() -> String {
    let seen = bound(None);
    seen.bound().unwrap().injected_hash.clone().unwrap()
}

type Answers = fn(&str) -> Option<(u16, Value)>;

fn answer(asked: &str, status: u16, answer: Value) -> Option<(u16, Value)> {
    (asked == "POST /api/v1/namespaces/ns/pods").then_some((status, answer))
}

const NOBODY: Answers = |_| None;
const BARE: Answers = |asked| {
    answer(
        asked,
        201,
        json!({"metadata": {}, "spec": {"containers": []}}),
    )
};
const INJECTED: Answers = |asked| {
    let annotations = json!({"asya.sh/injected-by": "actor-uid", "asya.sh/injected-hash": hash()});
    let containers = json!([{"name": "asya-runtime"}, {"name": "asya-sidecar"}]);
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}});
    answer(asked, 201, pod)
};
const REFUSED: Answers = |asked| {
    let text = "the image comes from no registry of ours";
    let refused = json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": text});
    answer(asked, 403, refused)
};

/// ROLL-2: other replicas of the webhook may not have read the status yet.
#[tokio::test]
async fn rollout_waits_until_all_webhook_replicas_can_see_the_open_gate() {
    let hash = hash();
    let part = hash.split('.').next();
    let act = Rolling::Act(Act::Annotate("v".to_owned()));
    for (age, begins) in [(0, false), (10, true)] {
        let since = Timestamp::now() - Duration::from_secs(age);
        let injection = json!({"proved": part, "since": since});
        let (context, seen) = (context_with(INJECTED), bound(Some(injection)));
        let inputs = ProbeInputs::new(&seen);
        let planned = (&inputs, Probing::Rest, Some(act.clone()));
        let mut ensured = Ensured::default();
        let probed = probe(&context, seen.key(), planned, &mut ensured).await;
        match probed.unwrap().unwrap() {
            Ok(next) => assert!(begins && next == act, "{age}"),
            Err(Rolled::Waits(Reason::RolloutInProgress, _, Requeue::After(wait))) => {
                assert!(!begins && wait <= Duration::from_secs(2), "{age}: {wait:?}");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// SAFE-1, ROLL-2
#[tokio::test]
async fn pods_are_replaced_only_after_a_dry_run_shows_that_new_pods_get_the_sidecar() {
    let part = hash();
    let part = part.split('.').next();
    let refused = json!({"refused": part, "message": "exceeded quota"});
    for (status, answers, wanted) in [
        (None, INJECTED, None),
        (None, BARE, Some(Some(Reason::ProbeFailed))),
        (None, REFUSED, Some(None)),
        // No dry run is needed.
        (Some(refused), NOBODY, Some(None)),
        (Some(json!({})), NOBODY, Some(Some(Reason::ProbeFailed))),
    ] {
        let (context, seen) = (context_with(answers), bound(status));
        let other = Key::new("elsewhere", "other");
        context.rollout_slots.hold(seen.key(), Timestamp::MAX);
        let step = Rolling::Act(Act::Annotate("v".to_owned()));
        let inputs = ProbeInputs::new(&seen);
        let planned = (&inputs, Probing::Rest, Some(step.clone()));
        let mut ensured = Ensured::default();
        let probed = probe(&context, seen.key(), planned, &mut ensured).await;
        let told = match probed.unwrap().unwrap() {
            Ok(next) => {
                assert_eq!(next, step);
                None
            }
            Err(Rolled::Waits(reason, text, _)) => {
                // The message mentions the webhook only if a dry run was made.
                let asks = ensured.probe.outcome != Probed::Untried;
                assert_eq!(text.contains("waiting for the webhook"), asks, "{text}");
                Some(Some(reason))
            }
            Err(Rolled::Untouched) => Some(None),
            Err(other) => panic!("{other:?}"),
        };
        assert_eq!(told, wanted, "{:?}", seen.previous.injection);
        let has_room = context.rollout_slots.has_room_for(&other, Timestamp::now());
        assert_eq!(
            has_room,
            wanted.is_some(),
            "who cannot go on holds up nobody"
        );
    }
}
