//! Unknown kinds: finds their workload by following owner references (RES-3, RES-24).

use serde_json::Value;

use super::fields::{Fields, Read, waiting};
use super::owned::{
    DEPLOYMENT, LEADER_WORKER_SET, ReachedWorkload, STATEFUL_SET, TRAVERSED_KINDS,
    group_restart_caveat, is_workload, selector_of, workloads_below,
};
use super::server::template_server;
use super::{
    Caveat, CaveatReason, ContainerShape, GroupKind, ObjectRef, OwnerRule, PodMatch, Related,
    Resolution, Resolver, RolloutMethod, Scale, Server, Target, ambiguous, plain,
};

pub(super) static GENERIC: Generic = Generic;

pub(super) struct Generic;

impl Resolver for Generic {
    fn group_kind(&self) -> GroupKind<'static> {
        super::ANY
    }

    /// Without the workload nothing identifies the pods.
    fn unresolved_pods(&self, _: &str) -> PodMatch {
        PodMatch::nothing()
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &TRAVERSED_KINDS
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server {
        plain::server(containers, main)
    }
}

impl Generic {
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let root = Fields::of(target, "the target")?;
        let itself = &root.itself;
        let is_its_own = is_workload(itself.group_kind());
        let ReachedWorkload {
            object,
            workload,
            chain,
        } = if is_its_own {
            ReachedWorkload {
                object: target,
                workload: itself.clone(),
                chain: Vec::new(),
            }
        } else {
            only_workload_below(itself, related, root.uid)?
        };
        let owner = OwnerRule::of_workload(&workload.api_version, &workload.kind, &workload.name);
        let (Some(labels), Some(owner)) = (selector_of(object), owner) else {
            return Err(waiting(format!(
                "{workload}: cannot read spec.selector; waiting until it is valid"
            )));
        };
        let kind = workload.group_kind();
        let has_template = kind == DEPLOYMENT || kind == STATEFUL_SET;
        let unknown = Caveat::new(
            CaveatReason::UnknownOwner,
            format!("{workload} belongs to {itself}, whose kind is unknown: it may revert changes"),
        );
        let own = root.owner_warning();
        let group_restart = group_restart_caveat(
            &workload,
            object,
            "set its spec.leaderWorkerTemplate.restartPolicy to None",
        );
        Ok(Target {
            pods: PodMatch { labels, owner },
            chain: std::iter::once(itself.clone()).chain(chain).collect(),
            owner: None,
            roll: if has_template {
                RolloutMethod::AnnotateTemplate(vec![workload.clone()])
            } else {
                RolloutMethod::Evict
            },
            scale: if has_template || kind == LEADER_WORKER_SET {
                Scale::Object(workload.clone())
            } else {
                Scale::refused(format!(
                    "{workload}: the operator cannot set the number of its pods; set spec.scaling.enabled to false"
                ))
            },
            server: template_server(self, object),
            adapter: None,
            warnings: own
                .into_iter()
                .chain((!is_its_own).then_some(unknown))
                .chain(group_restart)
                .collect(),
            workload,
        })
    }
}

/// The workload below an object of an unknown kind, if it is the only one.
fn only_workload_below<'a>(
    itself: &ObjectRef,
    related: &'a Related,
    uid: &'a str,
) -> Read<ReachedWorkload<'a>> {
    let mut reached = workloads_below(related, uid);
    let Some(one) = reached.pop() else {
        return Err(waiting(format!(
            "{itself} owns no workload within four levels; waiting for one, or set spec.workloadRef to the object \
             that owns the pods in a new AsyncActor"
        )));
    };
    if reached.is_empty() {
        return Ok(one);
    }
    let all = reached.into_iter().chain([one]);
    Err(ambiguous(itself, all.map(|it| it.workload)))
}
