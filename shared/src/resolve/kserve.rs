//! `KServe`'s `InferenceService`: backed by a Deployment (RES-15) or a Knative Service (RES-16).

use serde_json::Value;

use crate::names::annotation::AUTOSCALER_CLASS;
use crate::names::manager;

use super::fields::{Fields, Read, refused, waiting};
use super::owned::{
    CONFIGURATION, DEPLOYMENT, Owned, REPLICA_SET, REVISION, SERVICE, of_deployment,
};
use super::server::main_container;
use super::{
    AutoscalerHandoff, Caveat, CaveatReason, ContainerShape, Finding, FindingReason, GroupKind,
    ObjectRef, Operator, OwnerRule, PodMatch, Related, Requirement, Resolution, Resolver,
    RolloutMethod, Scale, Selector, Server, Target, ambiguous, knative,
};

pub(super) static INFERENCE_SERVICE: InferenceService = InferenceService;

pub(super) const KIND: GroupKind<'static> = GroupKind {
    group: "serving.kserve.io",
    kind: "InferenceService",
};

const LABEL: &str = "serving.kserve.io/inferenceservice";
const COMPONENT: &str = "component";
const PREDICTOR: &str = "predictor";
/// Autoscaler class of a service that `KServe` does not scale.
pub(super) const EXTERNAL: &str = "external";
const DEPLOYMENT_MODE: &str = "serving.kserve.io/deploymentMode";
/// Annotation that removes a service's workload while it is set.
const STOP: &str = "serving.kserve.io/stop";
/// Path of the annotations that `KServe` copies to the pods.
const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
const PORT: u16 = 8080;
const V1: &str = "kserve_v1";
const V2: &str = "kserve_v2";
/// Image name prefixes of servers that do not support version 1 of the protocol.
const ONLY_V2: [&str; 2] = ["tritonserver", "mlserver"];

/// Fields of a predictor that may set the protocol version: the generic model, or one field per framework.
const MODELS: [&str; 10] = [
    "model",
    "sklearn",
    "xgboost",
    "tensorflow",
    "pytorch",
    "triton",
    "onnx",
    "huggingface",
    "pmml",
    "lightgbm",
];

pub(super) struct InferenceService;

impl Resolver for InferenceService {
    fn group_kind(&self) -> GroupKind<'static> {
        KIND
    }

    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::of_labels([(LABEL, name), (COMPONENT, PREDICTOR)]),
            owner: OwnerRule::Kind(REPLICA_SET),
        }
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[DEPLOYMENT, SERVICE, CONFIGURATION, REVISION]
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server {
        let image = main_container(containers, main).map_or("", ContainerShape::image_name);
        let only_v2 = ONLY_V2.iter().any(|it| image.starts_with(it));
        Server::on_port(Some(PORT), if only_v2 { V2 } else { V1 })
    }
}

