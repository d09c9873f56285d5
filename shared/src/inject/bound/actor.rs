//! A binding, prepared for reviews by the webhook.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decision::InjectionReason;
use super::plan::{BoundPlan, PlanInputs};
use super::probe_result::ProbeResult;
use crate::api::{AsyncActorSpec, BindingStrategy, InjectionStatus, ModeSpec, ResolvedTarget};
use crate::config::{Settings, TransportsConfig};
use crate::resolve::{IntermediateOwners, PodMatch, pods_of, pods_with_intermediates};
use crate::validate::{Recorded, Subject, Write, check, joined};

/// A binding, with everything that a review needs.
#[derive(Debug, PartialEq)]
pub struct BoundActor {
    /// Namespace of the actor and of its pods.
    pub namespace: String,
    /// Name of the actor.
    pub name: String,
    /// UID of the actor.
    pub uid: String,
    /// Creation time: if two actors match a pod, the older one wins (BIND-45).
    pub created: Option<Time>,
    /// Which pods it binds.
    pub pods: PodMatch,
    /// Whether its pods must not start without the sidecar.
    pub required: bool,
    /// Whether a dry run allows injection; only relevant while the binding is in effect.
    pub probe_result: ProbeResult,
    /// Whether, and how, pods are injected.
    pub state: InjectionState,
}

/// Whether, and how, a binding injects pods.
#[derive(Debug, PartialEq)]
pub enum InjectionState {
    /// Pods are injected according to this plan.
    InEffect(Box<BoundPlan>),
    /// Pods are admitted unchanged, for this reason.
    NotInEffect(InjectionReason),
    /// The spec or the transport is unusable; the text says what to do about it.
    Unusable(String),
}

/// Inputs of a [`BoundActor`].
#[derive(Clone, Copy)]
pub struct ActorInputs<'a> {
    /// Namespace of the actor.
    pub namespace: &'a str,
    /// Name of the actor.
    pub name: &'a str,
    /// UID of the actor.
    pub uid: &'a str,
    /// When the actor was created.
    pub created: Option<&'a Time>,
    /// Whether the actor is being deleted.
    pub deleting: bool,
    /// Spec of the actor.
    pub spec: &'a AsyncActorSpec,
    /// The actor's `eks.amazonaws.com/role-arn` annotation.
    pub role_arn: Option<&'a str>,
    /// Whether `status.boundSince` is set (BIND-3).
    pub bound: bool,
    /// The actor's `status.injection`.
    pub injection: Option<&'a InjectionStatus>,
    /// The actor's `status.resolvedTarget`.
    pub resolved: Option<&'a ResolvedTarget>,
    /// The configured transports.
    pub transports: &'a TransportsConfig,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// Hash of the `ConfigMap` with runtime script and adapters, as mounted (ROLL-8).
    pub scripts_hash: &'a str,
    /// Intermediate owners of the actor's namespace, such as `RayCluster`s; `None` if they are unknown.
    pub clusters: Option<&'a IntermediateOwners>,
}

impl BoundActor {
    /// Builds the binding; `None` for a standalone actor.
    #[must_use]
    pub fn new(inputs: &ActorInputs<'_>) -> Option<Self> {
        let Ok(ModeSpec::Binding(binding)) = inputs.spec.mode() else {
            return None;
        };
        let state = state(inputs, binding.strategy)?;
        let probe_result = match &state {
            InjectionState::InEffect(plan) => {
                ProbeResult::from_status(inputs.injection, &plan.hash().actor)
            }
            InjectionState::NotInEffect(_) | InjectionState::Unusable(_) => ProbeResult::Verified,
        };
        Some(Self {
            namespace: inputs.namespace.to_owned(),
            name: inputs.name.to_owned(),
            uid: inputs.uid.to_owned(),
            created: inputs.created.cloned(),
            pods: match inputs.clusters {
                Some(clusters) => {
                    pods_with_intermediates(binding.target, inputs.resolved, clusters)
                }
                None => pods_of(binding.target, inputs.resolved),
            },
            required: binding.required,
            probe_result,
            state,
        })
    }

    /// The plan, while the binding is in effect.
    #[must_use]
    pub fn plan(&self) -> Option<&BoundPlan> {
        match &self.state {
            InjectionState::InEffect(plan) => Some(plan),
            InjectionState::NotInEffect(_) | InjectionState::Unusable(_) => None,
        }
    }

    /// Sort key: the older actor first.
    pub(super) fn age(&self) -> impl Ord + '_ {
        (self.created.is_none(), &self.created, &self.uid)
    }
}

/// `namespace/name`
impl fmt::Display for BoundActor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

fn state(inputs: &ActorInputs<'_>, strategy: BindingStrategy) -> Option<InjectionState> {
    let not_in_effect = |reason| Some(InjectionState::NotInEffect(reason));
    if inputs.deleting {
        return not_in_effect(InjectionReason::ActorDeleting);
    }
    if !inputs.bound {
        return not_in_effect(InjectionReason::NotBoundYet);
    }
    if strategy == BindingStrategy::Template {
        return not_in_effect(InjectionReason::StrategyTemplate);
    }
    let broken = check(&Subject {
        name: inputs.name,
        namespace: inputs.namespace,
        spec: inputs.spec,
        role_arn: inputs.role_arn,
        write: Write::Stored(Recorded::default()),
        transports: inputs.transports,
        privileged_sidecars: inputs.settings.privileged_sidecars,
    });
    if !broken.is_empty() {
        return Some(InjectionState::Unusable(joined(&broken)));
    }
    let transport = match inputs.transports.usable(&inputs.spec.transport) {
        Ok(transport) => transport,
        Err(why) => return Some(InjectionState::Unusable(format!("spec.transport: {why}"))),
    };
    let plan = BoundPlan::new(&PlanInputs {
        namespace: inputs.namespace,
        actor: inputs.name,
        uid: inputs.uid,
        spec: inputs.spec,
        role_arn: inputs.role_arn,
        transport,
        settings: inputs.settings,
        scripts_hash: inputs.scripts_hash,
    })?;
    let limits = inputs.injection.map_or(&[][..], |it| &it.limits);
    let plan = plan
        .for_target(inputs.resolved)
        .with_limits(limits, &inputs.settings.sidecar_resources);
    Some(InjectionState::InEffect(Box::new(plan)))
}
