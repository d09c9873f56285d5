//! Bindings for the tests in this folder.

use super::{Endpoint, EntryBinding, EntrySettings, OwnerRole, Policy};
use crate::resolve::{GroupKind, Integration, OwnerRule, PodMatch, Selector, resolver};

pub(super) fn settings() -> EntrySettings {
    EntrySettings {
        release: "asya".to_owned(),
        namespace: "asya-system".to_owned(),
        endpoint: Endpoint::Service {
            name: "asya-webhook".to_owned(),
            port: 443,
        },
        ca_bundle: "PEM".to_owned(),
        owner_role: OwnerRole {
            name: "asya-webhook-anchor".to_owned(),
            uid: "anchor-uid".to_owned(),
        },
    }
}

/// A binding to the Deployment of the same name.
pub(super) fn plain(namespace: &str, name: &str) -> EntryBinding {
    EntryBinding {
        namespace: namespace.to_owned(),
        actor: name.to_owned(),
        integration: Integration::Generic,
        pods: resolver("apps", "Deployment").unresolved_pods(name),
        has_intermediate_owners: false,
        policy: Policy::Optional,
    }
}

/// A binding to a target of an integration whose pods carry these labels.
pub(super) fn labelled(
    namespace: &str,
    integration: Integration,
    labels: &[(&str, &str)],
) -> EntryBinding {
    let kind = GroupKind {
        group: "apps",
        kind: "StatefulSet",
    };
    EntryBinding {
        integration,
        pods: PodMatch {
            labels: Selector::of_labels(labels.iter().copied()),
            owner: OwnerRule::Kind(kind),
        },
        ..plain(namespace, "labelled")
    }
}

pub(super) fn required(binding: EntryBinding, verified: bool) -> EntryBinding {
    EntryBinding {
        policy: Policy::Required { verified },
        ..binding
    }
}
