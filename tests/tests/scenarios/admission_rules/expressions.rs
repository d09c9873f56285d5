//! The match conditions of the webhook configurations, evaluated by the API server on unusual pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use asya_shared::admission::{Endpoint, EntryBinding, EntrySettings, OwnerRole, Policy, mutating};
use asya_shared::resolve::{GroupKind, Integration, OwnerRule, PodMatch, Selector};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, MutatingWebhookConfiguration};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

const PODS: usize = 2_000;
/// Overrides the number of pods, [`PODS`].
const PODS_VARIABLE: &str = "ASYA_ODD_PODS";
/// How many pods are created at a time, because other scenarios use the same API server.
const AT_A_TIME: usize = 2;
/// API server metric: match conditions that failed to evaluate.
const ERRORS: &str = "apiserver_admission_match_condition_evaluation_errors_total";
/// API server metric: match conditions that excluded a webhook.
const EXCLUSIONS: &str = "apiserver_admission_match_condition_exclusions_total";

fn number_of_pods() -> usize {
    std::env::var(PODS_VARIABLE).map_or(PODS, |number| {
        number.parse().expect("ASYA_ODD_PODS is a number")
    })
}

/// Bindings that together use every kind of match condition.
fn bindings(namespace: &str) -> Vec<EntryBinding> {
    let kind = |group, kind| GroupKind { group, kind };
    let rules = [
        OwnerRule::ReplicaSetOf {
            deployment: "web".to_owned(),
        },
        OwnerRule::ReplicaSetOf {
            deployment: "w".repeat(250),
        },
        OwnerRule::Named {
            kind: kind("apps", "StatefulSet"),
            name: "db".to_owned(),
        },
        OwnerRule::Named {
            kind: kind("ray.io", "RayCluster"),
            name: "rs-x7k2p".to_owned(),
        },
        OwnerRule::Kind(kind("", "ReplicationController")),
    ];
    let optional = OwnerRule::AnyOf(rules.to_vec());
    let binding = |actor: usize, owner: OwnerRule, policy| EntryBinding {
        namespace: namespace.to_owned(),
        actor: format!("a{actor}"),
        integration: Integration::Generic,
        pods: PodMatch {
            labels: Selector::default(),
            owner,
        },
        has_intermediate_owners: false,
        policy,
    };
    let required = rules.into_iter().enumerate();
    let required = required.map(|(n, rule)| binding(n, rule, Policy::Required { verified: true }));
    required
        .chain([binding(99, optional, Policy::Optional)])
        .collect()
}

/// Our configuration with failure policy Fail, which never calls the webhook because its last match condition is always
/// false. An expression that fails before it is still counted.
fn configuration(namespace: &str, name: &str) -> MutatingWebhookConfiguration {
    let settings = EntrySettings {
        release: name.to_owned(),
        namespace: "asya-system".to_owned(),
        endpoint: Endpoint::Url("https://127.0.0.1:1".to_owned()),
        ca_bundle: String::new(),
        owner_role: OwnerRole {
            name: String::new(),
            uid: String::new(),
        },
    };
    let mut object = mutating(&settings, &bindings(namespace), Vec::new())
        .objects
        .remove(0);
    object.metadata.owner_references = None;
    for entry in object.webhooks.iter_mut().flatten() {
        entry.failure_policy = Some("Fail".to_owned());
        entry.client_config.ca_bundle = None;
        entry
            .match_conditions
            .get_or_insert_default()
            .push(MatchCondition {
                name: "never".to_owned(),
                expression: "false".to_owned(),
            });
    }
    object
}

