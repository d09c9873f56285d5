use serde_json::json;

use super::{active_actor, report, running};
use crate::fault::{Fault, Reason};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{CommonOutcome, StandaloneOutcome};
use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};
use asya_shared::api::AsyncActorStatus;

/// The actor with this generation and image, whose status was `previous`.
fn changed(generation: i64, image: &str, previous: &AsyncActorStatus) -> Observed {
    let container = json!({"name": "asya-runtime", "image": image});
    let template = json!({"template": {"spec": {"containers": [container]}}});
    let spec = spec(&json!({"workload": template}));
    let mut observed = observed(&actor(
        &json!({"generation": generation}),
        &spec,
        &json!({}),
    ));
    observed.previous = previous.clone();
    observed
}

/// Reports an actor whose workload was left as it is.
fn kept(observed: &Observed, fault: Option<Fault>) -> AsyncActorStatus {
    let outcome = StandaloneOutcome {
        common: CommonOutcome {
            fault,
            ..CommonOutcome::default()
        },
        workload: Some(workload(&deployment(&active_actor()))),
        ..StandaloneOutcome::default()
    };
    report(observed, outcome).status
}

fn applied_generation(status: &AsyncActorStatus) -> Option<i64> {
    assert_eq!(status.inventory.len(), 1);
    status.inventory[0].applied_generation
}

/// SAFE-36
#[test]
fn workload_that_is_not_applied_keeps_the_generation_that_it_was_applied_for() {
    const IMAGE: &str = "me/handler:1";
    let applied = report(&active_actor(), running(&active_actor())).status;
    assert_eq!(applied_generation(&applied), None);

    let rejected = Fault::until_change(Reason::ReconcileError, "exceeded quota");
    let pending = kept(&changed(3, "me/handler:2", &applied), Some(rejected));
    assert_eq!(pending.observed_generation, Some(3));
    assert_eq!(applied_generation(&pending), Some(2));
    let pending = kept(&changed(3, "me/handler:2", &pending), None);
    assert_eq!(applied_generation(&pending), Some(2), "still not applied");
    let pending = kept(&changed(4, "me/handler:3", &pending), None);
    assert_eq!(applied_generation(&pending), Some(2), "changed again");
    let invalid = changed(5, "", &pending);
    assert!(invalid.desired.is_err());
    let invalid = kept(&invalid, None);
    assert_eq!(
        applied_generation(&invalid),
        Some(2),
        "changed to an invalid spec"
    );

    let reverted = kept(&changed(5, IMAGE, &pending), None);
    assert_eq!(applied_generation(&reverted), None, "changed back");
    let mut now = changed(4, "me/handler:3", &pending);
    let status = report(&now, running(&now)).status;
    assert_eq!(applied_generation(&status), None, "applied");
    now.previous = status;
    let template_of_another_installation = changed(4, "me/handler:4", &now.previous);
    let status = kept(&template_of_another_installation, None);
    assert_eq!(applied_generation(&status), None, "the spec is the same");
}
