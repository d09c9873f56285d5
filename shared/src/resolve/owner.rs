//! Workloads owned by an object that should be bound instead (RES-4).

use serde_json::Value;

use super::owned::{LEADER_WORKER_SET, REVISION, SERVICE};
use super::{
    Caveat, CaveatReason, Finding, FindingReason, Integration, ObjectRef, Related, Resolution,
    Resolver, RolloutMethod, Scale, controller_of, known,
};

/// How a workload rolls and scales according to its owner.
pub(super) struct RollAndScale {
    pub(super) roll: RolloutMethod,
    pub(super) scale: Scale,
    pub(super) warnings: Vec<Caveat>,
}

impl RollAndScale {
    /// For a workload whose owner would revert any other way to replace its pods. `why` it is not scaled; `None` if
    /// that is because the owner may set its replicas.
    fn by_eviction(workload: &ObjectRef, owner: &ObjectRef, why: Option<String>) -> Self {
        let why = why.unwrap_or_else(|| {
            format!(
                "{workload} belongs to {owner}, which may set its replicas; set spec.workloadRef to {owner} in a new \
                 AsyncActor, or set spec.scaling.enabled to false"
            )
        });
        Self {
            roll: RolloutMethod::Evict,
            scale: Scale::refused(why),
            warnings: vec![has_owner(workload, owner)],
        }
    }
}

/// The warning about an object that belongs to another one.
pub(super) fn has_owner(object: &ObjectRef, owner: &ObjectRef) -> Caveat {
    let advice = match Integration::of(owner.group_kind()) {
        Integration::Generic => "its owner may revert changes".to_owned(),
        _ => format!("set spec.workloadRef to {owner} instead, in a new AsyncActor"),
    };
    Caveat::new(
        CaveatReason::HasOwner,
        format!("{object} belongs to {owner}: {advice}"),
    )
}

/// Determines how a plain workload rolls and scales from its owner. `Err` if the owner, and thus the workload, cannot
/// be bound.
pub(super) fn roll_and_scale(
    target: &Value,
    workload: &ObjectRef,
    owner: Option<&ObjectRef>,
    related: &Related,
) -> Result<RollAndScale, Finding> {
    let without_owner = |warnings| RollAndScale {
        roll: RolloutMethod::AnnotateTemplate(vec![workload.clone()]),
        scale: Scale::Object(workload.clone()),
        warnings,
    };
    let Some(direct) = owner else {
        return Ok(without_owner(Vec::new()));
    };
    let Some((object, resolver)) = nearest_known_owner(target, related) else {
        let kind = direct.group_kind();
        let sets_replicas = Integration::of(kind) != Integration::Generic
            || kind == REVISION
            || kind == LEADER_WORKER_SET;
        return Ok(if sets_replicas {
            RollAndScale::by_eviction(workload, direct, None)
        } else {
            without_owner(vec![has_owner(workload, direct)])
        });
    };
    let Some(owner) = ObjectRef::of(object) else {
        return Ok(RollAndScale::by_eviction(workload, direct, None));
    };
    match resolver.resolve(object, &owner_chain(target, related)) {
        Resolution::Found(found) => {
            let mut warnings = vec![has_owner(workload, &owner)];
            warnings.extend(found.warnings);
            Ok(RollAndScale {
                roll: match found.roll {
                    RolloutMethod::AnnotateTemplate(_) => {
                        RolloutMethod::AnnotateTemplate(vec![workload.clone()])
                    }
                    other => other,
                },
                scale: found.scale,
                warnings,
            })
        }
        Resolution::Refused(finding) if finding.reason == FindingReason::UnsupportedTarget => {
            Err(finding)
        }
        // the owner's resolver refers to another workload, or cannot resolve the owner yet
        Resolution::Waiting(finding) | Resolution::Refused(finding) => {
            let why = format!(
                "{workload} is not the workload by which {owner} scales: {}",
                finding.message
            );
            Ok(RollAndScale::by_eviction(workload, &owner, Some(why)))
        }
    }
}

/// The nearest owner of a known kind. Continues above a Knative Service, which an `InferenceService` may own and write.
fn nearest_known_owner<'a>(
    target: &Value,
    related: &'a Related,
) -> Option<(&'a Value, &'static dyn Resolver)> {
    let mut found = None;
    let mut owner = controller_of(target);
    for object in &related.owners {
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        let expected = owner.as_ref().and_then(|it| it.uid.as_deref());
        if uid.is_none() || uid != expected {
            break;
        }
        let itself = ObjectRef::of(object)?;
        let kind = itself.group_kind();
        match known(kind) {
            Some(resolver) => found = Some((object, resolver)),
            None if found.is_some() => break,
            None => {}
        }
        if found.is_some() && kind != SERVICE {
            break;
        }
        owner = controller_of(object);
    }
    found
}

/// The target and its owners, in the form that the owner's resolver expects.
fn owner_chain(target: &Value, related: &Related) -> Related {
    let mut chain = Related::default();
    for object in related.owners.iter().chain([target]) {
        let Some(itself) = ObjectRef::of(object) else {
            continue;
        };
        let kinds = super::all_related();
        if let Some(kind) = kinds.into_iter().find(|it| *it == itself.group_kind()) {
            chain.objects.entry(kind).or_default().push(object.clone());
        }
    }
    chain
}
