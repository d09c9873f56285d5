//! Renders the webhook configurations that the controller applies (CFG-1, CFG-3, CFG-7, VAC-8).

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

use super::entry::{
    client_config, condition, integration_entry, is_required_entry, json_size, unenforced_entry,
};
use super::required::{UnenforcedBinding, required_entries};
use super::{
    EntryBinding, EntrySettings, LARGEST_OBJECT, MAX_OBJECTS, Policy, REQUIRED_PER_OBJECT,
    VALIDATE_PATH, VALIDATION_ENTRY, deletion, expression,
};
use crate::names::{GROUP, MANAGED_BY, is_excluded_namespace, label};
use crate::resolve::Integration;

/// Room for what an object contains besides its entries, in bytes.
const METADATA: usize = 4 * 1024;

/// The mutating configurations, and the required bindings that they do not enforce.
#[derive(Clone, Debug, PartialEq)]
pub struct MutatingConfigurations {
    /// The objects; the first one exists even without any entry.
    pub objects: Vec<MutatingWebhookConfiguration>,
    /// Required bindings that stay fail-open.
    pub unenforced_required: Vec<UnenforcedBinding>,
}

/// Renders the mutating configurations. `bindings` are sorted oldest first, so that a new binding makes an older one
/// fail open only beyond the share of that one's namespace. `kept` are entries of namespaces whose bindings are not
/// known ([`kept_entries`](super::kept_entries)).
#[must_use]
pub fn mutating(
    settings: &EntrySettings,
    bindings: &[EntryBinding],
    kept: Vec<MutatingWebhook>,
) -> MutatingConfigurations {
    let is_excluded =
        |it: &&EntryBinding| is_excluded_namespace(&it.namespace, &settings.namespace);
    let bindings = || bindings.iter().filter(|it| !is_excluded(it));
    // Only pods known to belong to a required binding may fail closed; the integration's entry sends the others
    // (SAFE-32).
    let by_integration =
        bindings().filter(|it| it.policy == Policy::Optional || it.has_intermediate_owners);
    let required = required_entries(settings, bindings());
    let optional = group(by_integration).into_iter();
    let optional = optional
        .filter_map(|(integration, of_it)| integration_entry(settings, integration, &of_it));
    let beyond = group(required.shared.iter().copied()).into_iter();
    let beyond =
        beyond.filter_map(|(integration, of_it)| unenforced_entry(settings, integration, &of_it));
    let mut objects = Objects::default();
    let (kept_own, kept_shared): (Vec<_>, Vec<_>) =
        kept.into_iter().partition(|it| is_required_entry(&it.name));
    optional
        .chain(beyond)
        .chain(kept_shared)
        .for_each(|entry| objects.add_shared(entry));
    kept_own
        .into_iter()
        .chain(required.own)
        .for_each(|entry| objects.add_own(entry));
    let objects =
        objects
            .0
            .into_iter()
            .enumerate()
            .map(|(number, object)| MutatingWebhookConfiguration {
                metadata: metadata(settings, injector_name(&settings.release, number)),
                webhooks: Some(object.entries),
            });
    MutatingConfigurations {
        objects: objects.collect(),
        unenforced_required: required.unenforced,
    }
}

fn group<'b>(
    bindings: impl Iterator<Item = &'b EntryBinding>,
) -> BTreeMap<Integration, Vec<&'b EntryBinding>> {
    let mut groups: BTreeMap<Integration, Vec<&EntryBinding>> = BTreeMap::new();
    for binding in bindings {
        groups.entry(binding.integration).or_default().push(binding);
    }
    groups
}

/// Distributes entries among objects, in order.
struct Objects(Vec<Object>);

#[derive(Default)]
struct Object {
    entries: Vec<MutatingWebhook>,
    /// Number of entries of one required binding each.
    own: usize,
    bytes: usize,
}

impl Default for Objects {
    fn default() -> Self {
        Self(vec![Object::default()])
    }
}

impl Objects {
    fn add_shared(&mut self, entry: MutatingWebhook) {
        self.with_room_for(json_size(&entry)).entries.push(entry);
    }

    fn add_own(&mut self, entry: MutatingWebhook) {
        let object = self.with_room_for(json_size(&entry));
        object.entries.push(entry);
        object.own += 1;
    }

    /// The last object, or the next one if the last is full. There are at most [`MAX_OBJECTS`].
    fn with_room_for(&mut self, size: usize) -> &mut Object {
        let Self(objects) = self;
        let is_full = objects.last().is_none_or(|last| {
            last.own >= REQUIRED_PER_OBJECT || last.bytes + size > LARGEST_OBJECT - METADATA
        });
        if objects.is_empty() || (is_full && objects.len() < MAX_OBJECTS) {
            objects.push(Object::default());
        }
        let last = objects.len() - 1;
        let object = &mut objects[last];
        // A comma separates it from the next one.
        object.bytes += size + 1;
        object
    }
}

/// Name of the mutating configuration with this number, from 0.
#[must_use]
pub fn injector_name(release: &str, number: usize) -> String {
    match number {
        0 => format!("{release}-injector"),
        _ => format!("{release}-injector-{}", number + 1),
    }
}

/// Name of the validating configuration.
#[must_use]
pub fn validator_name(release: &str) -> String {
    format!("{release}-validator")
}

/// Name of the `ClusterRole` that owns the configurations.
#[must_use]
pub fn owner_role_name(release: &str) -> String {
    format!("{release}-webhook-anchor")
}

/// Renders the validating configuration (VAC-8).
#[must_use]
pub fn validating(settings: &EntrySettings) -> ValidatingWebhookConfiguration {
    let strings = |texts: &[&str]| Some(texts.iter().map(ToString::to_string).collect());
    ValidatingWebhookConfiguration {
        metadata: metadata(settings, validator_name(&settings.release)),
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

fn metadata(settings: &EntrySettings, name: String) -> ObjectMeta {
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
