//! Dry runs of the operator's writes, and their results.

use asya_shared::key::Key;
use asya_shared::probe::{self, QuotaConclusion, Rejection, Replaced, unbound_owner};
use asya_shared::resolve::{GroupKind, controller_of};
use asya_shared::scaling::{KEDA_GROUP, TriggerError};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::admission::{AdmissionVerdict, RejectedBy};
use super::change::Change;
use super::decide::Preview;
use super::online::Online;
use super::standalone::Child;
use crate::cluster::{ApiFailure, resource};

impl Online<'_> {
    /// Adds KEDA's objects.
    pub(super) async fn add_scaling(
        &self,
        preview: &mut Preview,
        objects: Result<Vec<Child>, TriggerError>,
    ) {
        let objects = match objects {
            Ok(objects) => objects,
            // The broker reports the URL once the queue exists.
            Err(why) => return preview.notes.push(why.to_string()),
        };
        if objects.is_empty() {
            return;
        }
        let kind = GroupKind {
            group: KEDA_GROUP,
            kind: "ScaledObject",
        };
        match self.cluster.kind(kind).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                let text = "KEDA is not installed, so nothing is scaled";
                return preview.problem("KedaNotInstalled", "ScaledObject", text);
            }
            Err(failure) => return preview.incomplete(&failure.text),
        }
        for object in &objects {
            self.apply(preview, object).await;
        }
    }

    /// Adds the change of an object that the operator applies. Returns the resulting object if the API server admits
    /// it.
    pub(super) async fn apply(&self, preview: &mut Preview, child: &Child) -> Option<Value> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let applied = &child.applied;
        let api = api(&text(&applied["apiVersion"]), &text(&applied["kind"]));
        let name = text(&applied["metadata"]["name"]);
        let object = child.object();
        let existing = self.get(&api, &name, preview).await;
        let adopts = self.stored["spec"]["adoptionPolicy"] == "IfUnowned";
        if let Some(existing) = existing
            .as_ref()
            .filter(|existing| is_foreign(existing, applied, adopts))
        {
            let owner =
                controller_of(existing).map_or_else(|| "another".to_owned(), |it| it.to_string());
            let problem = format!("{object} exists already, and is not this actor's ({owner})");
            preview.problem("NotOwned", &object, &problem);
            return None;
        }
        let key = Key::new(self.namespace, &name);
        let after = match &existing {
            Some(_) => {
                self.cluster
                    .dry_run_apply(&api, &key, applied, child.manager)
                    .await
            }
            None => {
                self.cluster
                    .dry_run_create(&api, self.namespace, &for_dry_run(child))
                    .await
            }
        };
        preview.admission(&object, AdmissionVerdict::of(&after));
        let shown = match (&existing, &after) {
            (None, _) => Some(&child.created),
            (Some(_), Ok(after)) => Some(after),
            (Some(_), Err(_)) => None,
        };
        if let Some(shown) = shown {
            preview
                .changes
                .push(Change::of(object, existing.as_ref(), shown));
        }
        after.ok()
    }

    /// Dry-runs a pod like the operator's probe, and adds the result. Its owner reference names a controller that no
    /// actor binds, so that the webhook leaves it unchanged.
    pub(super) async fn admit_pod(
        &self,
        preview: &mut Preview,
        object: &str,
        pod: Value,
        complete: bool,
    ) -> AdmissionVerdict {
        let mut pod = pod;
        pod["metadata"]["ownerReferences"] = json!([unbound_owner()]);
        let kind = resource::<Pod>();
        let first = self
            .cluster
            .dry_run_create(&kind, self.namespace, &pod)
            .await;
        let mut verdict = AdmissionVerdict::of(&first);
        // While a pod is missing, the quota must have room for one more.
        if complete
            && let Some(message) = verdict.quota_rejection().map(str::to_owned)
            && let Ok(pod) = serde_json::from_value::<Pod>(pod)
        {
            verdict = self.judge_quota(&pod, message).await;
        }
        preview.admission(object, verdict.clone());
        verdict
    }

    /// Judges a pod that a quota rejects with `message`, like the operator's probe (SAFE-7).
    async fn judge_quota(&self, pod: &Pod, message: String) -> AdmissionVerdict {
        let mut rejection = Rejection::new(message.clone(), Replaced::Pod);
        loop {
            let variant = match rejection.conclusion() {
                QuotaConclusion::DryRun(variant) => variant,
                QuotaConclusion::Admitted => {
                    return AdmissionVerdict::AdmittedAsReplacement { message };
                }
                QuotaConclusion::Rejected(reason) => {
                    return AdmissionVerdict::Rejected {
                        by: RejectedBy::of(reason),
                        message: reason.to_owned(),
                    };
                }
            };
            let pod = json!(variant.apply(pod));
            let kind = resource::<Pod>();
            let answer = self
                .cluster
                .dry_run_create(&kind, self.namespace, &pod)
                .await;
            match AdmissionVerdict::of(&answer) {
                unknown @ AdmissionVerdict::Unknown { .. } => return unknown,
                AdmissionVerdict::Rejected { message, .. } => {
                    rejection.record(variant, Some(message));
                }
                AdmissionVerdict::Admitted | AdmissionVerdict::AdmittedAsReplacement { .. } => {
                    rejection.record(variant, None);
                }
            }
        }
    }

    /// An object in the namespace; if it cannot be read, the preview says so.
    pub(super) async fn get(
        &self,
        api: &ApiResource,
        name: &str,
        preview: &mut Preview,
    ) -> Option<Value> {
        let found = self.cluster.get(api, Some(self.namespace), name).await;
        let found = found.map_err(|ApiFailure { text, .. }| preview.incomplete(&text));
        found.ok().flatten()
    }
}

