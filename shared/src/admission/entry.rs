//! One entry of the mutating configurations (CFG-3, CFG-4).

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, RuleWithOperations, ServiceReference, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::Serialize;

use super::syntax::{is_label_value, is_name, is_selector};
use super::{Endpoint, EntryBinding, EntrySettings, MUTATE_PATH, REQUIRED_PATH, expression};
use crate::hash;
use crate::names::label;
use crate::resolve::{Integration, Operator, OwnerRule, Requirement, Selector};

/// Label with its name that the API server sets on every namespace.
pub(super) const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Suffix of the name of a required binding's entry.
const REQUIRED_SUFFIX: &str = ".required.inject.asya.sh";
/// Maximum number of values of the integration's label (CFG-3).
const MAX_VALUES: usize = 50;
/// Maximum size of the pod selector in a binding's own entry, in bytes (CFG-7). Users choose selectors, and all entries
/// share a few objects.
const LARGEST_SELECTOR: usize = 4 * 1024;
/// How long the API server waits for the webhook.
const TIMEOUT_SECONDS: i32 = 5;

/// The entry for an integration's optional bindings; `None` if no pod can match.
pub(super) fn integration_entry(
    settings: &EntrySettings,
    integration: Integration,
    bindings: &[&EntryBinding],
) -> Option<MutatingWebhook> {
    let mut entry = shared_entry(settings, integration, bindings, "", MUTATE_PATH)?;
    let selector = entry.object_selector.get_or_insert_default();
    let opted_out = requirement(label::INJECT, "NotIn", ["false"]);
    selector
        .match_expressions
        .get_or_insert_default()
        .push(opted_out);
    Some(entry)
}

/// The entry for an integration's required bindings that have no entry of their own, because there are too many;
/// `None` if no pod can match.
pub(super) fn unenforced_entry(
    settings: &EntrySettings,
    integration: Integration,
    bindings: &[&EntryBinding],
) -> Option<MutatingWebhook> {
    shared_entry(
        settings,
        integration,
        bindings,
        ".unenforced",
        REQUIRED_PATH,
    )
}

/// An entry for several bindings of one integration.
fn shared_entry(
    settings: &EntrySettings,
    integration: Integration,
    bindings: &[&EntryBinding],
    kind: &str,
    path: &str,
) -> Option<MutatingWebhook> {
    let namespaces: BTreeSet<&str> = bindings.iter().map(|it| &*it.namespace).collect();
    let (selector, condition) = if let Some(key) = integration.label() {
        (Some(vec![label_requirement(key, bindings)?]), None)
    } else {
        let owners = bindings.iter().map(|it| &it.pods.owner);
        (None, Some(expression::owned_by(owners)?))
    };
    Some(MutatingWebhook {
        name: format!("{}{kind}.inject.asya.sh", integration.entry()),
        // Another controller's pods must start even if the webhook is down.
        failure_policy: Some("Ignore".to_owned()),
        client_config: client_config(settings, path),
        namespace_selector: Some(in_namespaces(namespaces)),
        object_selector: Some(LabelSelector {
            match_expressions: selector,
            match_labels: None,
        }),
        match_conditions: Some(conditions(settings, condition)),
        ..common()
    })
}

/// The entry of one required binding.
pub(super) enum RequiredEntry {
    /// Its own entry, which fails open.
    Own(Box<MutatingWebhook>),
    /// Its selector is too large, and nothing else would limit an entry to its pods.
    TooLarge,
    /// No pod can match.
    NoPods,
}

/// The entry for one required binding. A selector that is too large is left out, as far as the owner's name or the
/// integration's label keeps the entry narrow; the webhook decides by the full selector.
pub(super) fn required_entry(settings: &EntrySettings, binding: &EntryBinding) -> RequiredEntry {
    let pods = &binding.pods;
    let (selector, by_owner) = if pods.labels.size() > LARGEST_SELECTOR {
        let label = identity(binding).filter(|(_, value)| is_label_value(value));
        let label = label.map(|(key, value)| vec![requirement(key, "In", [value])]);
        if label.is_none() && !pods.owner.names_owners() {
            return RequiredEntry::TooLarge;
        }
        let selector = LabelSelector {
            match_expressions: label,
            match_labels: None,
        };
        (selector, pods.owner.names_owners())
    } else if is_selector(&pods.labels) {
        (label_selector(&pods.labels), needs_owner(binding))
    } else {
        return RequiredEntry::NoPods;
    };
    let condition = if by_owner {
        let Some(condition) = expression::owned_by([&pods.owner]) else {
            return RequiredEntry::NoPods;
        };
        Some(condition)
    } else {
        None
    };
    RequiredEntry::Own(Box::new(MutatingWebhook {
        name: required_entry_name(&binding.namespace, &binding.actor),
        failure_policy: Some("Ignore".to_owned()),
        client_config: client_config(settings, REQUIRED_PATH),
        namespace_selector: Some(in_namespaces([&*binding.namespace])),
        object_selector: Some(selector),
        match_conditions: Some(conditions(settings, condition)),
        ..common()
    }))
}

