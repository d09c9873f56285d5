//! Renders the webhook configurations that the controller applies (CFG-1, CFG-3, CFG-7, VAC-8).

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

use super::entry::{client_config, condition, integration_entry, required_entry, unenforced_entry};
use super::{
    Binding, MAX_OBJECTS, MAX_REQUIRED, Policy, REQUIRED_PER_OBJECT, Settings, VALIDATE_PATH,
    VALIDATION_ENTRY, deletion, expression,
};
use crate::names::{GROUP, MANAGED_BY, is_excluded_namespace, label};
use crate::resolve::Integration;

/// The mutating configurations, and the required bindings beyond the limit.
#[derive(Clone, Debug, PartialEq)]
pub struct MutatingConfigurations {
    /// The objects; the first one exists even without any entry.
    pub objects: Vec<MutatingWebhookConfiguration>,
    /// Namespace and name of required bindings that stay fail-open because the limit is exceeded.
    pub unenforced_required: Vec<(String, String)>,
}

/// Renders the mutating configurations. `bindings` are sorted oldest first, so that new bindings never make an older
/// one fail open.
#[must_use]
pub fn mutating(settings: &Settings, bindings: &[Binding]) -> MutatingConfigurations {
    let is_excluded = |it: &&Binding| is_excluded_namespace(&it.namespace, &settings.namespace);
    let mut integrations: BTreeMap<Integration, Vec<&Binding>> = BTreeMap::new();
    // Required bindings for which no object has room for an entry of their own.
    let mut beyond: BTreeMap<Integration, Vec<&Binding>> = BTreeMap::new();
    let (mut required, mut unenforced_required) = (Vec::new(), Vec::new());
    for binding in bindings.iter().filter(|it| !is_excluded(it)) {
        match binding.policy {
            Policy::Optional => integrations
                .entry(binding.integration)
                .or_default()
                .push(binding),
            Policy::Required { verified } => {
                // Only pods known to belong to the binding may fail closed; the integration's entry sends the others
                // (SAFE-32).
                if binding.has_intermediate_owners {
                    integrations
                        .entry(binding.integration)
                        .or_default()
                        .push(binding);
                }
                let has_room = required.len() < MAX_REQUIRED;
                let Some(entry) = required_entry(settings, binding, verified && has_room) else {
                    continue;
                };
                if !has_room {
                    unenforced_required.push((binding.namespace.clone(), binding.actor.clone()));
                }
                if required.len() < MAX_OBJECTS * REQUIRED_PER_OBJECT {
                    required.push(entry);
                } else {
                    beyond.entry(binding.integration).or_default().push(binding);
                }
            }
        }
    }
    let optional = integrations.iter();
    let optional = optional
        .filter_map(|(integration, of_it)| integration_entry(settings, *integration, of_it));
    let beyond = beyond.iter();
    let beyond =
        beyond.filter_map(|(integration, of_it)| unenforced_entry(settings, *integration, of_it));
    let mut objects = vec![optional.chain(beyond).collect::<Vec<_>>()];
    for (number, entries) in required.chunks(REQUIRED_PER_OBJECT).enumerate() {
        match objects.get_mut(number) {
            Some(object) => object.extend_from_slice(entries),
            None => objects.push(entries.to_vec()),
        }
    }
    let objects = objects.into_iter().enumerate().map(|(number, entries)| {
        let name = match number {
            0 => format!("{}-injector", settings.release),
            _ => format!("{}-injector-{}", settings.release, number + 1),
        };
        MutatingWebhookConfiguration {
            metadata: metadata(settings, name),
            webhooks: Some(entries),
        }
    });
    MutatingConfigurations {
        objects: objects.collect(),
        unenforced_required,
    }
}

/// Renders the validating configuration (VAC-8).
#[must_use]
pub fn validating(settings: &Settings) -> ValidatingWebhookConfiguration {
    let strings = |texts: &[&str]| Some(texts.iter().map(ToString::to_string).collect());
    ValidatingWebhookConfiguration {
        metadata: metadata(settings, format!("{}-validator", settings.release)),
        webhooks: Some(vec![
            deletion::entry(settings),
            ValidatingWebhook {
                name: VALIDATION_ENTRY.to_owned(),
                // The CRD's CEL rules and the controller check the same.
                failure_policy: Some("Ignore".to_owned()),
                client_config: client_config(settings, VALIDATE_PATH),
                rules: Some(vec![RuleWithOperations {
                    api_groups: strings(&[GROUP]),
                    api_versions: strings(&["v1alpha1"]),
                    operations: strings(&["CREATE", "UPDATE"]),
                    resources: strings(&["asyncactors"]),
                    scope: Some("Namespaced".to_owned()),
                }]),
                namespace_selector: Some(LabelSelector::default()),
                object_selector: Some(LabelSelector::default()),
                match_conditions: Some(vec![
                    condition("not-deleting", expression::NOT_DELETING),
                    condition("spec-changes", expression::spec_changes()),
                ]),
                match_policy: Some("Equivalent".to_owned()),
                side_effects: "None".to_owned(),
                timeout_seconds: Some(5),
                admission_review_versions: vec!["v1".to_owned()],
            },
        ]),
    }
}

fn metadata(settings: &Settings, name: String) -> ObjectMeta {
    let labels = [
        (label::MANAGED_BY, MANAGED_BY),
        (label::PART_OF, "asya"),
        (label::COMPONENT, "admission"),
        // Our selectors already exclude the system namespaces (CFG-5).
        (label::ENFORCER_DISABLED, "true"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    ObjectMeta {
        name: Some(name),
        labels: Some(labels.into()),
        owner_references: Some(vec![OwnerReference {
            api_version: "rbac.authorization.k8s.io/v1".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: settings.owner_role.name.clone(),
            uid: settings.owner_role.uid.clone(),
            controller: None,
            block_owner_deletion: None,
        }]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests;
