//! Preview of the operator's changes to the pods of a target.

use asya_shared::api::{BindingStrategy, EffectiveBinding};
use asya_shared::names::{annotation, manager};
use asya_shared::probe::{self, ProbeMetadata};
use asya_shared::reason::Reason;
use asya_shared::resolve::{GroupKind, Integration, ObjectRef, RolloutMethod, Scale, template};
use asya_shared::roll::{UpdateStrategy, exhausted_budget, gpus};
use asya_shared::scaling::ScaleTarget;
use serde_json::{Value, json};

use super::admission::Verdict;
use super::bound::{self, Inputs, is_current};
use super::change::Change;
use super::children::api;
use super::cost;
use super::decide::Preview;
use super::effects::state;
use super::gather::NamespaceState;
use super::online::Online;
use super::restart::{RestartInputs, Workload, of_binding, of_template};
use super::standalone::{self, Subject};
use crate::resolved_target::{self, Bound, Unresolved, new_pod};

/// Where annotations of a pod template are.
const TEMPLATE: [&str; 4] = ["spec", "template", "metadata", "annotations"];

impl Online<'_> {
    /// Adds what happens to the target's pods, and how the target is scaled.
    pub(super) async fn add_binding(
        &self,
        preview: &mut Preview,
        subject: &Subject<'_>,
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
            self.add_template(
                preview,
                subject,
                (&found, &around.limits),
                metadata.as_ref(),
            )
            .await;
        } else {
            self.add_pods(
                preview,
                subject,
                around,
                (&found, binding),
                metadata.as_ref(),
            )
            .await;
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
        subject: &Subject<'_>,
        around: &NamespaceState,
        (found, binding): (&Bound, &EffectiveBinding<'_>),
        metadata: Option<&ProbeMetadata>,
    ) {
        let workload = &found.target.workload;
        let Some(pod) = new_pod(found, metadata) else {
            preview.incomplete(&format!("no pod of {workload} can be constructed"));
            return;
        };
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
        let pods = match bound::review(&inputs, &pod) {
            Ok(pods) => pods,
            Err(why) => return preview.incomplete(&why),
        };
        let object = format!("pod of {workload}");
        let change = Change::of_pod(&*object, &pods.before, &pods.after.pod);
        preview.changes.push(change);
        let reason = pods.after.reason.as_str();
        let mut blocked = None;
        if pods.is_injected() {
            let complete = has_all_pods(found);
            let sent = pods.after.pod.clone();
            let verdict = self.admit_pod(preview, &object, sent, complete).await;
            if verdict.rejection().is_some() {
                blocked = Some("the API server rejects such pods".to_owned());
            }
        } else {
            let text = pods
                .after
                .denied
                .clone()
                .or(pods.after.warnings.first().cloned());
            let text = text.unwrap_or_else(|| "new pods do not get the sidecar".to_owned());
            preview.problem(reason, &object, &text);
            blocked = Some(reason.to_owned());
        }
        let hash = pods.hash();
        let states: Vec<_> = found
            .pods
            .iter()
            .map(|pod| state(pod, is_current(pod, subject.uid, hash.as_deref())))
            .collect();
        let budget = exhausted_budget(&found.budgets, &pod);
        let roll_now = !self.stored["metadata"]["annotations"][annotation::ROLL_NOW].is_null();
        let restart = of_binding(&RestartInputs {
            roll: &found.target.roll,
            rollout: binding.rollout,
            roll_now,
            workloads: &workloads(found),
            pods: &states,
            budget,
            blocked: blocked.as_deref(),
        });
        let managed = self.is_managed(found);
        let value = if roll_now {
            pods.full_hash()
        } else {
            hash.as_deref()
        };
        let value = value.filter(|_| restart.is_by_annotation());
        let annotated = annotated(found, (!managed).then_some(self.name), value);
        preview.changes.extend(annotated);
        preview.cost = Some(cost::of_restart(&restart, gpus(&pod)));
        preview.restart = Some(restart);
    }

    /// Whether the operator has annotated the workload already, which it does once (BIND-47).
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
        subject: &Subject<'_>,
        (found, limits): (&Bound, &[String]),
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
        let body = found.bodies.iter().find(|(it, _)| *it == target.workload);
        let Some((_, body)) = body else {
            return preview.incomplete(&format!("{object} could not be read"));
        };
        let fields = match bound::template_fields(subject, (target, limits), body) {
            Ok(fields) => fields,
            Err((reason, why)) => return preview.problem(reason.as_str(), &object, &why),
        };
        let api = api(&target.workload.api_version, &target.workload.kind);
        let key = (self.namespace, &*target.workload.name);
        let applied = self
            .cluster
            .dry_run_apply(&api, key, &fields, manager::TEMPLATE)
            .await;
        preview.admission(&object, Verdict::of(&applied));
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
        if body.pointer("/spec/template") == template {
            return;
        }
        let states: Vec<_> = found.pods.iter().map(|pod| state(pod, false)).collect();
        let workload = workloads(found)
            .into_iter()
            .find(|it| it.object == target.workload);
        let restart = workload.map(|it| of_template(&it, &states));
        preview.cost = restart
            .as_ref()
            .map(|it| cost::of_restart(it, template.map_or(0, gpus)));
        preview.restart = restart;
    }
}

