//! Previews the operator's changes to the pods of a target.

use asya_shared::api::{BindingRollout, BindingStrategy, EffectiveBinding};
use asya_shared::key::Key;
use asya_shared::names::{annotation, manager};
use asya_shared::probe::{self, ProbeMetadata};
use asya_shared::reason::Reason;
use asya_shared::resolve::{GroupKind, Integration, ObjectRef, RolloutMethod, Scale, template};
use asya_shared::roll::{UpdateStrategy, exhausted_budget, gpus};
use asya_shared::scaling::ScaleTarget;
use serde_json::{Value, json};

use super::admission::AdmissionVerdict;
use super::bound::{self, Inputs, Pods, is_current};
use super::change::Change;
use super::children::api;
use super::cost;
use super::decide::Preview;
use super::effects::state;
use super::gather::NamespaceState;
use super::online::Online;
use super::restart::{Restart, RestartInputs, RestartedWorkload, of_binding, of_template};
use super::standalone::{self, PreviewedActor};
use crate::resolved_target::{self, Bound, RolledObject, Unresolved, new_pod};

/// Path of the annotations of a pod template.
const TEMPLATE: [&str; 4] = ["spec", "template", "metadata", "annotations"];

/// A target whose pods get the sidecar from the webhook.
struct PreviewedTarget<'a> {
    found: &'a Bound,
    rollout: BindingRollout,
    /// A new pod of the target, as its controller would create it.
    pod: &'a Value,
}

