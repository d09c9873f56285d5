//! Knative Serving: every Revision of a Service has its own Deployment (RES-20).

use serde_json::Value;

use super::fields::{Fields, Read, waiting};
use super::owned::{CONFIGURATION, DEPLOYMENT, Owned, REPLICA_SET, REVISION, SERVICE};
use super::server::main_container;
use super::{
    ContainerShape, GroupKind, ObjectRef, OwnerRule, PodMatch, Related, Resolution, Resolver,
    RolloutMethod, Scale, Selector, Server, Target,
};

pub(super) static KNATIVE_SERVICE: KnativeService = KnativeService;

const SERVICE_LABEL: &str = "serving.knative.dev/service";
pub(super) const REVISION_LABEL: &str = "serving.knative.dev/revision";
/// Set on Deployments since Knative 1.22, which does not touch a Deployment until this hash changes.
const HASH_LABEL: &str = "serving.knative.dev/deployment-hash";
const DEFAULT_PORT: u16 = 8080;
const NEVER_SCALED: &str = "Knative scales it by requests and reverts any other number of pods; keep pods with \
                            annotation autoscaling.knative.dev/min-scale in spec.template, and set spec.scaling.enabled to false";

pub(super) struct KnativeService;

impl Resolver for KnativeService {
    fn group_kind(&self) -> GroupKind<'static> {
        SERVICE
    }

    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::of_labels([(SERVICE_LABEL, name)]),
            owner: OwnerRule::Kind(REPLICA_SET),
        }
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[CONFIGURATION, REVISION, DEPLOYMENT]
    }

    fn unscalable_reason(&self) -> Option<&'static str> {
        Some(NEVER_SCALED)
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server {
        let port = main_container(containers, main).and_then(|it| it.port);
        Server::on_port(Some(port.unwrap_or(DEFAULT_PORT)), "rest")
    }
}

impl KnativeService {
    /// Every Revision has its own Deployment, and pods of the next one must be recognised as soon as they are created,
    /// so the Service itself groups the pods.
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let service = Fields::of(target, SERVICE.kind)?;
        let itself = &service.itself;
        let template = ["spec", "template", "metadata", "name"];
        let names_revisions = service.text(&template)?.is_some();
        let Some(revision) = service.text(&["status", "latestReadyRevisionName"])? else {
            return Err(waiting(format!(
                "{itself}: status.latestReadyRevisionName is empty; waiting for the first ready Revision"
            )));
        };
        let Some((below, deployment)) = deployment_of(target, revision, related) else {
            return Err(waiting(format!(
                "{itself} has no Deployment for Revision/{revision} yet; waiting for Knative to create it"
            )));
        };
        let keeps_template_edits = deployment.label(HASH_LABEL).is_some();
        let roll = match ObjectRef::of(deployment.object) {
            Some(workload) if keeps_template_edits => {
                RolloutMethod::AnnotateTemplate(vec![workload])
            }
            // a change would need a new name for the Revision, because this one exists
            _ if names_revisions => RolloutMethod::Evict,
            _ => RolloutMethod::Annotate(
                itself.clone(),
                vec!["spec", "template", "metadata", "annotations"],
            ),
        };
        Ok(Target {
            workload: itself.clone(),
            pods: self.unresolved_pods(service.name()),
            chain: std::iter::once(itself.clone()).chain(below).collect(),
            owner: None,
            roll,
            scale: Scale::unscalable(itself, NEVER_SCALED),
            server: super::server::template_server(self, deployment.object),
            adapter: None,
            warnings: service.owner_warning().into_iter().collect(),
        })
    }
}

/// The Deployment of a Revision and the chain of both, if both belong to this Service. Names alone do not prove that.
pub(super) fn deployment_of<'a>(
    service: &'a Value,
    revision: &str,
    related: &'a Related,
) -> Option<(Vec<ObjectRef>, Owned<'a>)> {
    let uid = |object: &'a Value| object.pointer("/metadata/uid")?.as_str();
    for configuration in related.owned_by(CONFIGURATION, uid(service)?) {
        let Some(configuration_uid) = uid(configuration.object) else {
            continue;
        };
        let named = related
            .owned_by(REVISION, configuration_uid)
            .find(|it| it.name() == revision);
        let Some(named) = named else { continue };
        let Some(deployment) = related.owned_by(DEPLOYMENT, uid(named.object)?).next() else {
            continue;
        };
        let between = [named.object, deployment.object];
        let below = between.into_iter().filter_map(ObjectRef::of);
        return Some((below.collect(), deployment));
    }
    None
}
