//! Quotas that reject the pod of a dry run (SAFE-7).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;
use serde_json::json;

use super::{INJECTED_CONTAINERS, unbound_owner};
use crate::inject::bound::strip_injected;
use crate::quantity::Quantity;

const EXCEEDED: &str = "exceeded quota";

/// Whether a quota caused this response of the API server.
#[must_use]
pub fn is_quota_rejection(message: &str) -> bool {
    message.contains(EXCEEDED) || message.contains("failed quota")
}

/// What a new pod of the target replaces, which frees that pod's share of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: the target lacks a pod, so the quota must have room for the whole pod.
    #[default]
    Nothing,
    /// A pod of the target, which may be without the sidecar.
    Pod,
    /// A pod with the sidecar that the new one gets.
    SamePod,
    /// No pod: the target has none and wants none, so what its containers will request may not be known.
    NoPod,
}

/// A variant of the pod whose dry run explains a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Without the target's own requests: is there room for what injection adds?
    WithoutRequests,
    /// Without the sidecar: would the quota reject the target's own pod, too?
    WithoutSidecar,
}

impl Variant {
    /// Whether the pod has the sidecar.
    #[must_use]
    pub fn has_sidecar(self) -> bool {
        match self {
            Self::WithoutRequests => true,
            Self::WithoutSidecar => false,
        }
    }

    /// The pod to dry-run.
    #[must_use]
    pub fn apply(self, pod: &Pod) -> Pod {
        match self {
            Self::WithoutRequests => without_requests(pod),
            Self::WithoutSidecar => without_sidecar(pod),
        }
    }
}

/// The conclusion from the dry runs so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaConclusion<'a> {
    /// This variant must be dry-run first.
    DryRun(Variant),
    /// The sidecar takes nothing from the quota that the target needs.
    Admitted,
    /// The pod is rejected with this message.
    Rejected(&'a str),
}

/// The API server's response to a variant.
#[derive(Clone, Debug)]
enum DryRunResult {
    Admitted,
    Rejected(String),
}

/// A rejected dry run of a pod with the sidecar, with the results of its variants (SAFE-7).
#[derive(Clone, Debug)]
pub struct Rejection {
    first: String,
    replaced: Replaced,
    without_requests: Option<DryRunResult>,
    without_sidecar: Option<DryRunResult>,
}

impl Rejection {
    /// The API server has rejected the pod with the message `first`.
    #[must_use]
    pub fn new(first: String, replaced: Replaced) -> Self {
        Self {
            first,
            replaced,
            without_requests: None,
            without_sidecar: None,
        }
    }

    /// Records the message with which the API server has rejected the variant; `None` if it admits that.
    pub fn record(&mut self, variant: Variant, rejection: Option<String>) {
        let result = rejection.map_or(DryRunResult::Admitted, DryRunResult::Rejected);
        match variant {
            Variant::WithoutRequests => self.without_requests = Some(result),
            Variant::WithoutSidecar => self.without_sidecar = Some(result),
        }
    }

    /// Whether the sidecar is the reason, or what to dry-run next.
    #[must_use]
    pub fn conclusion(&self) -> QuotaConclusion<'_> {
        let first = &*self.first;
        match self.replaced {
            _ if !is_quota_rejection(first) => QuotaConclusion::Rejected(first),
            Replaced::SamePod if Usage::of(first).is_some_and(|it| it.is_within_limits()) => {
                QuotaConclusion::Admitted
            }
            Replaced::Nothing => self.unless_sidecar_is_the_reason(first, self.room()),
            Replaced::Pod | Replaced::SamePod | Replaced::NoPod => self.room(),
        }
    }

    /// Whether the quota has room for what injection adds.
    fn room(&self) -> QuotaConclusion<'_> {
        let second = match &self.without_requests {
            None => return QuotaConclusion::DryRun(Variant::WithoutRequests),
            Some(DryRunResult::Admitted)
                if self.first.contains(EXCEEDED) || self.replaced == Replaced::NoPod =>
            {
                return QuotaConclusion::Admitted;
            }
            // The quota wants requests or limits that the target's own containers do not have, so it would reject the
            // replacement of a running pod.
            Some(DryRunResult::Admitted) => return QuotaConclusion::Rejected(&self.first),
            Some(DryRunResult::Rejected(second)) => second,
        };
        match after_second_rejection(&self.first, second) {
            None => QuotaConclusion::Admitted,
            // The quota counts pods, and has no room for one more, with the sidecar or without.
            Some(reason) if Usage::of(reason).is_some_and(|it| it.is_full_of_pods()) => {
                self.unless_sidecar_is_the_reason(reason, QuotaConclusion::Admitted)
            }
            Some(reason) => QuotaConclusion::Rejected(reason),
        }
    }

    /// `otherwise`, if a quota rejects the pod without the sidecar, too.
    fn unless_sidecar_is_the_reason<'a>(
        &'a self,
        reason: &'a str,
        otherwise: QuotaConclusion<'a>,
    ) -> QuotaConclusion<'a> {
        match &self.without_sidecar {
            None => QuotaConclusion::DryRun(Variant::WithoutSidecar),
            Some(DryRunResult::Rejected(message)) if is_quota_rejection(message) => otherwise,
            Some(_) => QuotaConclusion::Rejected(reason),
        }
    }
}

