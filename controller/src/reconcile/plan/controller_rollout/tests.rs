use super::RolloutBlocker;
use crate::reconcile::model::rollout::TargetObject;

type Rule<'a> = &'a dyn Fn(&[TargetObject]) -> Option<RolloutBlocker>;

/// One of whose three pods is not ready, and none of whose properties forbids a rollout.
fn object(change: impl Fn(&mut TargetObject)) -> [TargetObject; 2] {
    let mut object = TargetObject {
        desired_replicas: Some(3),
        ready: 2,
        ..TargetObject::default()
    };
    change(&mut object);
    [TargetObject::default(), object]
}

/// ROLL-2 (d), SAFE-13, SAFE-14
#[test]
fn controller_rolls_no_pods_where_that_would_cost_more_than_its_user_allows() {
    let budget = |objects: &[TargetObject]| RolloutBlocker::exceeds_budget(objects, Some("models"));
    let no_budget = |objects: &[TargetObject]| RolloutBlocker::exceeds_budget(objects, None);
    let rules: [Rule<'_>; 4] = [
        &|objects| RolloutBlocker::loses_ready_pod(objects),
        &|objects| RolloutBlocker::stops_all_pods(objects),
        &budget,
        &no_budget,
    ];
    for (case, objects, expected) in [
        ("plain", object(|_| ()), [false; 4]),
        (
            "deletes a pod first",
            object(|it| it.deletes_pod_first = true),
            [true, false, false, false],
        ),
        (
            "recreates several",
            object(|it| it.recreates = true),
            [false, true, false, false],
        ),
        (
            "recreates one",
            object(|it| (it.recreates, it.desired_replicas) = (true, Some(1))),
            [false; 4],
        ),
        (
            "reduces what is ready",
            object(|it| it.reduces_ready = true),
            [false, false, true, false],
        ),
    ] {
        let blockers = rules.map(|rule| rule(&objects));
        assert_eq!(
            blockers.clone().map(|blocker| blocker.is_some()),
            expected,
            "{case}: {blockers:?}"
        );
    }
}
