//! Evictions that the API server refused.

use super::limits::{stateful_set, unready};
use super::*;
use crate::binding::rollout_slots::RefusedEviction;

/// ROLL-4 (c): an Event of a pod is no reason to request it again.
#[test]
fn refused_eviction_is_not_requested_again_before_its_time() {
    let pods = [pod("a"), pod("b")];
    let plain = objects(None);
    let (stateful_set, a_unready) = ([stateful_set()], unready("a"));
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let now = |second| Timestamp::from_second(second).unwrap();
    let refused = UnbindInputs {
        pods: &pods,
        method: Some(&template),
        objects: &plain,
        limits: UnbindLimits {
            has_slot: true,
            refused_eviction: Some(RefusedEviction {
                message: "the budget allows none".to_owned(),
                retry_at: now(100),
            }),
            ..UnbindLimits::default()
        },
        now: now(99),
        ..base()
    };
    let of_unready_pod = UnbindInputs {
        objects: &stateful_set,
        availability: Some(&a_unready),
        ..refused.clone()
    };
    for (inputs, later) in [
        (refused, UnbindStep::Evict(pod("b"))),
        (of_unready_pod, UnbindStep::EvictUnready(pod("a"))),
    ] {
        let waits = UnbindStep::Blocked("the budget allows none".to_owned());
        assert_eq!(decide(&inputs), waits);
        let due = UnbindInputs {
            now: now(100),
            ..inputs
        };
        assert_eq!(decide(&due), later);
    }
}
