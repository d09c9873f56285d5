//! KAITO: a `Workspace` runs one model, an `InferenceSet` several of them (RES-13, RES-14).

use serde_json::Value;

use super::fields::{Fields, Read, refused, waiting};
use super::owned::{DEPLOYMENT, Owned, STATEFUL_SET, of_deployment, of_stateful_set};
use super::server::template_server;
use super::{
    Caveat, CaveatReason, ContainerShape, GroupKind, ObjectRef, OwnerRule, PodMatch, Related,
    Resolution, Resolver, RolloutMethod, Scale, Selector, Server, Target, ambiguous, controller_of,
};

pub(super) static WORKSPACE: Workspace = Workspace;
pub(super) static INFERENCE_SET: InferenceSet = InferenceSet;

const KAITO: &str = "kaito.sh";
const WORKSPACE_KIND: GroupKind<'static> = GroupKind {
    group: KAITO,
    kind: "Workspace",
};
const SET_KIND: GroupKind<'static> = GroupKind {
    group: KAITO,
    kind: "InferenceSet",
};

const WORKSPACE_LABEL: &str = "kaito.sh/workspace";
const SET_LABEL: &str = "inferenceset.kaito.sh/created-by";
/// Annotation that makes KAITO create its own `ScaledObject`.
const AUTO_PROVISION: &str = "scaledobject.kaito.sh/auto-provision";
/// A sidecar that takes over the server's port; the server itself moves to the next one.
const ROUTING_SIDECAR: &str = "llm-d-routing-sidecar";

pub(super) struct Workspace;

impl Resolver for Workspace {
    fn group_kind(&self) -> GroupKind<'static> {
        WORKSPACE_KIND
    }

    /// Matches by owner, too, because tuning Jobs have the same label.
    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::of_labels([(WORKSPACE_LABEL, name)]),
            owner: OwnerRule::AnyOf(vec![of_stateful_set(name), of_deployment(name)]),
        }
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[STATEFUL_SET, DEPLOYMENT]
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, containers: &[ContainerShape<'_>], _: Option<&str>) -> Server {
        server(containers)
    }
}

impl Workspace {
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let workspace = Fields::of(target, WORKSPACE_KIND.kind)?;
        let itself = &workspace.itself;
        if workspace.object(&["tuning"])?.is_some() {
            return Err(refused(format!(
                "{itself}: tuning is set, and a tuning job finishes; bind a Workspace with inference"
            )));
        }
        let nodes = workspace.number(&["status", "targetNodeCount"])?;
        let made_by = workspace.text(&["metadata", "labels", SET_LABEL])?;
        let object = workload_of(&workspace, related)?;
        let workload = ObjectRef::of(object).ok_or_else(|| not_created_yet(itself))?;
        let owner = OwnerRule::of_workload(&workload.api_version, &workload.kind, &workload.name);

        let set = controller_of(target)
            .filter(|owner| owner.group_kind() == SET_KIND)
            .map(|owner| owner.to_string())
            .or_else(|| made_by.map(|name| format!("{}/{name}", SET_KIND.kind)));
        let mut warnings: Vec<_> = workspace.owner_warning().into_iter().collect();
        let scale = match (set, nodes) {
            (Some(set), _) => Scale::refused(format!(
                "{itself} belongs to {set}, which scales it; set spec.workloadRef to {set} in a new AsyncActor, or set spec.scaling.enabled to false"
            )),
            (None, Some(1)) => {
                warnings.push(Caveat::new(
                    CaveatReason::ScalingCaveat,
                    format!(
                        "each additional replica of {workload} needs a node of its own that fits {itself}, and KAITO \
                         does not provision it: provide the nodes, or bind an InferenceSet"
                    ),
                ));
                Scale::Object(workload.clone())
            }
            (None, Some(nodes)) => Scale::refused(format!(
                "{itself}: status.targetNodeCount is {nodes}, so the replicas of {workload} are the nodes of one model; bind an InferenceSet, which scales by whole models, or set spec.scaling.enabled to false"
            )),
            (None, None) => Scale::refused(format!(
                "{itself}: status.targetNodeCount is missing; scaling starts once KAITO has set it to 1"
            )),
        };
        Ok(Target {
            pods: PodMatch {
                labels: Selector::of_labels([(WORKSPACE_LABEL, workspace.name())]),
                owner: owner.unwrap_or_else(|| self.unresolved_pods(workspace.name()).owner),
            },
            chain: vec![itself.clone(), workload.clone()],
            owner: None,
            roll: RolloutMethod::AnnotateTemplate(vec![workload.clone()]),
            scale,
            server: template_server(self, object),
            adapter: None,
            warnings,
            workload,
        })
    }
}

