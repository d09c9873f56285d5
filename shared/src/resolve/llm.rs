//! `KServe`'s `LLMInferenceService`: backed by a Deployment or a `LeaderWorkerSet` (RES-17).

use serde_json::Value;

use super::fields::{Fields, Read, waiting};
use super::kserve::unless_stopped;
use super::owned::{
    DEPLOYMENT, LEADER_WORKER_SET, Owned, group_restart_caveat, of_deployment, of_stateful_set,
    template,
};
use super::server::{main_container, template_server};
use super::{
    ContainerShape, GroupKind, ObjectRef, OwnerRule, PodMatch, Related, Resolution, Resolver,
    RolloutMethod, Scale, Selector, Server, Target, ambiguous,
};

pub(super) static LLM_INFERENCE_SERVICE: LlmInferenceService = LlmInferenceService;

const KIND: GroupKind<'static> = GroupKind {
    group: "serving.kserve.io",
    kind: "LLMInferenceService",
};
const COMPONENT: &str = "kserve.io/component";
const WORKLOAD: &str = "workload";
const ROLE: &str = "llm-d.ai/role";

pub(super) struct LlmInferenceService;

impl Resolver for LlmInferenceService {
    fn group_kind(&self) -> GroupKind<'static> {
        KIND
    }

    /// Prefill-only pods have the same labels but another owner.
    fn unresolved_pods(&self, name: &str) -> PodMatch {
        let leaders = OwnerRule::of_workload(
            "leaderworkerset.x-k8s.io/v1",
            LEADER_WORKER_SET.kind,
            &format!("{name}-kserve-mn"),
        );
        let one = of_deployment(format!("{name}-kserve"));
        PodMatch {
            labels: Selector::of_labels([
                ("app.kubernetes.io/name", name),
                ("app.kubernetes.io/part-of", "llminferenceservice"),
                (COMPONENT, WORKLOAD),
            ]),
            owner: OwnerRule::AnyOf(std::iter::once(one).chain(leaders).collect()),
        }
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[DEPLOYMENT, LEADER_WORKER_SET]
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, containers: &[ContainerShape<'_>], main: Option<&str>) -> Server {
        let https = main_container(containers, main).is_some_and(|it| it.https);
        let scheme = if https { "https" } else { "http" };
        Server {
            url: Some(format!("{scheme}://127.0.0.1:8000")),
            adapter: "openai_chat",
        }
    }
}

impl LlmInferenceService {
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let service = Fields::of(target, KIND.kind)?;
        let itself = &service.itself;
        let replicas = service.number(&["spec", "replicas"])?;
        let scaling = service.object(&["spec", "scaling"])?;
        let object = primary(&service, related)?;
        let workload = ObjectRef::of(object).ok_or_else(|| not_created_yet(itself))?;
        let unresolved = self.unresolved_pods(service.name());
        let owner = if workload.kind == DEPLOYMENT.kind {
            of_deployment(&*workload.name)
        } else {
            of_stateful_set(&*workload.name)
        };
        let scale = match (replicas, scaling) {
            (Some(_), _) => Scale::refused(format!(
                "{itself}: spec.replicas is set, and KServe keeps that number; remove it, or set spec.scaling.enabled of the AsyncActor to false"
            )),
            (None, Some(_)) => Scale::refused(format!(
                "{itself}: spec.scaling is set, so KServe scales it; remove it, or set spec.scaling.enabled of the AsyncActor to false"
            )),
            (None, None) => Scale::Object(workload.clone()),
        };
        Ok(Target {
            pods: PodMatch {
                owner,
                ..unresolved
            },
            chain: vec![itself.clone(), workload.clone()],
            owner: None,
            roll: RolloutMethod::Annotate(itself.clone(), vec!["spec", "annotations"]),
            scale,
            server: template_server(self, object),
            adapter: None,
            warnings: service
                .owner_warning()
                .into_iter()
                .chain(group_restart_caveat(
                    &workload,
                    object,
                    "KServe sets that policy, so give the model time to load, and test the handler before you bind",
                ))
                .collect(),
            workload,
        })
    }
}

fn not_created_yet(service: &ObjectRef) -> Resolution {
    waiting(format!(
        "{service} has neither a Deployment nor a LeaderWorkerSet yet; waiting for KServe to create one"
    ))
}

/// The workload that serves requests; `status.workloads.primary` names it since v0.19.
fn primary<'a>(service: &'a Fields<'_>, related: &'a Related) -> Read<&'a Value> {
    let at = |key| ["status", "workloads", "primary", key];
    let primary_ref = (service.text(&at("kind"))?, service.text(&at("name"))?);
    let kinds = [DEPLOYMENT, LEADER_WORKER_SET].into_iter();
    let owned = kinds.flat_map(|kind| {
        related
            .owned_by(kind, service.uid)
            .map(move |owned| (kind.kind, owned))
    });
    let owned: Vec<(&str, Owned<'_>)> = owned.collect();
    if let (Some(kind), Some(name)) = primary_ref {
        let named = owned
            .iter()
            .find(|(its_kind, it)| *its_kind == kind && it.name() == name);
        return named.map(|(_, it)| it.object).ok_or_else(|| {
            let text = format!(
                "{}: status.workloads.primary is {kind}/{name}, which does not belong to it yet; waiting for KServe \
                 to create it",
                service.itself
            );
            unless_stopped(service, waiting(text))
        });
    }
    let hints = ["", "-mn"].map(|suffix| format!("{}-kserve{suffix}", service.name()));
    let by_hint = hints
        .iter()
        .find_map(|hint| owned.iter().find(|(_, it)| it.name() == hint));
    if let Some((_, it)) = by_hint {
        return Ok(it.object);
    }
    let serves_requests = |it: &Owned<'_>| {
        template(it.object).is_some()
            && it.pod_label(COMPONENT) == Some(WORKLOAD)
            && it.pod_label(ROLE) != Some("prefill")
    };
    let found: Vec<_> = owned.iter().filter(|(_, it)| serves_requests(it)).collect();
    match &found[..] {
        [] => Err(unless_stopped(service, not_created_yet(&service.itself))),
        [(_, one)] => Ok(one.object),
        several => Err(ambiguous(
            &service.itself,
            several
                .iter()
                .filter_map(|(_, it)| ObjectRef::of(it.object)),
        )),
    }
}
