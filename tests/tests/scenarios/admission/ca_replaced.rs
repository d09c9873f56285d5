//! Another client replaces the CA certificate in the webhook configurations.

use std::cell::Cell;
use std::time::{Duration, Instant};

use asya_tests::eventually::{check, eventually};
use asya_tests::operator::Instance;
use asya_tests::pki::TestCa;
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{INJECTOR, Stage, containers, gets_sidecar, pod_of};
use crate::binding::{bound_actor, model};
use crate::own_cluster;

const VALIDATOR: &str = "asya-operator-validator";
const FACTS: &str = "asya-operator-webhook-facts";
const HOME: &str = "asya-system";
/// CFG-9
const HEALED: Duration = Duration::from_secs(5);
/// Not a requirement, but far longer than that many rounds take on a busy machine.
const ROUNDS_LIMIT: Duration = Duration::from_mins(1);
/// How many pods are created and readiness checks made after each repair, too.
const AFTERWARDS: usize = 10;
/// Frees the processors for others between two rounds.
const PAUSE: Duration = Duration::from_millis(20);

/// Counts of what happens meanwhile.
#[derive(Default)]
struct Seen {
    pods: Cell<usize>,
    injected: Cell<usize>,
    ready: Cell<usize>,
}

fn count(cell: &Cell<usize>) {
    cell.set(cell.get() + 1);
}

/// Creates pods of the target repeatedly; returns the first rejection.
async fn create_pods(scenario: &Scenario, pod: &Pod, seen: &Seen) -> Error {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pods = scenario.api::<Pod>();
    loop {
        match pods.create(&dry_run, pod).await {
            Ok(made) if containers(&made).contains(&"asya-sidecar") => count(&seen.injected),
            Ok(_) => {}
            Err(error) => return error.into(),
        }
        count(&seen.pods);
        sleep(PAUSE).await;
    }
}

/// Checks the readiness of every process repeatedly; returns the first failure.
async fn read_readiness(instances: &[&Instance], seen: &Seen) -> Error {
    loop {
        for instance in instances {
            if let Err(error) = instance.is_ready().await {
                return error;
            }
        }
        count(&seen.ready);
        sleep(PAUSE).await;
    }
}

/// Replaces every `caBundle` of a configuration, and waits until it is restored.
async fn replace_ca<K>(api: &Api<K>, name: &str, bundle: &Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let entries = async || -> Result<Value, kube::Error> {
        let found = api.get(name).await?;
        Ok(json!(found)["webhooks"].clone())
    };
    let good = entries().await?;
    let mut bad = good.clone();
    let all = bad.as_array_mut().into_iter().flatten();
    all.for_each(|entry| entry["clientConfig"]["caBundle"] = bundle.clone());
    assert_ne!(bad, good, "{name} has no entry");
    let params = PatchParams {
        field_manager: Some("another-client".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"webhooks": bad}));
    api.patch(name, &params, &patch).await?;
    let began = Instant::now();
    eventually(format_args!("{name} is restored"), HEALED, async || {
        let now = entries().await?;
        check(now == good, "it is not")
    })
    .await?;
    eprintln!("{name}: restored after {:?}", began.elapsed());
    Ok(())
}

/// Replaces the CA in both configurations, first with an unrelated one, then with none.
async fn replace_all(scenario: &Scenario, seen: &Seen) -> Result<()> {
    let foreign = TestCa::new("foreign-ca")?;
    let foreign = json!(ByteString(foreign.pem().as_bytes().to_vec()));
    let injectors = Api::<MutatingWebhookConfiguration>::all(scenario.client());
    let validators = Api::<ValidatingWebhookConfiguration>::all(scenario.client());
    for bundle in [foreign, Value::Null] {
        replace_ca(&injectors, INJECTOR, &bundle).await?;
        works_again(seen).await?;
        replace_ca(&validators, VALIDATOR, &bundle).await?;
        works_again(seen).await?;
    }
    Ok(())
}

/// Waits until readiness was checked and pods were injected a few more times.
async fn works_again(seen: &Seen) -> Result<()> {
    let (ready, injected) = (seen.ready.get(), seen.injected.get());
    eventually("all is as before", ROUNDS_LIMIT, async || {
        let more = (seen.ready.get() - ready, seen.injected.get() - injected);
        check(
            more.0 >= AFTERWARDS && more.1 >= AFTERWARDS,
            format_args!("{more:?}"),
        )
    })
    .await
}

/// CFG-9, ADM-25
#[tokio::test]
async fn replaced_ca_bundle_is_restored_while_pods_are_created_and_the_operator_stays_ready() {
    let _turn = own_cluster().await;
    let stage = Stage::set(&[]).await.unwrap();
    Scenario::run_on(Ok(stage.cluster.clone()), "ca-replaced", async |scenario| {
        scenario
            .api()
            .create(&PostParams::default(), &model("web", 0)?)
            .await?;
        let actor = bound_actor(&scenario.name("bound"), "web");
        scenario.apply(&actor).await?;
        let labels = json!({"app": "web", "pod-template-hash": "0"});
        let pod = pod_of("ReplicaSet", "web-0", &labels)?;
        gets_sidecar(scenario, &pod).await?;
        let facts = Api::<ConfigMap>::namespaced(scenario.client(), HOME);
        let before = facts.get(FACTS).await?;

        let seen = Seen::default();
        let mut instances: Vec<&Instance> = stage.webhook.replicas().iter().collect();
        instances.push(&stage.controller);
        tokio::select! {
            refused = create_pods(scenario, &pod, &seen) => return Err(refused),
            unready = read_readiness(&instances, &seen) => return Err(unready),
            done = replace_all(scenario, &seen) => done?,
        }
        let (pods, injected) = (seen.pods.get(), seen.injected.get());
        eprintln!(
            "{pods} pods created, {} of them without the sidecar; ready each of {} times",
            pods - injected,
            seen.ready.get(),
        );
        let after = facts.get(FACTS).await?;
        assert_eq!(after, before, "the webhook learnt nothing of it");
        Ok(())
    })
    .await;
}