/// The annotations that the operator writes to a target's objects: the name of the actor, for information, and a value
/// that makes their controllers replace the pods.
fn annotated(found: &Bound, actor: Option<&str>, roll: Option<&str>) -> Vec<Change> {
    let workload = &found.target.workload;
    let roll = roll.map(|desired| next_value(desired, found));
    let mut changes = Vec::new();
    for (object, body) in &found.bodies {
        let mut after = body.clone();
        if let Some(actor) = actor.filter(|_| is_named(workload) && object == workload) {
            after["metadata"]["annotations"][annotation::MANAGED_BY] = json!(actor);
        }
        if let Some((path, value)) = roll_path(&found.target.roll, object).zip(roll.as_ref()) {
            let annotations = path.iter().fold(&mut after, |node, key| &mut node[*key]);
            annotations[annotation::ROLL] = json!(value);
        }
        if after != *body {
            changes.push(Change::of(object.to_string(), Some(body), &after));
        }
    }
    changes
}

/// The next value of the annotation that rolls pods: a retry is numbered, because writing the same value again would
/// change nothing.
fn next_value(desired: &str, found: &Bound) -> String {
    let retry = |value: &str| match value.strip_prefix(desired)? {
        "" => Some(0),
        rest => rest.strip_prefix('-')?.parse::<u32>().ok(),
    };
    let objects = found.bodies.iter();
    let values = objects.filter_map(|(object, body)| {
        let path = roll_path(&found.target.roll, object)?;
        path.iter().fold(body, |node, key| &node[*key])[annotation::ROLL].as_str()
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

/// Where the annotation that rolls pods is on an object, if it is there (ROLL-3).
fn roll_path<'a>(roll: &'a RolloutMethod, object: &ObjectRef) -> Option<&'a [&'static str]> {
    match roll {
        RolloutMethod::Annotate(annotated, path) => (annotated == object).then_some(&path[..]),
        RolloutMethod::AnnotateTemplate(workloads) => {
            workloads.contains(object).then_some(&TEMPLATE[..])
        }
        RolloutMethod::Evict => None,
    }
}

fn workloads(found: &Bound) -> Vec<Workload> {
    let has_template = found
        .bodies
        .iter()
        .filter(|(_, body)| template(body).is_some());
    let workload = |(object, body): &(ObjectRef, Value)| Workload {
        object: object.clone(),
        strategy: UpdateStrategy::of(object, body),
    };
    has_template.map(workload).collect()
}

/// Whether the target has all its desired pods, as far as their number is known.
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
            bodies: vec![(target.workload.clone(), body)],
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
            bound.bodies[0].1["spec"]["template"]["metadata"]["annotations"] = annotations;
            assert_eq!(next_value("hash", &bound), next, "{value}");
        }
    }
}
