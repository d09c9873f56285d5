//! Malformed objects.

use serde_json::{Value, json};

use super::objects::{related, resolver_of};
use super::{bento, generic, kaito, knative, kserve, llm, ray, seldon};
use crate::resolve::*;

/// A target of each kind with the objects that it owns, and the fields that its resolver reads.
fn samples() -> Vec<Sample> {
    let mut all = of_kaito_and_kserve();
    all.extend(of_others());
    all
}

type Sample = (Value, Vec<Value>, Vec<&'static str>);

fn of_kaito_and_kserve() -> Vec<Sample> {
    let workspace = kaito::workspace();
    let set = kaito::inference_set();
    let standard = kserve::inference_service("Standard");
    let (on_knative, below_knative) = kserve::on_knative("Knative");
    let qwen = llm::service();
    vec![
        (
            workspace.clone(),
            vec![kaito::stateful_set(&workspace)],
            vec![
                "/tuning",
                "/status",
                "/status/targetNodeCount",
                "/metadata/labels",
            ],
        ),
        (
            set.clone(),
            kaito::two_models(&set),
            vec!["/spec", "/spec/replicas", "/metadata/annotations"],
        ),
        (
            standard.clone(),
            vec![kserve::deployment(&standard, "iris-predictor", "predictor")],
            vec![
                "/status",
                "/status/deploymentMode",
                "/spec/predictor",
                "/spec/predictor/model",
                "/spec/predictor/model/protocolVersion",
                "/spec/predictor/name",
                "/spec/predictor/workerSpec",
                "/spec/predictor/canaryTrafficPercent",
                "/spec/canary",
                "/metadata/annotations",
            ],
        ),
        (
            on_knative,
            below_knative,
            vec![
                "/status/components",
                "/status/components/predictor",
                "/status/components/predictor/latestReadyRevision",
            ],
        ),
        (
            qwen.clone(),
            vec![llm::deployment(&qwen, "qwen-kserve")],
            vec![
                "/spec",
                "/spec/replicas",
                "/spec/scaling",
                "/status/workloads",
                "/status/workloads/primary/kind",
                "/status/workloads/primary/name",
            ],
        ),
    ]
}

fn of_others() -> Vec<Sample> {
    let rs = ray::service();
    let service = knative::service();
    let iris = seldon::seldon();
    let server = seldon::server();
    let bento = bento::bento();
    let thing = generic::thing();
    vec![
        (
            ray::cluster(),
            vec![],
            vec![
                "/spec",
                "/spec/workerGroupSpecs",
                "/spec/enableInTreeAutoscaling",
            ],
        ),
        (
            rs.clone(),
            vec![ray::cluster_of(&rs, "rs-x7k2p")],
            vec![
                "/spec/rayClusterConfig",
                "/spec/rayClusterConfig/workerGroupSpecs",
                "/spec/serveConfigV2",
                "/status/activeServiceStatus",
                "/status/activeServiceStatus/rayClusterName",
            ],
        ),
        (
            service.clone(),
            knative::below(&service, "hello", "00002"),
            vec![
                "/spec/template",
                "/spec/template/metadata",
                "/status/latestReadyRevisionName",
            ],
        ),
        (
            iris.clone(),
            vec![seldon::deployment(&iris, "iris-default-0-classifier")],
            vec![
                "/spec/replicas",
                "/spec/predictors",
                "/spec/predictors/0",
                "/spec/predictors/0/componentSpecs",
                "/status/deploymentStatus",
                "/status/deploymentStatus/iris-default-0-classifier",
            ],
        ),
        (
            server.clone(),
            vec![seldon::of_server(&server, "StatefulSet")],
            vec!["/metadata/uid"],
        ),
        (seldon::model(), vec![], vec!["/spec", "/spec/server"]),
        (
            bento.clone(),
            vec![bento::deployment(&bento, "iris")],
            vec!["/metadata/name"],
        ),
        (
            thing.clone(),
            vec![generic::deployment(&thing, "big")],
            vec!["/metadata/uid"],
        ),
    ]
}

/// Sets the value at a pointer, creating parent objects.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for key in pointer.split('/').skip(1) {
        place = match (place, key.parse::<usize>()) {
            (Value::Array(list), Ok(at)) => &mut list[at],
            (other, _) => &mut other[key],
        };
    }
    *place = value;
}

