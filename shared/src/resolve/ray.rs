//! `KubeRay`: the workers of a cluster, or of all clusters of a service (RES-18, RES-19). There is no workload: the
//! cluster controls its pods itself.

use serde_json::Value;

use super::fields::{Fields, Read, refused, waiting};
use super::{
    Caveat, CaveatReason, ContainerShape, GroupKind, ObjectRef, Operator, OwnerRule, PodMatch,
    Related, Requirement, Resolution, Resolver, RolloutMethod, Scale, Selector, Server, Target,
    owned_by_any,
};

pub(super) static CLUSTER: Cluster = Cluster;
pub(super) static SERVICE: Service = Service;

const CLUSTER_KIND: GroupKind<'static> = GroupKind {
    group: "ray.io",
    kind: "RayCluster",
};
const SERVICE_KIND: GroupKind<'static> = GroupKind {
    group: "ray.io",
    kind: "RayService",
};
const CLUSTER_LABEL: &str = "ray.io/cluster";
const NODE_TYPE: (&str, &str) = ("ray.io/node-type", "worker");
const ORIGIN: &str = "ray.io/originated-from-cr-name";
const NEVER_SCALED: &str = "it has no /scale, and its worker groups are an atomic list that only one manager can own; \
                            set replicas of its workers, or set spec.scaling.enabled to false";

pub(super) struct Cluster;

impl Resolver for Cluster {
    fn group_kind(&self) -> GroupKind<'static> {
        CLUSTER_KIND
    }

    fn unresolved_pods(&self, name: &str) -> PodMatch {
        PodMatch {
            labels: Selector::of_labels([(CLUSTER_LABEL, name), NODE_TYPE]),
            owner: OwnerRule::Named {
                kind: CLUSTER_KIND,
                name: name.to_owned(),
            },
        }
    }

    fn unscalable_reason(&self) -> Option<&'static str> {
        Some(NEVER_SCALED)
    }

    fn resolve(&self, target: &Value, _: &Related) -> Resolution {
        self.read(target).into()
    }

    fn server(&self, _: &[ContainerShape<'_>], _: Option<&str>) -> Server {
        server()
    }
}

impl Cluster {
    fn read(&self, target: &Value) -> Read<Target> {
        let cluster = Fields::of(target, CLUSTER_KIND.kind)?;
        let itself = &cluster.itself;
        let autoscaled = check_workers(&cluster, &["spec"])?;
        let own = cluster.owner_warning();
        // Ray Serve's configuration is not part of the `RayCluster`
        let proxy = caveat(format!(
            "{itself}: a worker responds on port 8000 only if Ray Serve runs a proxy on it; keep proxy_location: \
             EveryNode in the Serve config, or set spec.runtime.targetURL"
        ));
        Ok(Target {
            workload: itself.clone(),
            pods: self.unresolved_pods(cluster.name()),
            chain: vec![itself.clone()],
            owner: None,
            roll: RolloutMethod::Evict,
            scale: Scale::unscalable(itself, NEVER_SCALED),
            server: server(),
            adapter: None,
            warnings: own.into_iter().chain(autoscaled).chain([proxy]).collect(),
        })
    }
}

pub(super) struct Service;