impl InferenceService {
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let service = Fields::of(target, KIND.kind)?;
        let itself = &service.itself;
        let requested_mode = service.annotation(DEPLOYMENT_MODE)?;
        let mode = service.text(&["status", "deploymentMode"])?;
        match mode.or(requested_mode.filter(|it| *it == "ModelMesh")) {
            Some("Standard" | "RawDeployment") => self.standard(&service, target, related),
            Some("Knative" | "Serverless") => self.knative(&service, related),
            Some("ModelMesh") => Err(refused(format!(
                "{itself}: its deployment mode is ModelMesh, whose pods serve other models as well; create a new \
                 InferenceService with annotation {DEPLOYMENT_MODE}: Standard"
            ))),
            Some(other) => Err(refused(format!(
                "{itself}: status.deploymentMode {other} is unknown; create a new InferenceService with annotation \
                 {DEPLOYMENT_MODE}: Standard"
            ))),
            None => Err(unless_stopped_and_empty(
                &service,
                related,
                format!("{itself}: status.deploymentMode is empty; waiting for KServe to set it"),
            )),
        }
    }

    fn standard(&self, service: &Fields<'_>, target: &Value, related: &Related) -> Read<Target> {
        let itself = &service.itself;
        let adapter = adapter(service)?;
        let scale_refused = scale_refused(service)?;
        let object = predictor(service, related)?;
        let handoff = handoff(service, target, object)?;
        let workload = ObjectRef::of(object).ok_or_else(|| not_created_yet(itself))?;
        let mut warnings: Vec<_> = service.owner_warning().into_iter().collect();
        if has_canary(service)? {
            warnings.push(Caveat::new(
                CaveatReason::BindingCaveat,
                format!(
                    "{itself} has a canary: only pods of {workload} get the sidecar, and messages do not follow the \
                     traffic split; to compare two models, bind another actor to a second InferenceService"
                ),
            ));
        }
        Ok(Target {
            pods: PodMatch {
                owner: of_deployment(&*workload.name),
                ..self.unresolved_pods(service.name())
            },
            chain: vec![itself.clone(), workload.clone()],
            owner: None,
            roll: RolloutMethod::Annotate(itself.clone(), ANNOTATIONS.to_vec()),
            scale: match (scale_refused, handoff) {
                (Some(why), _) => Scale::Refused(why),
                (None, Some(handoff)) => Scale::HandedOff(workload.clone(), handoff),
                (None, None) => Scale::Object(workload.clone()),
            },
            server: Server::on_port(Some(PORT), adapter),
            adapter: Some(adapter),
            warnings,
            workload,
        })
    }

    /// Every Revision has its own Deployment, and pods of the next one must be recognised as soon as they are created,
    /// so the `InferenceService` itself groups the pods.
    fn knative(&self, service: &Fields<'_>, related: &Related) -> Read<Target> {
        let itself = &service.itself;
        let adapter = adapter(service)?;
        let path = ["status", "components", PREDICTOR, "latestReadyRevision"];
        let Some(revision) = service.text(&path)? else {
            let text = format!(
                "{itself}: status.components.predictor.latestReadyRevision is empty; waiting for the first ready \
                 Revision"
            );
            return Err(unless_stopped_and_empty(service, related, text));
        };
        let services = related.owned_by(SERVICE, service.uid);
        let made = services.filter_map(|it| knative::deployment_of(it.object, revision, related));
        let Some((below, _)) = made.into_iter().next() else {
            let text = format!(
                "{itself} has no Deployment for Revision/{revision} yet; waiting for Knative to create it"
            );
            return Err(unless_stopped_and_empty(service, related, text));
        };
        let unresolved = self.unresolved_pods(service.name());
        let of_a_revision = Requirement {
            key: knative::REVISION_LABEL.to_owned(),
            operator: Operator::Exists,
        };
        let labels = unresolved.labels.requirements().iter().cloned();
        Ok(Target {
            workload: itself.clone(),
            pods: PodMatch {
                labels: Selector::new(labels.chain([of_a_revision])),
                owner: unresolved.owner,
            },
            chain: std::iter::once(itself.clone()).chain(below).collect(),
            owner: None,
            roll: RolloutMethod::Annotate(itself.clone(), ANNOTATIONS.to_vec()),
            scale: Scale::refused(format!(
                "{itself}: Knative scales it by requests and reverts any other number of pods; create a new \
                 InferenceService with annotation {DEPLOYMENT_MODE}: Standard, or set spec.scaling.enabled to false"
            )),
            server: Server::on_port(Some(PORT), adapter),
            adapter: Some(adapter),
            warnings: service.owner_warning().into_iter().collect(),
        })
    }
}

/// Returns `TargetStopped` for a service that its user has stopped and that has no workload, else `otherwise`.
pub(super) fn unless_stopped(service: &Fields<'_>, otherwise: Resolution) -> Resolution {
    let itself = &service.itself;
    let stop = service.annotation(STOP).ok().flatten();
    if !stop.is_some_and(|it| it.eq_ignore_ascii_case("true")) {
        return otherwise;
    }
    Resolution::Waiting(Finding::new(
        FindingReason::TargetStopped,
        format!(
            "{itself}: annotation {STOP} is true, so it has no pods, and messages wait in the queue; remove the annotation to start it"
        ),
    ))
}

/// Waits because nothing says where the workload is, unless nothing has been created and the user has stopped the
/// service.
fn unless_stopped_and_empty(service: &Fields<'_>, related: &Related, text: String) -> Resolution {
    let otherwise = waiting(text);
    let mut kinds = [DEPLOYMENT, SERVICE].into_iter();
    if kinds.any(|kind| related.owned_by(kind, service.uid).next().is_some()) {
        otherwise
    } else {
        unless_stopped(service, otherwise)
    }
}