/// Why a pod is rejected after a quota rejected its first dry run, and the API server its second one, without requests,
/// with the message `second`; `None` if the quota has room for what injection adds.
fn after_second_rejection<'a>(first: &'a str, second: &'a str) -> Option<&'a str> {
    if is_quota_rejection(second) {
        return Some(second);
    }
    // Quotas are evaluated last, so everything else has admitted the pod as it is.
    (!first.contains(EXCEEDED)).then_some(first)
}

/// What a pod takes of a quota that it exceeds, from the API server's message:
/// `exceeded quota: NAME, requested: pods=1, used: pods=5, limited: pods=5`. It lists only exceeded resources.
#[derive(Debug)]
struct Usage<'a> {
    requested: Vec<&'a str>,
    used: Vec<Option<Quantity>>,
    limited: Vec<Option<Quantity>>,
}

impl<'a> Usage<'a> {
    fn of(message: &'a str) -> Option<Self> {
        let (_, exceeded) = message.split_once(EXCEEDED)?;
        let (_, amounts) = exceeded.split_once(", requested: ")?;
        let (requested, amounts) = amounts.split_once(", used: ")?;
        let (used, limited) = amounts.split_once(", limited: ")?;
        let quantities = |list: &str| {
            let amounts = list
                .split(',')
                .map(|entry| Quantity::parse(entry.split_once('=')?.1));
            amounts.collect()
        };
        let names = requested.split(',').filter_map(|it| it.split_once('='));
        Some(Self {
            requested: names.map(|(name, _)| name).collect(),
            used: quantities(used),
            limited: quantities(limited),
        })
    }

    /// Whether the quota is not already exceeded, so that a deleted pod makes room.
    fn is_within_limits(&self) -> bool {
        let pairs = self.used.iter().zip(&self.limited);
        self.used.len() == self.limited.len()
            && pairs
                .map(|(used, limited)| used.zip(*limited))
                .all(|pair| pair.is_some_and(|(used, limited)| used <= limited))
    }

    /// Whether only the number of pods is exceeded, by the new one.
    fn is_full_of_pods(&self) -> bool {
        let counts_pods = |name: &&str| ["pods", "count/pods"].contains(name);
        !self.requested.is_empty()
            && self.requested.iter().all(counts_pods)
            && self.is_within_limits()
    }
}

/// Sets requests and limits of all containers to zero, except of injected ones, which a pod template may already
/// contain. A dry run counts against a quota that the target may already use up, so this variant checks only whether
/// the quota has room for what injection adds.
#[must_use]
pub fn without_requests(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        spec.resources = None;
        let init = spec.init_containers.iter_mut().flatten();
        let all = spec.containers.iter_mut().chain(init);
        for container in all.filter(|container| !INJECTED_CONTAINERS.contains(&&*container.name)) {
            let zero =
                ["cpu", "memory"].map(|name| (name.to_owned(), resource::Quantity("0".to_owned())));
            let zero = Some(BTreeMap::from(zero));
            container.resources = Some(ResourceRequirements {
                requests: zero.clone(),
                limits: zero,
                ..ResourceRequirements::default()
            });
        }
    }
    pod
}

/// The pod as the target's controller would create it if nothing were bound. Its owner matches no binding, so that the
/// webhook leaves it unchanged, even if the sidecar is required.
fn without_sidecar(pod: &Pod) -> Pod {
    let mut pod = json!(pod);
    strip_injected(&mut pod);
    pod["metadata"]["ownerReferences"] = json!([unbound_owner()]);
    // An empty pod would be rejected, which leaves the first answer.
    serde_json::from_value(pod).unwrap_or_default()
}

#[cfg(test)]
mod tests;