/// A resource whose plural follows from its kind.
pub fn api(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// The new object without `blockOwnerDeletion`, which not every user who may create the object may set.
fn for_dry_run(child: &Child) -> Value {
    let mut created = child.created.clone();
    probe::unblock_owners(&mut created);
    created
}

/// Whether an object that the actor would own alone belongs to someone else. With `adopts` (`spec.adoptionPolicy`), an
/// object without a controller does not.
fn is_foreign(existing: &Value, wanted: &Value, adopts: bool) -> bool {
    let Some(ours) = controller_of(wanted) else {
        return false;
    };
    match controller_of(existing) {
        Some(owner) => (owner.kind, owner.name) != (ours.kind, ours.name),
        None => !adopts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SA-3
    #[test]
    fn objects_of_others_are_not_taken() {
        let owned = |kind: &str, name: &str| {
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "asya.sh/v1alpha1", "kind": kind, "name": name, "controller": true},
            ]}})
        };
        let (ours, shared) = (owned("AsyncActor", "embed"), json!({"metadata": {}}));
        for (existing, wanted, adopts, expected) in [
            (&ours, &ours, false, false),
            (&owned("AsyncActor", "other"), &ours, true, true),
            (&owned("Release", "embed"), &ours, true, true),
            (&shared, &ours, false, true),
            (&shared, &ours, true, false),
            (&shared, &shared, false, false),
        ] {
            assert_eq!(is_foreign(existing, wanted, adopts), expected, "{existing}");
        }
    }

    /// API-9: some API servers require permission to set finalizers on the actor, which the operator has and users may
    /// lack.
    #[test]
    fn dry_run_of_a_new_object_does_not_block_the_deletion_of_its_owner() {
        let owned = |blocks: Value| {
            let mut owner = json!({"kind": "AsyncActor", "name": "embed", "controller": true});
            if !blocks.is_null() {
                owner["blockOwnerDeletion"] = blocks;
            }
            json!({"kind": "Deployment", "metadata": {"ownerReferences": [owner]}})
        };
        for (created, sent) in [
            (owned(json!(true)), owned(Value::Null)),
            (owned(Value::Null), owned(Value::Null)),
            (json!({"kind": "ConfigMap"}), json!({"kind": "ConfigMap"})),
        ] {
            let child = Child {
                applied: created.clone(),
                created,
                manager: "m",
            };
            assert_eq!(for_dry_run(&child), sent);
        }
    }

    #[test]
    fn resource_follows_from_the_kind() {
        for (version, kind, plural) in [
            ("v1", "ServiceAccount", "serviceaccounts"),
            ("apps/v1", "StatefulSet", "statefulsets"),
            (
                "keda.sh/v1alpha1",
                "TriggerAuthentication",
                "triggerauthentications",
            ),
            ("keda.sh/v1alpha1", "ScaledObject", "scaledobjects"),
        ] {
            let api = api(version, kind);
            assert_eq!((&*api.plural, &*api.api_version), (plural, version));
        }
    }
}
