//! Effects of an actor once it is stored: on its queue, its objects and its target's pods.

use asya_shared::api::{AsyncActorStatus, ModeSpec, Workload};
use asya_shared::names::{RUNTIME_CONFIG_MAP, annotation};
use asya_shared::resolve::{ObjectRef, Selector};
use asya_shared::roll::{UpdateStrategy, gpus};
use asya_shared::scaling::ScaleTarget;
use asya_shared::validate;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::Value;

use super::change::{Change, ChangeKind};
use super::children::api;
use super::decide::Preview;
use super::gather::{NamespaceState, namespace_state, runtime_hash};
use super::online::Online;
use super::restart::{PodState, RestartedWorkload, of_template};
use super::standalone::{self, PreviewedActor};
use super::{cost, queue};
use crate::cluster::{is_ready, resource};

impl Online<'_> {
    /// Adds the effects to the preview.
    pub async fn add_effects(&self, preview: &mut Preview) {
        let Ok(spec) = validate::decode(&self.stored["spec"].to_string()) else {
            return;
        };
        let transport = match self.installation.transports.usable(&spec.transport) {
            Ok(transport) => transport,
            Err(why) => {
                let object = preview.object();
                preview.problem("InvalidTransport", &object, &why.to_string());
                return;
            }
        };
        let status = self.existing.map(|existing| existing["status"].clone());
        let previous: AsyncActorStatus = status
            .and_then(|status| serde_json::from_value(status).ok())
            .unwrap_or_default();
        let names = transport.names_of(self.namespace, self.name);
        let metadata = &self.stored["metadata"];
        let subject = PreviewedActor {
            namespace: self.namespace,
            name: self.name,
            uid: metadata["uid"].as_str().unwrap_or_default(),
            role_arn: metadata["annotations"][annotation::ROLE_ARN].as_str(),
            spec: &spec,
            previous: &previous,
            installation: self.installation,
            transport,
            names: &names,
        };
        let queues = queue::changes(&names, transport, previous.queue.as_ref());
        preview.changes.extend(queues);
        let notes = &mut preview.notes;
        let around = namespace_state(self.cluster, self.namespace, self.name, notes).await;
        if around.script.is_none() {
            let object = format!("ConfigMap/{RUNTIME_CONFIG_MAP}");
            preview
                .changes
                .push(Change::bare(object, ChangeKind::Create));
        }
        match spec.mode() {
            Ok(ModeSpec::Standalone(workload)) => {
                self.add_workload(preview, &subject, &around, workload)
                    .await;
            }
            Ok(ModeSpec::Binding(binding)) => {
                self.add_binding(preview, &subject, &around, &binding).await;
            }
            Err(_) => {}
        }
    }

    async fn add_workload(
        &self,
        preview: &mut Preview,
        subject: &PreviewedActor<'_>,
        around: &NamespaceState,
        workload: &Workload,
    ) {
        let kind = workload.effective_kind().name();
        let existing = self.get(&api("apps/v1", kind), self.name, preview).await;
        let scaled = subject.previous.scaled_object_ref.is_some();
        let hash = runtime_hash(existing.as_ref(), around.script.as_ref());
        let own = standalone::own_workload(subject, workload, scaled, &hash);
        if let Some(account) = &own.service_account {
            self.apply(preview, account).await;
        }
        let applied = self.apply(preview, &own.workload).await;
        let scaling = standalone::scaling(subject, ScaleTarget::workload(own.kind, self.name));
        self.add_scaling(preview, scaling).await;
        let template = own.workload.created.pointer("/spec/template");
        let per_pod = template.map_or(0, gpus);
        let complete = match (&existing, &applied) {
            (Some(existing), Some(applied)) => {
                let pods = self.pods_of_workload(existing, preview).await;
                let object = ObjectRef::of(existing).unwrap_or_default();
                let workload = RestartedWorkload {
                    strategy: UpdateStrategy::of(&object, existing),
                    object,
                };
                let changed =
                    existing.pointer("/spec/template") != applied.pointer("/spec/template");
                let desired = workload.strategy.desired_replicas;
                let has_all =
                    desired.is_none_or(|it| usize::try_from(it).is_ok_and(|it| it <= pods.len()));
                // Otherwise, the quota must have room for a new pod alongside the old ones.
                let complete = has_all && (workload.strategy.max_unavailable > 0 || !changed);
                if changed {
                    let restart = of_template(&workload, &pods);
                    preview.cost = Some(cost::of_restart(&restart, per_pod));
                    preview.restart = Some(restart);
                }
                complete
            }
            (None, _) => {
                preview.cost = Some(cost::of_start(own.replicas, per_pod));
                false
            }
            (Some(_), None) => return,
        };
        if let Some(pod) = standalone::pod(&own) {
            let object = format!("pod of {}", own.workload.object());
            self.admit_pod(preview, &object, pod, complete).await;
        }
    }

    async fn pods_of_workload(&self, workload: &Value, preview: &mut Preview) -> Vec<PodState> {
        let selector = Selector::from_json(&workload["spec"]["selector"]);
        let selector = selector.map(|it| it.to_string()).unwrap_or_default();
        let params = ListParams::default().labels(&selector);
        let (kind, within) = (resource::<Pod>(), Some(self.namespace));
        let listed = self.cluster.list_with(&kind, within, params).await;
        let pods = listed.map_err(|failure| preview.notes.push(failure.text));
        let pods = pods.unwrap_or_default();
        let active = pods
            .iter()
            .filter(|it| it["metadata"]["deletionTimestamp"].is_null());
        active.map(|pod| state(pod, false)).collect()
    }
}

/// The state of a pod, as far as a restart depends on it.
pub fn state(pod: &Value, is_current: bool) -> PodState {
    PodState {
        name: pod["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        ready: is_ready(pod),
        is_current,
    }
}