impl Resolver for Service {
    fn group_kind(&self) -> GroupKind<'static> {
        SERVICE_KIND
    }

    /// Matches no cluster: a `RayJob` or a user may name a cluster like those of a service, so only the owner of a
    /// `RayCluster` identifies the target of its workers (SAFE-30).
    fn unresolved_pods(&self, _: &str) -> PodMatch {
        let (key, value) = NODE_TYPE;
        let labels = [
            Requirement {
                key: CLUSTER_LABEL.to_owned(),
                operator: Operator::Exists,
            },
            Requirement {
                key: key.to_owned(),
                operator: Operator::In(vec![value.to_owned()]),
            },
        ];
        PodMatch {
            labels: Selector::new(labels),
            owner: OwnerRule::AnyOf(Vec::new()),
        }
    }

    fn intermediate(&self) -> Option<GroupKind<'static>> {
        Some(CLUSTER_KIND)
    }

    fn related(&self) -> &[GroupKind<'static>] {
        &[CLUSTER_KIND]
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

impl Service {
    fn read(&self, target: &Value, related: &Related) -> Read<Target> {
        let service = Fields::of(target, SERVICE_KIND.kind)?;
        let itself = &service.itself;
        let autoscaled = check_workers(&service, &["spec", "rayClusterConfig"])?;
        let active = service.text(&["status", "activeServiceStatus", "rayClusterName"])?;
        let serve = service.text(&["spec", "serveConfigV2"])?.unwrap_or("");

        let clusters = related.owned_by(CLUSTER_KIND, service.uid);
        let made = clusters.filter(|it| it.label(ORIGIN).is_none_or(|it| it == service.name()));
        let mut clusters: Vec<ObjectRef> = made.filter_map(|it| ObjectRef::of(it.object)).collect();
        // the active cluster comes first
        clusters.sort_by_key(|it| (Some(&*it.name) != active, it.name.clone()));
        if clusters.is_empty() {
            return Err(waiting(format!(
                "{itself} has no RayCluster yet; waiting for KubeRay to create it"
            )));
        }
        let proxy = other_proxy_location(serve).map(|place| {
            caveat(format!(
                "{itself}: spec.serveConfigV2 sets proxy_location: {place}, so workers do not respond on port 8000; \
                 set it to EveryNode, or set spec.runtime.targetURL"
            ))
        });
        let own = service.owner_warning().into_iter();
        let names = clusters.iter().map(|it| it.name.clone());
        let pods = PodMatch {
            owner: owned_by_any(CLUSTER_KIND, names),
            ..self.unresolved_pods(service.name())
        };
        Ok(Target {
            workload: itself.clone(),
            pods,
            chain: std::iter::once(itself.clone()).chain(clusters).collect(),
            owner: None,
            roll: RolloutMethod::Evict,
            scale: Scale::unscalable(itself, NEVER_SCALED),
            server: server(),
            adapter: None,
            warnings: own.chain(autoscaled).chain(proxy).collect(),
        })
    }
}

/// Refuses a cluster without workers, and warns if Ray's autoscaler sets their number.
fn check_workers(target: &Fields<'_>, cluster: &[&'static str]) -> Read<Option<Caveat>> {
    let itself = &target.itself;
    let at = |key| [cluster, &[key]].concat();
    let groups = at("workerGroupSpecs");
    if target.list(&groups)?.is_empty() {
        return Err(refused(format!(
            "{itself}: {} is empty, and head pods are never bound; add a worker group",
            groups.join(".")
        )));
    }
    let autoscaling = at("enableInTreeAutoscaling");
    let on = target.flag(&autoscaling)?;
    Ok(on.then(|| {
        caveat(format!(
            "{itself}: {} is true, and Ray's autoscaler does not see messages: it may remove a worker that is \
             processing one; disable it, or set minReplicas of the workers",
            autoscaling.join(".")
        ))
    }))
}

fn caveat(message: String) -> Caveat {
    Caveat::new(CaveatReason::BindingCaveat, message)
}

/// The value of `proxy_location` in the Serve config, which is YAML or JSON, unless it is every node.
fn other_proxy_location(config: &str) -> Option<&str> {
    let (_, after) = config.split_once("proxy_location")?;
    let place = after.trim_start_matches(['"', '\'', ':', ' ', '\t']);
    let end = place.find(|c: char| !c.is_ascii_alphanumeric());
    let place = end.map_or(place, |end| place.get(..end).unwrap_or_default());
    (!place.is_empty() && place != "EveryNode").then_some(place)
}

fn server() -> Server {
    Server::on_port(Some(8000), "rest")
}
