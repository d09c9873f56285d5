//! When a target that the queue scaled to zero gets pods again after scaling was switched off (SO-6, SAFE-24). Whatever
//! would replace its first pod has to happen before.

use asya_shared::inject::bound::Gate;
use asya_shared::resolve::{Claim, ObjectRef};
use k8s_openapi::api::autoscaling::v1::Scale;

use super::claim::is_due;
use super::roll::facts::Rolling;
use super::steps::Wake;
use crate::reconcile::model::observed::Observed;

/// Whether to wake a target that nothing scales any more.
#[derive(Clone, Debug, PartialEq)]
pub enum Waking {
    /// Scale it up, if it has no pods.
    Now(Wake),
    /// Not yet: its pods would be replaced at once.
    Later,
}

/// Inputs to [`decide`].
#[derive(Clone, Debug)]
pub struct WakeFacts<'a> {
    /// The claim on the target's owner, if there has to be one.
    pub claim: Option<&'a Claim>,
    /// Rollout of pods that started before the binding.
    pub roll: Option<&'a Rolling>,
    /// Whether new pods get the sidecar; `None` where the webhook does not inject it.
    pub gate: Option<&'a Gate>,
    /// This reconcile makes a dry run that decides the gate.
    pub probes: bool,
}

/// Decides for one target.
pub fn decide(facts: &WakeFacts<'_>, wake: Wake) -> Waking {
    let claim_changes = facts.claim.is_some_and(|claim| {
        if claim.is_made {
            // The claim is removed in this reconcile, or as soon as another rollout has ended.
            is_due(facts.roll) || matches!(facts.roll, Some(Rolling::Wait(..)))
        } else {
            !claim.is_followed
        }
    });
    let gate_opens = facts.probes && facts.gate == Some(&Gate::Unproved);
    if claim_changes || gate_opens {
        Waking::Later
    } else {
        Waking::Now(wake)
    }
}

/// Whether an object with this live scale has to be woken.
pub fn is_asleep(scale: &Scale) -> bool {
    let replicas = scale.spec.as_ref().and_then(|spec| spec.replicas);
    replicas.unwrap_or(0) <= 0
}

/// Plans to wake `object` if status says that the actor's queue scaled it.
pub fn wake(observed: &Observed, object: &ObjectRef) -> Option<Wake> {
    observed.previous.scaled_object_ref.as_ref()?;
    let spec = observed.desired.as_ref().ok().map(|desired| &desired.spec);
    let scaling = spec.and_then(|spec| spec.scaling.as_ref());
    Some(Wake {
        object: object.clone(),
        replicas: scaling.map_or(1, |it| it.min_replicas_in_force().max(1)),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_shared::inject::bound::Gate;
    use asya_shared::resolve::{Claim, ObjectRef};

    use super::{WakeFacts, Waking, decide};
    use crate::fault::Reason;
    use crate::reconcile::plan::roll::facts::Rolling;
    use crate::reconcile::plan::steps::Wake;

    /// SAFE-24, SO-6
    #[test]
    fn target_at_zero_is_woken_after_everything_that_would_replace_its_first_pod() {
        let claim = |is_made: bool, is_followed: bool| {
            let owner = ObjectRef::default();
            Some(Claim {
                owner,
                is_made,
                is_followed,
            })
        };
        let rest = Some(Rolling::Rest);
        let waits = Some(Rolling::Wait(
            Reason::RolloutWaiting,
            String::new(),
            Duration::from_secs(5),
        ));
        let halted = Some(Rolling::Halt(String::new()));
        let refused = Gate::Refused("quota".to_owned());
        let wake = Wake {
            object: ObjectRef::default(),
            replicas: 1,
        };
        for (what, claim, roll, gate, probes, now) in [
            ("no owner is told", None, &rest, Gate::Open, false, true),
            (
                "the claim is given up first",
                claim(true, true),
                &rest,
                Gate::Open,
                false,
                false,
            ),
            (
                "as soon as that may be",
                claim(true, true),
                &waits,
                Gate::Open,
                false,
                false,
            ),
            (
                "it is never given up",
                claim(true, true),
                &halted,
                Gate::Open,
                false,
                true,
            ),
            (
                "the owner has yet to write",
                claim(false, false),
                &rest,
                Gate::Open,
                false,
                false,
            ),
            (
                "the owner has written",
                claim(false, true),
                &rest,
                Gate::Open,
                false,
                true,
            ),
            (
                "a dry run opens the gate",
                None,
                &rest,
                Gate::Unproved,
                true,
                false,
            ),
            (
                "the webhook is away",
                None,
                &rest,
                Gate::Unproved,
                false,
                true,
            ),
            ("pods get no sidecar", None, &rest, refused, true, true),
        ] {
            let told = decide(
                &WakeFacts {
                    claim: claim.as_ref(),
                    roll: roll.as_ref(),
                    gate: Some(&gate),
                    probes,
                },
                wake.clone(),
            );
            let wanted = if now {
                Waking::Now(wake.clone())
            } else {
                Waking::Later
            };
            assert_eq!(told, wanted, "{what}");
        }
    }
}