/// Size of an object as JSON, in bytes.
pub(super) fn json_size(object: &impl Serialize) -> usize {
    serde_json::to_vec(object).map_or(usize::MAX, |json| json.len())
}

/// Name of a required binding's entry.
#[must_use]
pub fn required_entry_name(namespace: &str, actor: &str) -> String {
    let hash = hash::of_bytes(format!("{namespace}/{actor}").as_bytes());
    format!("r-{hash}{REQUIRED_SUFFIX}")
}

/// Whether an entry is that of one required binding.
#[must_use]
pub fn is_required_entry(name: &str) -> bool {
    name.starts_with("r-") && name.ends_with(REQUIRED_SUFFIX)
}

/// Whether labels alone do not distinguish the target's pods from others.
fn needs_owner(binding: &EntryBinding) -> bool {
    binding.integration.label().is_none()
        || (identity(binding).is_none() && !matches!(binding.pods.owner, OwnerRule::Kind(_)))
}

/// The integration's label with the value that only the target's pods have.
fn identity(binding: &EntryBinding) -> Option<(&'static str, &str)> {
    let key = binding.integration.label()?;
    Some((key, binding.pods.labels.value_of(key)?))
}

/// Requires one of the label values that the bindings need, or just the label if a binding needs no value or there are
/// too many.
fn label_requirement(key: &str, bindings: &[&EntryBinding]) -> Option<LabelSelectorRequirement> {
    let mut values = BTreeSet::new();
    for binding in bindings {
        match binding.pods.labels.value_of(key) {
            Some(value) if is_label_value(value) => {
                values.insert(value);
            }
            // No pod can have this label value.
            Some(_) => {}
            None => return Some(requirement(key, "Exists", [])),
        }
    }
    match values.len() {
        0 => None,
        1..=MAX_VALUES => Some(requirement(key, "In", values)),
        _ => Some(requirement(key, "Exists", [])),
    }
}

fn common() -> MutatingWebhook {
    MutatingWebhook {
        rules: Some(vec![RuleWithOperations {
            api_groups: Some(vec![String::new()]),
            api_versions: Some(vec!["v1".to_owned()]),
            operations: Some(vec!["CREATE".to_owned()]),
            resources: Some(vec!["pods".to_owned()]),
            scope: Some("Namespaced".to_owned()),
        }]),
        match_policy: Some("Equivalent".to_owned()),
        reinvocation_policy: Some("IfNeeded".to_owned()),
        // A dry run gets the same response, and the webhook has no other effects (ADM-4).
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT_SECONDS),
        admission_review_versions: vec!["v1".to_owned()],
        ..MutatingWebhook::default()
    }
}

pub(super) fn client_config(settings: &EntrySettings, path: &str) -> WebhookClientConfig {
    let (service, url) = match &settings.endpoint {
        Endpoint::Service { name, port } => (
            Some(ServiceReference {
                namespace: settings.namespace.clone(),
                name: name.clone(),
                port: Some((*port).into()),
                path: Some(path.to_owned()),
            }),
            None,
        ),
        Endpoint::Url(base) => (None, Some(format!("{}{path}", base.trim_end_matches('/')))),
    };
    WebhookClientConfig {
        ca_bundle: Some(ByteString(settings.ca_bundle.clone().into_bytes())),
        service,
        url,
    }
}

fn conditions(settings: &EntrySettings, owner: Option<String>) -> Vec<MatchCondition> {
    let not_excluded = condition(
        "not-excluded",
        expression::not_excluded(&settings.namespace),
    );
    let owner = owner.map(|expression| condition("owned", expression));
    [not_excluded].into_iter().chain(owner).collect()
}

pub(super) fn condition(name: &str, expression: impl Into<String>) -> MatchCondition {
    MatchCondition {
        name: name.to_owned(),
        expression: expression.into(),
    }
}

pub(super) fn in_namespaces<'a>(names: impl IntoIterator<Item = &'a str>) -> LabelSelector {
    let names = names.into_iter().filter(|name| is_name(name));
    LabelSelector {
        match_expressions: Some(vec![requirement(NAMESPACE_NAME, "In", names)]),
        match_labels: None,
    }
}

fn label_selector(selector: &Selector) -> LabelSelector {
    let expressions = selector.requirements().iter().map(|it| {
        let Requirement { key, operator } = it;
        match operator {
            Operator::In(values) => requirement(key, "In", values.iter().map(String::as_str)),
            Operator::NotIn(values) => requirement(key, "NotIn", values.iter().map(String::as_str)),
            Operator::Exists => requirement(key, "Exists", []),
            Operator::DoesNotExist => requirement(key, "DoesNotExist", []),
        }
    });
    let expressions: Vec<_> = expressions.collect();
    LabelSelector {
        match_expressions: (!expressions.is_empty()).then_some(expressions),
        match_labels: None,
    }
}

fn requirement<'a>(
    key: &str,
    operator: &str,
    values: impl IntoIterator<Item = &'a str>,
) -> LabelSelectorRequirement {
    let values: Vec<_> = values.into_iter().map(str::to_owned).collect();
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then_some(values),
    }
}
