//! Giving up our fields makes the target's controller replace its pods.

use super::*;

/// SAFE-14: with strategy Recreate, not even for pods without the sidecar.
#[test]
fn fields_are_kept_while_giving_them_up_would_stop_all_pods() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let some = [pod("a"), pod("b")];
    let step = |pods, desired_replicas, in_template: bool, recreates| {
        let object = TargetObject {
            roll_value: (!in_template).then(|| "x".to_owned()),
            in_template,
            recreates,
            desired_replicas: Some(desired_replicas),
            ..TargetObject::default()
        };
        decide(&UnbindInputs {
            pods,
            method: Some(&template),
            objects: &[object],
            ..base()
        })
    };
    for in_template in [false, true] {
        for pods in [&some[..], &[]] {
            let UnbindStep::Blocked(text) = step(pods, 2, in_template, true) else {
                panic!("{in_template} {pods:?}");
            };
            assert!(
                text.contains("Recreate would stop all of its pods"),
                "{text}"
            );
        }
        assert_eq!(step(&some, 1, in_template, true), UnbindStep::GiveUp);
        assert_eq!(step(&some, 2, in_template, false), UnbindStep::GiveUp);
    }
}

/// SAFE-15: the slot is held until pods without the sidecar have been replaced, too, but not for longer.
#[test]
fn unbinding_waits_until_the_pods_that_it_restarted_are_replaced() {
    let step = |rolling, since_last_action: Option<u64>, limit: Option<u64>| {
        let object = TargetObject {
            rolling,
            ..TargetObject::default()
        };
        decide(&UnbindInputs {
            objects: &[object],
            since_last_action: since_last_action.map(Duration::from_secs),
            limit: limit.map(Duration::from_secs),
            ..base()
        })
    };
    let limit = Some(600);
    assert_eq!(step(true, Some(599), limit), UnbindStep::InProgress);
    assert_eq!(step(true, Some(600), limit), UnbindStep::Done);
    assert_eq!(step(true, Some(3_599), None), UnbindStep::InProgress);
    assert_eq!(step(true, Some(3_600), None), UnbindStep::Done);
    assert_eq!(step(false, Some(1), limit), UnbindStep::Done);
    assert_eq!(
        step(true, None, limit),
        UnbindStep::Done,
        "not because of us"
    );
}
