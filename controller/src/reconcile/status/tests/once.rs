use asya_shared::api::{AsyncActorStatus, State};
use serde_json::{Value, json};

use super::{condition, report, running, with_ready_queue};
use crate::fault::{Fault, Reason};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{QueueState, StandaloneOutcome};
use crate::reconcile::tests::fixtures::{actor, deployment, observed, pod, spec, workload};
use crate::record::ActorRecord;

fn annotated(annotations: &Value, previous: AsyncActorStatus) -> Observed {
    let metadata = json!({"annotations": annotations});
    let mut observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
    observed.previous = previous;
    observed
}

fn once(previous: AsyncActorStatus) -> Observed {
    annotated(&json!({"asya.sh/reconcile": "Once"}), previous)
}

/// FW-21, FW-30
#[test]
fn ready_generation_is_remembered_while_the_actor_is_reconciled_once() {
    let generation =
        |observed: &Observed, outcome| report(observed, outcome).status.ready_generation;
    let new = once(AsyncActorStatus::default());
    let mut waiting = running(&new);
    waiting.common.queue = QueueState::Fault(Fault::until_change(Reason::QueueMissing, "gone"));
    assert_eq!(generation(&new, waiting), None, "not ready");
    let mut rolling = once(AsyncActorStatus::default());
    rolling.pods = vec![pod("old", "another-template")];
    assert_eq!(generation(&rolling, running(&rolling)), None, "rolling out");
    assert_eq!(generation(&new, running(&new)), Some(2));

    let ready = report(&new, running(&new)).status;
    let later = once(ready.clone());
    let mut broken = running(&later);
    broken.common.queue = QueueState::Fault(Fault::until_change(Reason::QueueMissing, "gone"));
    assert_eq!(
        generation(&later, broken),
        Some(2),
        "it was ready before the fault"
    );
    let older = AsyncActorStatus {
        ready_generation: Some(1),
        ..AsyncActorStatus::default()
    };
    let changed = once(older);
    assert_eq!(generation(&changed, StandaloneOutcome::default()), None);
    let mut terminating = changed;
    let mut actor = ActorRecord::clone(&terminating.actor);
    actor.metadata.deleting = true;
    terminating.actor = std::sync::Arc::new(actor);
    assert_eq!(
        generation(&terminating, StandaloneOutcome::default()),
        Some(1),
        "deletion does not change the spec (QUE-41)"
    );
    let always = annotated(&json!({}), ready);
    assert_eq!(generation(&always, running(&always)), None);
}

/// FW-21, STA-4
#[test]
fn workload_of_a_completed_once_actor_is_evaluated_by_its_own_template() {
    let done = AsyncActorStatus {
        ready_generation: Some(2),
        ..AsyncActorStatus::default()
    };
    let mut observed = once(done);
    let mut object = deployment(&observed);
    object["spec"]["template"]["metadata"]["annotations"]["asya.sh/template-hash"] = json!("older");
    observed.pods = vec![pod("p", "older")];
    let outcome = StandaloneOutcome {
        common: with_ready_queue(),
        workload: Some(workload(&object)),
        ..StandaloneOutcome::default()
    };
    let status = report(&observed, outcome).status;
    assert_eq!(status.status, Some(State::Running));

    let gone = StandaloneOutcome {
        common: with_ready_queue(),
        ..StandaloneOutcome::default()
    };
    let status = report(&observed, gone).status;
    assert_eq!(status.status, Some(State::WorkloadError));
    assert_eq!(condition(&status, "WorkloadReady").1, "WorkloadMissing");
}