/// A reproducible sequence of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides
    }

    fn one_of(&mut self, all: &[Value]) -> Value {
        all[self.roll(all.len())].clone()
    }

    /// An object with a random subset of these keys, each with one of its values.
    fn object(&mut self, keys: &[(&str, &[Value])]) -> Value {
        let mut object = json!({});
        for (key, values) in keys {
            if self.roll(4) > 0 {
                object[*key] = self.one_of(values);
            }
        }
        object
    }

    fn pod(&mut self) -> Value {
        let texts = |all: &[&str]| all.iter().map(|text| json!(text)).collect::<Vec<_>>();
        let versions = texts(&[
            "apps/v1",
            "apps/",
            "/",
            "",
            "v1",
            "ray.io/v1",
            "apps/v1/x",
            "ä",
        ]);
        let kinds = texts(&[
            "ReplicaSet",
            "StatefulSet",
            "RayCluster",
            "ReplicationController",
            "",
            "X",
        ]);
        let names = texts(&[
            "web-abc", "web-", "-", "", "web", "db", "rs-abcde", "rs-", "a-b-c", "ü-ö", "--", "w'x",
        ]);
        let flags = [json!(true), json!(false), Value::Null];
        let uids = texts(&["u", ""]);
        let mut owners = Vec::new();
        for _ in 0..self.roll(4) {
            owners.push(self.object(&[
                ("apiVersion", &versions),
                ("kind", &kinds),
                ("name", &names),
                ("uid", &uids),
                ("controller", &flags),
            ]));
        }
        let owners = [json!(owners), json!([]), Value::Null, json!(owners)];
        let labels = [
            json!({}),
            Value::Null,
            json!({"app": "web"}),
            json!({"asya.sh/inject": "false"}),
            json!({"": ""}),
        ];
        let names = texts(&["p", "", "p-1"]);
        let mut metadata = self.object(&[
            ("name", &names),
            ("generateName", &names),
            ("ownerReferences", &owners),
            ("labels", &labels),
            ("annotations", &labels),
            ("finalizers", &[json!([]), Value::Null]),
        ]);
        metadata["ownerReferences"] = self.one_of(&owners);
        let metadata = [metadata.clone(), metadata, json!({}), Value::Null];
        let containers = [json!([]), Value::Null, json!([{"name": "c", "image": "i"}])];
        let mut pod = self.object(&[
            ("metadata", &metadata),
            ("status", &[json!({}), Value::Null]),
        ]);
        pod["metadata"] = self.one_of(&metadata);
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["spec"] = json!({"containers": self.one_of(&containers)});
        pod
    }
}

/// The sum of an API server metric over our entries.
async fn metric(client: &Client, name: &str) -> Result<f64> {
    let request = http::Request::get("/metrics")
        .body(Vec::new())
        .map_err(Error::other)?;
    let text = client.request_text(request).await?;
    let ours = text
        .lines()
        .filter(|line| line.starts_with(name) && line.contains("inject.asya.sh"));
    Ok(ours
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum())
}

/// Dry-runs the creation of a pod, so that the API server evaluates the expressions. Whether the pod is rejected as
/// invalid does not matter here.
async fn create(client: &Client, namespace: &str, pod: &Value) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(pod)?)
        .map_err(Error::other)?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if [400, 403, 422].contains(&status.code) => {
            assert!(
                !status.message.contains("asya.sh"),
                "{} refuses {pod}",
                status.message
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// CFG-6
#[tokio::test]
async fn odd_pods_make_no_expression_fail() {
    Scenario::run("expressions", async |scenario| {
        let client = scenario.client();
        let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let object = configuration(scenario.namespace(), scenario.namespace());
        let name = object.metadata.name.clone().unwrap_or_default();
        configurations.create(&PostParams::default(), &object).await?;
        let mut dice = Dice(7);
        let namespace = scenario.namespace();
        eventually("the API server asks our conditions", SOON, async || {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}});
            create(&client, namespace, &pod).await.map_err(NotYet::new)?;
            let asked = metric(&client, EXCLUSIONS).await.map_err(NotYet::new)?;
            check(asked > 0.0, "not yet")
        })
        .await?;
        let before = metric(&client, ERRORS).await?;
        let begun = Instant::now();
        let done = Arc::new(AtomicUsize::new(0));
        let pods: Vec<Value> = (0..number_of_pods()).map(|_| dice.pod()).collect();
        let mut calls = futures::stream::iter(&pods)
            .map(|pod| create(&client, namespace, pod))
            .buffer_unordered(AT_A_TIME);
        while let Some(outcome) = calls.next().await {
            outcome?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        let asked = metric(&client, EXCLUSIONS).await?;
        let number = pods.len();
        eprintln!("{number} odd pods in {:?}, {asked} times excluded", begun.elapsed());
        assert_eq!(done.load(Ordering::Relaxed), number);
        // At least one for each pod.
        let fewest = u32::try_from(number).expect("a number of pods");
        assert!(asked > f64::from(fewest), "conditions were asked {asked} times");
        let failed = metric(&client, ERRORS).await? - before;
        assert!(failed < 0.5, "expressions failed {failed} times");
        configurations.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    })
    .await;
}