fn not_created_yet(service: &ObjectRef) -> Resolution {
    waiting(format!(
        "{service} has no predictor Deployment yet; waiting for KServe to create it"
    ))
}

/// The predictor's Deployment; there may also be Deployments of workers and canaries.
fn predictor<'a>(service: &'a Fields<'_>, related: &'a Related) -> Read<&'a Value> {
    let name = service.name();
    let own_name = service.text(&["spec", PREDICTOR, "name"])?;
    let is_predictor = |it: &Owned<'_>| it.pod_label(COMPONENT) == Some(PREDICTOR);
    let owned = related.owned_by(DEPLOYMENT, service.uid);
    let found: Vec<_> = owned.filter(is_predictor).collect();
    let hints = [
        own_name.map(|own| format!("{name}-{own}-predictor")),
        Some(format!("{name}-predictor")),
        Some(format!("{name}-predictor-default")),
    ];
    let by_hint = hints
        .iter()
        .flatten()
        .find_map(|hint| found.iter().find(|it| it.name() == hint));
    match (&found[..], by_hint) {
        ([], _) => Err(unless_stopped(service, not_created_yet(&service.itself))),
        ([one], _) | (_, Some(one)) => Ok(one.object),
        (several, None) => Err(ambiguous(
            &service.itself,
            several.iter().filter_map(|it| ObjectRef::of(it.object)),
        )),
    }
}

fn adapter(service: &Fields<'_>) -> Read<&'static str> {
    for model in MODELS {
        let path = ["spec", PREDICTOR, model, "protocolVersion"];
        if let Some(version) = service.text(&path)? {
            return Ok(if version == "v2" { V2 } else { V1 });
        }
    }
    let triton = service.object(&["spec", PREDICTOR, "triton"])?.is_some();
    Ok(if triton { V2 } else { V1 })
}

fn scale_refused(service: &Fields<'_>) -> Read<Option<String>> {
    let itself = &service.itself;
    let class = service.annotation(AUTOSCALER_CLASS)?;
    if service
        .object(&["spec", PREDICTOR, "workerSpec"])?
        .is_some()
    {
        return Ok(Some(format!(
            "{itself}: spec.predictor.workerSpec is set, so its pods are the nodes of one model; set spec.scaling.enabled to false"
        )));
    }
    Ok(class.filter(|it| *it != EXTERNAL).map(|class| {
        format!(
            "{itself}: annotation {AUTOSCALER_CLASS} is {class}, so KServe sets the replicas; set it to external, or set spec.scaling.enabled to false"
        )
    }))
}

/// The autoscaler handoff of the service: without an autoscaler class, `KServe` creates an HPA, which it deletes once
/// the class is external. Leave an autoscaler class set by another field manager (SO-5).
fn handoff(
    service: &Fields<'_>,
    target: &Value,
    workload: &Value,
) -> Read<Option<AutoscalerHandoff>> {
    let is_set = is_handed_off(target);
    let class = service.annotation(AUTOSCALER_CLASS)?;
    let annotations = workload.pointer("/spec/template/metadata/annotations");
    let of_pods = annotations.and_then(|it| it.get(AUTOSCALER_CLASS)?.as_str());
    Ok((is_set || class.is_none()).then(|| AutoscalerHandoff {
        owner: service.itself.clone(),
        is_set,
        is_propagated: of_pods == class,
    }))
}

/// Whether the object's autoscaler class is ours, according to `managedFields`.
#[must_use]
pub fn is_handed_off(object: &Value) -> bool {
    let entries = object.pointer("/metadata/managedFields");
    let mut entries = entries.and_then(Value::as_array).into_iter().flatten();
    entries.any(|entry| {
        let field = format!("f:{AUTOSCALER_CLASS}");
        let annotations = entry.pointer("/fieldsV1/f:metadata/f:annotations");
        entry["manager"] == manager::OWNER && annotations.is_some_and(|it| it.get(&field).is_some())
    })
}

fn has_canary(service: &Fields<'_>) -> Read<bool> {
    let percent = service.number(&["spec", PREDICTOR, "canaryTrafficPercent"])?;
    let further = service.list(&["spec", "canary"])?;
    Ok(percent.is_some() || !further.is_empty())
}