/// RES-1
#[test]
fn field_of_unexpected_type_makes_only_that_target_wait() {
    for (target, beside, fields) in samples() {
        let kind_resolver = resolver_of(&target);
        let related = related(&beside.iter().collect::<Vec<_>>());
        assert!(
            !matches!(
                kind_resolver.resolve(&target, &related),
                Resolution::Waiting(_)
            ),
            "{target}"
        );
        for field in fields {
            let kind = target["kind"].as_str().unwrap();
            // neither a string, nor an integer, nor a list, nor an object
            let mut broken = target.clone();
            put(&mut broken, field, json!(7.5));
            match kind_resolver.resolve(&broken, &related) {
                Resolution::Waiting(finding) => {
                    assert_eq!(finding.reason, FindingReason::TargetNotReady);
                    let last = field
                        .rsplit('/')
                        .find(|it| it.parse::<usize>().is_err())
                        .unwrap();
                    assert!(
                        finding.message.contains(last),
                        "{kind}{field}: {}",
                        finding.message
                    );
                }
                other => panic!("{kind}{field}: {other:?}"),
            }
        }
    }
}

/// RES-1
#[test]
fn unexpected_type_is_reported_with_the_path_of_the_field() {
    let mut target = ray::cluster();
    put(&mut target, "/spec/enableInTreeAutoscaling", json!("yes"));
    let Resolution::Waiting(finding) = resolver_of(&target).resolve(&target, &Related::default())
    else {
        panic!("it does not wait");
    };
    assert_eq!(
        finding.message,
        "RayCluster/rc: spec.enableInTreeAutoscaling is not true or false; waiting until it is"
    );
    let mut target = kaito::inference_set();
    put(
        &mut target,
        "/metadata/annotations",
        json!({"scaledobject.kaito.sh/auto-provision": true}),
    );
    let Resolution::Waiting(finding) = resolver_of(&target).resolve(&target, &Related::default())
    else {
        panic!("it does not wait");
    };
    assert_eq!(
        finding.message,
        "InferenceSet/fleet: metadata.annotations[scaledobject.kaito.sh/auto-provision] is not a text; waiting until it is"
    );
}

/// A random value.
fn garbage(random: &mut fastrand::Rng, depth: u32) -> Value {
    match random.u32(0..if depth == 0 { 7 } else { 9 }) {
        0 => Value::Null,
        1 => json!(random.bool()),
        2 => json!(random.i64(..)),
        3 => json!(random.f64()),
        4 => json!(""),
        5 => json!("é/..\u{0}'\"{{"),
        6 => json!("x".repeat(random.usize(0..300))),
        7 => (0..random.usize(0..3))
            .map(|_| garbage(random, depth - 1))
            .collect(),
        _ => {
            let keys = [
                "metadata", "spec", "status", "name", "uid", "kind", "labels", "a/b",
            ];
            let entry = |_| (keys[random.usize(..keys.len())], garbage(random, depth - 1));
            let entries: Vec<_> = (0..3).map(entry).collect();
            entries
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()
        }
    }
}

/// Puts a random value somewhere into a value.
fn mutate(random: &mut fastrand::Rng, value: &mut Value) {
    let deeper = random.u32(0..6) > 0;
    let place = match value {
        Value::Object(object) if deeper && !object.is_empty() => {
            let at = random.usize(..object.len());
            object.values_mut().nth(at)
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = random.usize(..list.len());
            list.get_mut(at)
        }
        _ => None,
    };
    match place {
        Some(place) => mutate(random, place),
        None => *value = garbage(random, 2),
    }
}

/// RES-1
#[test]
fn no_malformed_object_makes_a_resolver_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    for (target, beside, _) in samples() {
        let kind_resolver = resolver_of(&target);
        for _ in 0..500 {
            let mut related = related(&beside.iter().collect::<Vec<_>>());
            let mut target = target.clone();
            for _ in 0..random.u32(1..4) {
                let objects: Vec<_> = related.objects.values_mut().flatten().collect();
                match objects.into_iter().nth(random.usize(0..6)) {
                    Some(object) => mutate(&mut random, object),
                    None => mutate(&mut random, &mut target),
                }
            }
            if random.bool() {
                related.owners = vec![target.clone(), garbage(&mut random, 3)];
            }
            let owned: Vec<_> = related.objects.values().flatten().cloned().collect();
            match kind_resolver.resolve(&target, &related) {
                Resolution::Found(found) => {
                    assert!(!found.chain.is_empty() && !found.workload.name.is_empty());
                    let status = found.to_status("models");
                    assert!(status.chain.len() <= MAX_CHAIN);
                }
                Resolution::Waiting(finding) | Resolution::Refused(finding) => {
                    assert!(!finding.message.is_empty());
                }
            }
            // a plain workload with a malformed owner
            for plain in owned {
                resolver("apps", "Deployment").resolve(&plain, &related);
            }
        }
    }
    for resolver in KNOWN.into_iter().chain(PLAIN).chain([generic_row()]) {
        for _ in 0..200 {
            let target = garbage(&mut random, 4);
            resolver.resolve(&target, &Related::default());
            resolver.unresolved_pods("é");
            resolver.server(&[], Some("é"));
        }
    }
}

fn generic_row() -> &'static dyn Resolver {
    resolver("example.org", "Thing")
}