fn not_created_yet(workspace: &ObjectRef) -> Resolution {
    waiting(format!(
        "{workspace} has no StatefulSet yet; waiting for KAITO to create it"
    ))
}

/// KAITO creates a `StatefulSet` since v0.8, a Deployment up to v0.4.6, and either of them in between.
fn workload_of<'a>(workspace: &'a Fields<'_>, related: &'a Related) -> Read<&'a Value> {
    let kinds = [STATEFUL_SET, DEPLOYMENT].into_iter();
    let owned = kinds.flat_map(|kind| related.owned_by(kind, workspace.uid));
    let makes_its_pods = |it: &Owned<'_>| it.pod_label(WORKSPACE_LABEL) == Some(workspace.name());
    let found: Vec<_> = owned.filter(makes_its_pods).collect();
    match &found[..] {
        [] => Err(not_created_yet(&workspace.itself)),
        [one] => Ok(one.object),
        several => Err(ambiguous(
            &workspace.itself,
            several.iter().filter_map(|it| ObjectRef::of(it.object)),
        )),
    }
}

pub(super) struct InferenceSet;

impl Resolver for InferenceSet {
    fn group_kind(&self) -> GroupKind<'static> {
        SET_KIND
    }

    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::of_labels([(SET_LABEL, name)]),
            owner: OwnerRule::Kind(STATEFUL_SET),
        }
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[WORKSPACE_KIND, STATEFUL_SET]
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, containers: &[ContainerShape<'_>], _: Option<&str>) -> Server {
        server(containers)
    }
}

impl InferenceSet {
    /// Matches pods by label alone, so that pods of models added later are recognised and no model needs to exist while
    /// the set is scaled to zero.
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let set = Fields::of(target, SET_KIND.kind)?;
        let itself = &set.itself;
        let replicas = set.number(&["spec", "replicas"])?;
        let auto_provision = set.annotation(AUTO_PROVISION)?;
        let mut chain = vec![itself.clone()];
        let mut workloads = Vec::new();
        let mut template = None;
        for workspace in related.owned_by(WORKSPACE_KIND, set.uid) {
            let Ok(fields) = Fields::of(workspace.object, WORKSPACE_KIND.kind) else {
                continue;
            };
            chain.push(fields.itself.clone());
            for owned in related.owned_by(STATEFUL_SET, fields.uid) {
                if owned.pod_label(WORKSPACE_LABEL) == Some(fields.name())
                    && let Some(workload) = ObjectRef::of(owned.object)
                {
                    template = template.or(Some(owned.object));
                    chain.push(workload.clone());
                    workloads.push(workload);
                }
            }
        }
        if workloads.is_empty() && replicas != Some(0) {
            return Err(waiting(format!(
                "{itself}: none of its Workspaces has a StatefulSet yet; waiting for KAITO to create one"
            )));
        }
        let mut warnings: Vec<_> = set.owner_warning().into_iter().collect();
        let scale = if auto_provision == Some("true") {
            Scale::refused(format!(
                "{itself}: annotation {AUTO_PROVISION} is \"true\", so KAITO creates its own ScaledObject; remove \
                 that annotation, or set spec.scaling.enabled to false"
            ))
        } else {
            warnings.push(Caveat::new(
                CaveatReason::ScalingCaveat,
                format!(
                    "{itself}: KAITO before v0.11 cannot scale to 0; with such a release set spec.scaling.minReplicas to 1"
                ),
            ));
            Scale::Object(itself.clone())
        };
        Ok(Target {
            workload: itself.clone(),
            pods: self.unresolved_pods(set.name()),
            chain,
            owner: None,
            roll: RolloutMethod::AnnotateTemplate(workloads),
            scale,
            server: template.map_or_else(|| server(&[]), |it| template_server(self, it)),
            adapter: None,
            warnings,
        })
    }
}

fn server(containers: &[ContainerShape<'_>]) -> Server {
    let routed = containers.iter().any(|it| it.name == ROUTING_SIDECAR);
    Server::on_port(Some(if routed { 5001 } else { 5000 }), "openai_chat")
}
