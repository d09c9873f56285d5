//! Seldon Core 1 (RES-21).

use serde_json::Value;

use super::fields::{Fields, Read, waiting};
use super::owned::{DEPLOYMENT, Owned, REPLICA_SET, of_deployment};
use super::server::template_server;
use super::{
    ContainerShape, GroupKind, ObjectRef, Operator, OwnerRule, PodMatch, Related, Requirement,
    Resolution, Resolver, RolloutMethod, Scale, Selector, Server, Target,
};

pub(super) static SELDON_DEPLOYMENT: SeldonDeployment = SeldonDeployment;

const KIND: GroupKind<'static> = GroupKind {
    group: "machinelearning.seldon.io",
    kind: "SeldonDeployment",
};
const ID: &str = "seldon-deployment-id";
const APP: &str = "app";
/// The container that serves all containers of an inference graph.
const ENGINE: &str = "seldon-container-engine";

pub(super) struct SeldonDeployment;

impl Resolver for SeldonDeployment {
    fn group_kind(&self) -> GroupKind<'static> {
        KIND
    }

    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::of_labels([(ID, name)]),
            owner: OwnerRule::Kind(REPLICA_SET),
        }
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[DEPLOYMENT]
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, containers: &[ContainerShape<'_>], _: Option<&str>) -> Server {
        let with_engine = containers.iter().any(|it| it.name == ENGINE);
        Server::on_port(Some(if with_engine { 8000 } else { 9000 }), "rest")
    }
}

impl SeldonDeployment {
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let seldon = Fields::of(target, KIND.kind)?;
        let itself = &seldon.itself;
        let names = deployments(&seldon)?;
        let scale_refused = scale_refused(&seldon)?;
        let is_in_status = |it: &Owned<'_>| names.contains(&it.name());
        let found: Vec<_> = related
            .owned_by(DEPLOYMENT, seldon.uid)
            .filter(is_in_status)
            .collect();
        let workloads: Vec<_> = found
            .iter()
            .filter_map(|it| ObjectRef::of(it.object))
            .collect();
        let Some(first) = found.first() else {
            return Err(waiting(format!(
                "{itself} owns no Deployment of status.deploymentStatus yet; waiting for Seldon to create it"
            )));
        };
        let only = match (&names[..], &workloads[..]) {
            ([_], [only]) => Some(only.clone()),
            _ => None,
        };
        let scale = match (scale_refused, &only) {
            (Some(why), _) => Scale::Refused(why),
            (None, Some(only)) => Scale::Object(only.clone()),
            (None, None) => Scale::refused(format!(
                "{itself} has several Deployments, {}, and a queue can scale only one; merge them into one predictor \
                 with one component, or set spec.scaling.enabled to false",
                names.join(" and ")
            )),
        };
        let unresolved = self.unresolved_pods(seldon.name());
        let of_these = Requirement {
            key: APP.to_owned(),
            operator: Operator::In(names.iter().map(|it| (*it).to_owned()).collect()),
        };
        let labels = unresolved.labels.requirements().iter().cloned();
        Ok(Target {
            pods: PodMatch {
                labels: Selector::new(labels.chain([of_these])),
                owner: only
                    .as_ref()
                    .map_or(unresolved.owner, |it| of_deployment(&*it.name)),
            },
            workload: only.unwrap_or_else(|| itself.clone()),
            chain: std::iter::once(itself.clone())
                .chain(workloads.iter().cloned())
                .collect(),
            owner: None,
            roll: RolloutMethod::AnnotateTemplate(workloads),
            scale,
            server: template_server(self, first.object),
            adapter: None,
            warnings: seldon.owner_warning().into_iter().collect(),
        })
    }
}

/// The target's Deployments, without explainers.
fn deployments<'a>(seldon: &Fields<'a>) -> Read<Vec<&'a str>> {
    let path = ["status", "deploymentStatus"];
    let mut names = Vec::new();
    for (name, status) in seldon.object(&path)?.into_iter().flatten() {
        let status = seldon.part(&["status", "deploymentStatus", name], status)?;
        let explains = status.get("explainerFor").and_then(Value::as_str);
        if explains.is_none_or(str::is_empty) {
            names.push(name.as_str());
        }
    }
    if names.is_empty() {
        return Err(waiting(format!(
            "{}: status.deploymentStatus is empty; waiting for Seldon to create a Deployment",
            seldon.itself
        )));
    }
    Ok(names)
}

fn scale_refused(seldon: &Fields<'_>) -> Read<Option<String>> {
    let is_set = |part: &serde_json::Map<String, Value>, key: &str| {
        part.get(key).is_some_and(|it| !it.is_null())
    };
    let mut found = None;
    if seldon.number(&["spec", "replicas"])?.is_some() {
        found = Some("spec.replicas");
    }
    let predictors = ["spec", "predictors"];
    for predictor in seldon.list(&predictors)? {
        let predictor = seldon.part(&predictors, predictor)?;
        if is_set(predictor, "replicas") {
            found = found.or(Some("spec.predictors[].replicas"));
        }
        let path = ["spec", "predictors", "componentSpecs"];
        let components = match predictor.get("componentSpecs") {
            None | Some(Value::Null) => &[],
            Some(list) => list
                .as_array()
                .ok_or_else(|| seldon.of_unexpected_type(&path, "a list"))?
                .as_slice(),
        };
        for component in components {
            let component = seldon.part(&path, component)?;
            for (key, shown) in [
                ("replicas", "spec.predictors[].componentSpecs[].replicas"),
                ("hpaSpec", "spec.predictors[].componentSpecs[].hpaSpec"),
                ("kedaSpec", "spec.predictors[].componentSpecs[].kedaSpec"),
            ] {
                if is_set(component, key) {
                    found = found.or(Some(shown));
                }
            }
        }
    }
    Ok(found.map(|field| {
        format!(
            "{}: {field} is set, so Seldon sets the replicas; remove it, or set spec.scaling.enabled to false",
            seldon.itself
        )
    }))
}
