//! Yatai's `BentoDeployment` (RES-23).

use serde_json::Value;

use super::fields::{Fields, Read, waiting};
use super::owned::{DEPLOYMENT, Owned, of_deployment};
use super::{
    Caveat, CaveatReason, ContainerShape, GroupKind, ObjectRef, PodMatch, Related, Resolution,
    Resolver, RolloutMethod, Scale, Selector, Server, Target, ambiguous,
};

pub(super) static BENTO_DEPLOYMENT: BentoDeployment = BentoDeployment;

const KIND: GroupKind<'static> = GroupKind {
    group: "serving.yatai.ai",
    kind: "BentoDeployment",
};
const LABEL: &str = "yatai.ai/selector";
const NEVER_SCALED: &str = "Yatai always creates an HPA for it; set spec.scaling.enabled to false, or deploy the Bento's image as \
                            a Deployment";

pub(super) struct BentoDeployment;

impl Resolver for BentoDeployment {
    fn group_kind(&self) -> GroupKind<'static> {
        KIND
    }

    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::of_labels([(LABEL, name)]),
            owner: of_deployment(name),
        }
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[DEPLOYMENT]
    }

    fn unscalable_reason(&self) -> Option<&'static str> {
        Some(NEVER_SCALED)
    }

    fn resolve(&self, target: &Value, related: &Related) -> Resolution {
        self.read(target, related).into()
    }

    fn server(&self, _: &[ContainerShape<'_>], _: Option<&str>) -> Server {
        server()
    }
}

impl BentoDeployment {
    /// Resolves to the Deployment of Bento's API server. Each runner has its own Deployment with another name and
    /// label.
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let bento = Fields::of(target, KIND.kind)?;
        let itself = &bento.itself;
        let makes_its_pods = |it: &Owned<'_>| it.pod_label(LABEL) == Some(bento.name());
        let owned = related
            .owned_by(DEPLOYMENT, bento.uid)
            .filter(makes_its_pods);
        let workloads: Vec<_> = owned.filter_map(|it| ObjectRef::of(it.object)).collect();
        let workload = match &workloads[..] {
            [] => {
                return Err(waiting(format!(
                    "{itself} has no Deployment for its API server yet; waiting for Yatai to create it"
                )));
            }
            [one] => one.clone(),
            several => return Err(ambiguous(itself, several.iter().cloned())),
        };
        let legacy = Caveat::new(
            CaveatReason::BindingCaveat,
            format!(
                "{itself}: Yatai has had no release since 2024; deploy the Bento's image as a Deployment and bind that"
            ),
        );
        Ok(Target {
            pods: PodMatch {
                owner: of_deployment(&*workload.name),
                ..self.unresolved_pods(bento.name())
            },
            chain: vec![itself.clone(), workload.clone()],
            owner: None,
            roll: RolloutMethod::Annotate(
                itself.clone(),
                vec!["spec", "extraPodMetadata", "annotations"],
            ),
            scale: Scale::unscalable(itself, NEVER_SCALED),
            server: server(),
            adapter: None,
            warnings: bento.owner_warning().into_iter().chain([legacy]).collect(),
            workload,
        })
    }
}

fn server() -> Server {
    Server::on_port(Some(3000), "rest")
}
