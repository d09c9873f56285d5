//! A binding as the webhook knows it.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decision::{Reason, ReviewPath};
use super::gate::Gate;
use super::plan::{BoundPlan, PlanInputs};
use crate::api::{AsyncActorSpec, BindingStrategy, InjectionStatus, ModeSpec, ResolvedTarget};
use crate::config::{Settings, TransportsConfig};
use crate::resolve::{PodMatch, is_open_ended, pods_of};
use crate::validate::{Subject, Write, check, joined};

/// A binding, with everything that a review needs of it.
#[derive(Debug, PartialEq)]
pub struct BoundActor {
    /// Namespace of the actor and of its pods.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was created: of two that match a pod, the older counts (BIND-45).
    pub created: Option<Time>,
    /// Its pods.
    pub pods: PodMatch,
    /// Whether no pod may start without the sidecar.
    pub required: bool,
    /// Its pods may belong to objects that its own webhook entry does not name yet, so the entry of the optional ones is
    /// asked about them, too (SAFE-32).
    pub open_ended: bool,
    /// Whether pods get it yet, while the binding is in force.
    pub gate: Gate,
    /// Whether pods get something from it.
    pub state: State,
}

/// Whether pods get something from a binding.
#[derive(Debug, PartialEq)]
pub enum State {
    /// They get this.
    InForce(Box<BoundPlan>),
    /// They pass untouched, for this reason.
    NotInForce(Reason),
    /// Its spec or its transport cannot be used; what to do about it.
    Unusable(String),
}

/// What a [`BoundActor`] is made from.
#[derive(Clone, Copy)]
pub struct ActorInputs<'a> {
    /// Namespace of the actor.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// When it was created.
    pub created: Option<&'a Time>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its spec.
    pub spec: &'a AsyncActorSpec,
    /// Its annotation `eks.amazonaws.com/role-arn`.
    pub role_arn: Option<&'a str>,
    /// Whether its status has `boundSince` (BIND-3).
    pub bound: bool,
    /// Its `status.injection`.
    pub injection: Option<&'a InjectionStatus>,
    /// Its `status.resolvedTarget`.
    pub resolved: Option<&'a ResolvedTarget>,
    /// The configured transports.
    pub transports: &'a TransportsConfig,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// Hash of the `ConfigMap` with script and adapters, as mounted (ROLL-8).
    pub scripts_hash: &'a str,
}

impl BoundActor {
    /// The binding, if the actor is one of a kind that can be bound.
    #[must_use]
    pub fn new(inputs: &ActorInputs<'_>) -> Option<Self> {
        let Ok(ModeSpec::Binding(binding)) = inputs.spec.mode() else {
            return None;
        };
        let state = state(inputs, binding.strategy)?;
        let gate = match &state {
            State::InForce(plan) => Gate::of(inputs.injection, &plan.hash().actor),
            State::NotInForce(_) | State::Unusable(_) => Gate::Open,
        };
        Some(Self {
            namespace: inputs.namespace.to_owned(),
            name: inputs.name.to_owned(),
            uid: inputs.uid.to_owned(),
            created: inputs.created.cloned(),
            pods: pods_of(binding.target, inputs.resolved),
            required: binding.required,
            open_ended: is_open_ended(binding.target),
            gate,
            state,
        })
    }

    /// The path that serves it.
    #[must_use]
    pub fn path(&self) -> ReviewPath {
        if self.required {
            ReviewPath::Required
        } else {
            ReviewPath::Optional
        }
    }

    /// Whether reviews that come by this path are its own.
    #[must_use]
    pub fn is_served_by(&self, path: ReviewPath) -> bool {
        path == self.path() || (self.open_ended && path == ReviewPath::Optional)
    }

    /// What its pods get, while it is in force.
    #[must_use]
    pub fn plan(&self) -> Option<&BoundPlan> {
        match &self.state {
            State::InForce(plan) => Some(plan),
            State::NotInForce(_) | State::Unusable(_) => None,
        }
    }

    /// Sorts the older of two first.
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

fn state(inputs: &ActorInputs<'_>, strategy: BindingStrategy) -> Option<State> {
    let asleep = |reason| Some(State::NotInForce(reason));
    if inputs.deleting {
        return asleep(Reason::ActorDeleting);
    }
    if !inputs.bound {
        return asleep(Reason::NotBoundYet);
    }
    if strategy == BindingStrategy::Template {
        return asleep(Reason::StrategyTemplate);
    }
    let broken = check(&Subject {
        name: inputs.name,
        namespace: inputs.namespace,
        spec: inputs.spec,
        role_arn: inputs.role_arn,
        write: Write::Stored,
        transports: inputs.transports,
        privileged_sidecars: inputs.settings.privileged_sidecars,
    });
    if !broken.is_empty() {
        return Some(State::Unusable(joined(&broken)));
    }
    let transport = match inputs.transports.usable(&inputs.spec.transport) {
        Ok(transport) => transport,
        Err(why) => return Some(State::Unusable(format!("spec.transport: {why}"))),
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
    Some(State::InForce(Box::new(plan)))
}
