//! Seldon Core 2: a Server has pods, and a Model is loaded into the pods of a Server (RES-22).

use serde_json::Value;

use super::fields::{Fields, Read, refused, waiting};
use super::owned::{DEPLOYMENT, Owned, STATEFUL_SET, of_deployment, of_stateful_set};
use super::{
    ContainerShape, GroupKind, ObjectRef, OwnerRule, PodMatch, Related, Resolution, Resolver,
    RolloutMethod, Scale, Selector, Server, Target, ambiguous,
};

pub(super) static SELDON_SERVER: SeldonServer = SeldonServer;
pub(super) static SELDON_MODEL: SeldonModel = SeldonModel;

const GROUP: &str = "mlops.seldon.io";
const SERVER_KIND: GroupKind<'static> = GroupKind {
    group: GROUP,
    kind: "Server",
};
const MODEL_KIND: GroupKind<'static> = GroupKind {
    group: GROUP,
    kind: "Model",
};
const LABEL: &str = "seldon-server-name";

pub(super) struct SeldonServer;

impl Resolver for SeldonServer {
    fn group_kind(&self) -> GroupKind<'static> {
        SERVER_KIND
    }

    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::of_labels([(LABEL, name)]),
            owner: OwnerRule::AnyOf(vec![of_stateful_set(name), of_deployment(name)]),
        }
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[STATEFUL_SET, DEPLOYMENT]
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, _: &[ContainerShape<'_>], _: Option<&str>) -> Server {
        server()
    }
}

impl SeldonServer {
    /// A Server's workload is a `StatefulSet`, or a Deployment if Seldon is so configured.
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let seldon = Fields::of(target, SERVER_KIND.kind)?;
        let itself = &seldon.itself;
        let kinds = [STATEFUL_SET, DEPLOYMENT].into_iter();
        let made = kinds.flat_map(|kind| related.owned_by(kind, seldon.uid));
        let makes_its_pods = |it: &Owned<'_>| it.pod_label(LABEL) == Some(seldon.name());
        let workloads = made.filter(makes_its_pods);
        let workloads: Vec<_> = workloads
            .filter_map(|it| ObjectRef::of(it.object))
            .collect();
        let workload = match &workloads[..] {
            [] => {
                return Err(waiting(format!(
                    "{itself} has no StatefulSet yet; waiting for Seldon to create it"
                )));
            }
            [one] => one.clone(),
            several => return Err(ambiguous(itself, several.iter().cloned())),
        };
        let owner = OwnerRule::of_workload(&workload.api_version, &workload.kind, &workload.name);
        let unresolved = self.unresolved_pods(seldon.name());
        Ok(Target {
            pods: PodMatch {
                labels: unresolved.labels,
                owner: owner.unwrap_or(unresolved.owner),
            },
            chain: vec![itself.clone(), workload.clone()],
            owner: None,
            roll: RolloutMethod::AnnotateTemplate(vec![workload.clone()]),
            // Seldon resets the workload's replicas on every reconcile, so scale the Server instead
            scale: Scale::Object(itself.clone()),
            server: server(),
            adapter: None,
            warnings: seldon.owner_warning().into_iter().collect(),
            workload,
        })
    }
}

fn server() -> Server {
    Server::on_port(Some(9000), "kserve_v2")
}

pub(super) struct SeldonModel;

impl Resolver for SeldonModel {
    fn group_kind(&self) -> GroupKind<'static> {
        MODEL_KIND
    }

    fn unresolved_pods(&self, _: &str) -> PodMatch {
        PodMatch::nothing()
    }

    fn resolve(&self, target: &Value, _: &Related) -> Resolution {
        self.read(target).into()
    }

    fn server(&self, _: &[ContainerShape<'_>], _: Option<&str>) -> Server {
        server()
    }
}

impl SeldonModel {
    #[expect(clippy::unused_self, reason = "as its siblings")]
    fn read(&self, target: &Value) -> Read<Target> {
        let model = Fields::of(target, MODEL_KIND.kind)?;
        let server = match model.text(&["spec", "server"])? {
            Some(server) => format!("Server/{server}"),
            None => "the Server that loads it".to_owned(),
        };
        Err(refused(format!(
            "{} has no pods of its own; set spec.workloadRef to {server} in a new AsyncActor",
            model.itself
        )))
    }
}