impl Online<'_> {
    /// Adds what happens to the target's pods, and how the target is scaled.
    pub(super) async fn add_binding(
        &self,
        preview: &mut Preview,
        subject: &PreviewedActor<'_>,
        around: &NamespaceState,
        binding: &EffectiveBinding<'_>,
    ) {
        let wanted = binding.target;
        let object = format!("{}/{}", wanted.kind, wanted.name);
        let found = match resolved_target::resolve(self.cluster, self.namespace, wanted).await {
            Ok(found) => found,
            Err(Unresolved::Finding(finding)) => {
                preview.problem(finding.reason.as_str(), &object, &finding.message);
                return;
            }
            Err(Unresolved::Unknown(failure)) => {
                preview.incomplete(&failure.text);
                return;
            }
        };
        preview.notes.extend(found.notes.iter().cloned());
        let warnings = found.target.warnings.iter().map(|it| it.message.clone());
        preview.notes.extend(warnings);
        let integration = Integration::of_target(wanted);
        let metadata = ProbeMetadata::of(&found.target.pods, integration);
        if binding.strategy == BindingStrategy::Template {
            let limits = &around.limits;
            self.add_template(preview, subject, &found, limits, metadata.as_ref())
                .await;
        } else if let Some(pod) = new_pod(&found, metadata.as_ref()) {
            let target = PreviewedTarget {
                found: &found,
                rollout: binding.rollout,
                pod: &pod,
            };
            self.add_pods(preview, subject, around, &target).await;
        } else {
            let workload = &found.target.workload;
            preview.incomplete(&format!("no pod of {workload} can be constructed"));
        }
        self.add_missing_secrets(preview, subject).await;
        let scaled = found.target.scale.object();
        let refused = subject.spec.effective_scaling().is_some() && scaled.is_none();
        if let (Scale::Refused(why), true) = (&found.target.scale, refused) {
            preview.problem(Reason::ScalingNotSupported.as_str(), &object, why);
        }
        if let Some(scaled) = scaled {
            let target = ScaleTarget {
                api_version: &scaled.api_version,
                kind: &scaled.kind,
                name: &scaled.name,
            };
            self.add_scaling(preview, standalone::scaling(subject, target))
                .await;
        }
    }

    /// Pods that get the sidecar from the webhook.
    async fn add_pods(
        &self,
        preview: &mut Preview,
        subject: &PreviewedActor<'_>,
        around: &NamespaceState,
        target: &PreviewedTarget<'_>,
    ) {
        let PreviewedTarget {
            found,
            rollout,
            pod,
        } = *target;
        let inputs = Inputs {
            namespace: self.namespace,
            operator_namespace: &self.cluster.operator_namespace,
            installation: self.installation,
            clusters: around.clusters.as_ref(),
            actor: self.stored,
            existing: self.existing,
            others: &around.others,
            target: &found.target,
            limits: &around.limits,
        };
        let pods = match bound::review(&inputs, pod) {
            Ok(pods) => pods,
            Err(why) => return preview.incomplete(&why),
        };
        let blocked = self.add_new_pod(preview, found, &pods).await;
        let hash = pods.hash();
        let states: Vec<_> = found
            .pods
            .iter()
            .map(|pod| state(pod, is_current(pod, subject.uid, hash.as_deref())))
            .collect();
        let roll_now = !self.stored["metadata"]["annotations"][annotation::ROLL_NOW].is_null();
        let restart = of_binding(&RestartInputs {
            roll: &found.target.roll,
            rollout,
            roll_now,
            workloads: &workloads(found),
            pods: &states,
            budget: exhausted_budget(&found.budgets, pod),
            blocked: blocked.as_deref(),
        });
        let value = if roll_now {
            pods.full_hash()
        } else {
            hash.as_deref()
        };
        let value = value.filter(|_| restart.is_by_annotation());
        let managed = self.is_managed(found);
        let annotated = annotated(found, (!managed).then_some(self.name), value);
        preview.changes.extend(annotated);
        preview.cost = Some(cost::of_restart(&restart, gpus(pod)));
        preview.restart = Some(restart);
    }

    /// Adds the change of a new pod, and why it would not start with the sidecar; returns the short form of the latter.
    async fn add_new_pod(
        &self,
        preview: &mut Preview,
        found: &Bound,
        pods: &Pods,
    ) -> Option<String> {
        let object = format!("pod of {}", found.target.workload);
        let change = Change::of_pod(&*object, &pods.before, &pods.after.pod);
        preview.changes.push(change);
        if pods.is_injected() {
            let complete = has_all_pods(found);
            let sent = pods.after.pod.clone();
            let verdict = self.admit_pod(preview, &object, sent, complete).await;
            return verdict
                .rejection()
                .map(|_| "the API server rejects such pods".to_owned());
        }
        let why = pods.after.denied.as_ref();
        let why = why.or(pods.after.warnings.first());
        let why = why.map_or("new pods do not get the sidecar", String::as_str);
        let reason = pods.after.reason.as_str();
        preview.problem(reason, &object, why);
        Some(reason.to_owned())
    }

    /// Whether the operator has already annotated the workload, which it does only once (BIND-47).
    fn is_managed(&self, found: &Bound) -> bool {
        let known = self
            .existing
            .map(|it| &it["status"]["resolvedTarget"]["uid"]);
        known.is_some_and(|uid| uid.as_str() == found.target.workload.uid.as_deref())
    }

    /// Pods that get the sidecar from the workload's pod template.
    async fn add_template(
        &self,
        preview: &mut Preview,
        subject: &PreviewedActor<'_>,
        found: &Bound,
        limits: &[String],
        metadata: Option<&ProbeMetadata>,
    ) {
        let target = &found.target;
        let object = target.workload.to_string();
        if let Some(owner) = &target.owner {
            let text = format!(
                "{object} belongs to {owner}, which would remove the sidecar from its pod template"
            );
            return preview.problem("StrategyNotAllowed", &object, &text);
        }
        let is_workload = |it: &&RolledObject| it.reference == target.workload;
        let Some(RolledObject { body, .. }) = found.rolled.iter().find(is_workload) else {
            return preview.incomplete(&format!("{object} could not be read"));
        };
        let fields = match bound::template_fields(subject, target, limits, body) {
            Ok(fields) => fields,
            Err(obstacle) => {
                return preview.problem(obstacle.reason.as_str(), &object, &obstacle.text);
            }
        };
        let api = api(&target.workload.api_version, &target.workload.kind);
        let key = Key::new(self.namespace, &target.workload.name);
        let applied = self
            .cluster
            .dry_run_apply(&api, &key, &fields, manager::TEMPLATE)
            .await;
        preview.admission(&object, AdmissionVerdict::of(&applied));
        let Ok(applied) = applied else {
            return;
        };
        let mut after = applied.clone();
        if !self.is_managed(found) && is_named(&target.workload) {
            after["metadata"]["annotations"][annotation::MANAGED_BY] = json!(self.name);
        }
        preview
            .changes
            .push(Change::of(&*object, Some(body), &after));
        let template = applied.pointer("/spec/template");
        let claims = applied.pointer("/spec/volumeClaimTemplates");
        let pod = template
            .zip(metadata)
            .and_then(|(template, metadata)| probe::from_template(template, claims, metadata));
        if let Some(pod) = pod {
            let object = format!("pod of {object}");
            self.admit_pod(preview, &object, pod, has_all_pods(found))
                .await;
        }
        if body.pointer("/spec/template") != template {
            let restart = restart_by_template(found);
            preview.cost = restart
                .as_ref()
                .map(|it| cost::of_restart(it, template.map_or(0, gpus)));
            preview.restart = restart;
        }
    }
}

/// The restart of the workload's pods, none of which has the changed template yet.
fn restart_by_template(found: &Bound) -> Option<Restart> {
    let states: Vec<_> = found.pods.iter().map(|pod| state(pod, false)).collect();
    let workload = workloads(found)
        .into_iter()
        .find(|it| it.object == found.target.workload)?;
    Some(of_template(&workload, &states))
}

