//! Entries of namespaces whose actors are not known, because they cannot be listed: the webhook is still called for the
//! same pods there (CFG-12).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, WebhookClientConfig};
use serde_json::json;

use super::entry::{NAMESPACE_NAME, client_config, in_namespaces, is_required_entry};
use super::{EntrySettings, MUTATE_PATH, REQUIRED_PATH};
use crate::hash;

/// Returns the parts of the `existing` entries that concern `unknown` namespaces. An entry of one binding keeps its
/// name; such a part of a shared entry becomes an entry of its own.
#[must_use]
pub fn kept_entries(
    settings: &EntrySettings,
    existing: &[MutatingWebhook],
    unknown: impl Fn(&str) -> bool,
) -> Vec<MutatingWebhook> {
    let mut kept: BTreeMap<String, (&MutatingWebhook, BTreeSet<&str>)> = BTreeMap::new();
    for entry in existing {
        let namespaces: BTreeSet<&str> = namespaces(entry).filter(|it| unknown(it)).collect();
        if namespaces.is_empty() {
            continue;
        }
        let name = if is_required_entry(&entry.name) {
            entry.name.clone()
        } else {
            shared_name(entry)
        };
        let (_, all) = kept.entry(name).or_insert((entry, BTreeSet::new()));
        all.extend(namespaces);
    }
    let kept = kept.into_iter();
    kept.map(|(name, (entry, namespaces))| MutatingWebhook {
        name,
        client_config: client_config(settings, path_of(&entry.client_config)),
        namespace_selector: Some(in_namespaces(namespaces)),
        ..entry.clone()
    })
    .collect()
}

/// The name depends on the whole entry except its namespaces, so that it is the same next time.
fn shared_name(entry: &MutatingWebhook) -> String {
    let content = json!([
        path_of(&entry.client_config),
        entry.failure_policy,
        entry.object_selector,
        entry.match_conditions,
    ]);
    format!("k-{}.kept.inject.asya.sh", hash::of_value(&content))
}

fn namespaces(entry: &MutatingWebhook) -> impl Iterator<Item = &str> {
    let selector = entry.namespace_selector.iter();
    let terms = selector.flat_map(|it| it.match_expressions.iter().flatten());
    let terms = terms.filter(|it| it.key == NAMESPACE_NAME && it.operator == "In");
    terms.flat_map(|it| it.values.iter().flatten().map(String::as_str))
}

fn path_of(config: &WebhookClientConfig) -> &'static str {
    let service = config.service.as_ref().and_then(|it| it.path.as_deref());
    let path = service.or(config.url.as_deref()).unwrap_or_default();
    if path.ends_with(REQUIRED_PATH) {
        REQUIRED_PATH
    } else {
        MUTATE_PATH
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{labelled, plain, required, settings};
    use super::super::{EntrySettings, mutating};
    use super::*;
    use crate::resolve::Integration;

    /// What the entries send to the webhook from a namespace, whatever their names: path, policy and pods.
    fn sent_of(entries: &[MutatingWebhook], namespace: &str) -> Vec<String> {
        let of_it = entries
            .iter()
            .filter(|it| namespaces(it).any(|it| it == namespace));
        let mut sent: Vec<_> = of_it
            .map(|it| {
                let pods = json!([it.object_selector, it.match_conditions]);
                json!([path_of(&it.client_config), it.failure_policy, pods]).to_string()
            })
            .collect();
        sent.sort();
        sent
    }

    /// CFG-12
    #[test]
    fn what_is_asked_about_an_unlisted_namespace_stays() {
        let label = [("serving.kserve.io/inferenceservice", "m")];
        let bindings = [
            plain("a", "web"),
            plain("lost", "web"),
            labelled("lost", Integration::Kserve, &label),
            labelled("b", Integration::Kserve, &label),
            required(plain("lost", "strict"), true),
            required(plain("a", "strict"), true),
        ];
        let entries_of = |bindings: &[_], kept| {
            let objects = mutating(&settings(), bindings, kept).objects;
            let entries = objects.into_iter().filter_map(|it| it.webhooks);
            entries.flatten().collect::<Vec<MutatingWebhook>>()
        };
        let all = entries_of(&bindings, Vec::new());
        assert_eq!(sent_of(&all, "lost").len(), 3);
        let listed: Vec<_> = bindings
            .into_iter()
            .filter(|it| it.namespace != "lost")
            .collect();

        let unknown = |namespace: &str| namespace == "lost";
        let kept = kept_entries(&settings(), &all, unknown);
        let merged = entries_of(&listed, kept);
        assert_eq!(sent_of(&merged, "lost"), sent_of(&all, "lost"));
        let expected = entries_of(&listed, Vec::new());
        for namespace in ["a", "b"] {
            assert_eq!(sent_of(&merged, namespace), sent_of(&expected, namespace));
        }
        let own = |entries: &[MutatingWebhook]| {
            let names = entries.iter().map(|it| it.name.clone());
            let mut names: Vec<_> = names.filter(|it| is_required_entry(it)).collect();
            names.sort();
            names
        };
        assert_eq!(own(&merged), own(&all), "they keep their names");

        // As a new leader reads them.
        let again = entries_of(&listed, kept_entries(&settings(), &merged, unknown));
        assert_eq!(again, merged);
        assert_eq!(kept_entries(&settings(), &merged, |_| false), []);
    }

    /// CFG-12, CERT-4
    #[test]
    fn kept_entries_get_the_current_ca() {
        let binding = required(plain("lost", "strict"), true);
        let objects = mutating(&settings(), &[binding], Vec::new()).objects;
        let existing = objects[0].webhooks.clone().unwrap();
        let rotated = EntrySettings {
            ca_bundle: "NEW".to_owned(),
            ..settings()
        };
        let kept = kept_entries(&rotated, &existing, |_| true);
        let bundle = kept[0].client_config.ca_bundle.as_ref();
        assert_eq!(bundle.map(|it| &*it.0), Some(&b"NEW"[..]));
    }
}