/// The annotations that the operator writes to a target's objects: the actor's name, for information, and a value that
/// makes their controllers replace the pods.
fn annotated(found: &Bound, actor: Option<&str>, roll: Option<&str>) -> Vec<Change> {
    let workload = &found.target.workload;
    let roll = roll.map(|desired| next_value(desired, found));
    let mut changes = Vec::new();
    for RolledObject { reference, body } in &found.rolled {
        let mut after = body.clone();
        if let Some(actor) = actor.filter(|_| is_named(workload) && reference == workload) {
            after["metadata"]["annotations"][annotation::MANAGED_BY] = json!(actor);
        }
        if let Some((path, value)) = roll_path(&found.target.roll, reference).zip(roll.as_ref()) {
            let annotations = path.iter().fold(&mut after, |node, key| &mut node[*key]);
            annotations[annotation::ROLL] = json!(value);
        }
        if after != *body {
            changes.push(Change::of(reference.to_string(), Some(body), &after));
        }
    }
    changes
}

/// The next value of the annotation that rolls pods. Retries are numbered, because writing the same value again would
/// change nothing.
fn next_value(desired: &str, found: &Bound) -> String {
    let retry = |value: &str| match value.strip_prefix(desired)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse::<u32>().ok(),
    };
    let values = found.rolled.iter().filter_map(|it| {
        let path = roll_path(&found.target.roll, &it.reference)?;
        path.iter().fold(&it.body, |node, key| &node[*key])[annotation::ROLL].as_str()
    });
    match values.filter_map(retry).max() {
        None => desired.to_owned(),
        Some(last) => format!("{desired}-{}", last.saturating_add(1)),
    }
}

/// Whether the operator annotates a workload with the actor that binds it (BIND-47).
fn is_named(workload: &ObjectRef) -> bool {
    let GroupKind { group, kind } = workload.group_kind();
    group == "apps" && ["Deployment", "StatefulSet"].contains(&kind)
}

/// The path of the annotation that rolls pods on an object, if the rollout uses it (ROLL-3).
fn roll_path<'a>(roll: &'a RolloutMethod, object: &ObjectRef) -> Option<&'a [&'static str]> {
    match roll {
        RolloutMethod::Annotate(annotated, path) => (annotated == object).then_some(&path[..]),
        RolloutMethod::AnnotateTemplate(workloads) => {
            workloads.contains(object).then_some(&TEMPLATE[..])
        }
        RolloutMethod::Evict => None,
    }
}

fn workloads(found: &Bound) -> Vec<RestartedWorkload> {
    let has_template = found
        .rolled
        .iter()
        .filter(|it| template(&it.body).is_some());
    let workload = |it: &RolledObject| RestartedWorkload {
        object: it.reference.clone(),
        strategy: UpdateStrategy::of(&it.reference, &it.body),
    };
    has_template.map(workload).collect()
}

/// Whether the target has all its desired pods, if their number is known.
fn has_all_pods(found: &Bound) -> bool {
    let desired = workloads(found)
        .into_iter()
        .filter_map(|it| it.strategy.desired_replicas);
    let desired: i64 = desired.map(i64::from).sum();
    i64::try_from(found.pods.len()).is_ok_and(|active| active >= desired)
}

#[cfg(test)]
mod tests {
    use asya_shared::resolve::{Related, Resolution, resolver};

    use super::*;

    fn bound() -> Bound {
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "phi", "uid": "u"},
            "spec": {
                "selector": {"matchLabels": {"app": "phi"}},
                "template": {"metadata": {"labels": {"app": "phi"}}, "spec": {"containers": [{"name": "model"}]}},
            },
        });
        let resolution = resolver("apps", "Deployment").resolve(&body, &Related::default());
        let Resolution::Found(target) = resolution else {
            panic!("{resolution:?}");
        };
        Bound {
            rolled: vec![RolledObject {
                reference: target.workload.clone(),
                body,
            }],
            target: *target,
            pods: Vec::new(),
            budgets: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// ROLL-3, BIND-47
    #[test]
    fn annotations_on_the_target_are_changes() {
        let bound = bound();
        let roll = Some("hash");
        let (managed, rolled) = (
            "+    asya.sh/managed-by: embed",
            "+        asya.sh/roll: hash",
        );
        for (actor, roll, lines) in [
            (Some("embed"), roll, &[managed, rolled][..]),
            (None, roll, &[rolled]),
            (Some("embed"), None, &[managed]),
            (None, None, &[]),
        ] {
            let changes = annotated(&bound, actor, roll);
            let diff: String = changes.iter().map(|it| &*it.diff).collect();
            assert_eq!(changes.len(), usize::from(!lines.is_empty()));
            for line in lines {
                assert!(diff.contains(line), "{line}: {diff}");
            }
        }
    }

    /// ROLL-5
    #[test]
    fn further_attempts_are_numbered() {
        for (value, next) in [
            ("hash", "hash-1"),
            ("hash-1", "hash-2"),
            ("other", "hash"),
            ("hash-x", "hash"),
        ] {
            let mut bound = bound();
            let annotations = json!({"asya.sh/roll": value});
            bound.rolled[0].body["spec"]["template"]["metadata"]["annotations"] = annotations;
            assert_eq!(next_value("hash", &bound), next, "{value}");
        }
    }
}
