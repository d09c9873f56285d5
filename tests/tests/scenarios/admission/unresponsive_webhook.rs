//! A webhook that accepts connections and never responds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use asya_tests::cluster::Backend;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::unvalidated;
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use futures::future::try_join_all;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{INJECTOR, Stage, WAIT};
use crate::binding::bound_actor;
use crate::own_cluster;

/// CFG-9. Also the limit for what CFG-2 requires within 2 s of a webhook that responds.
const RESTORED: Duration = Duration::from_secs(5);
const HOME: &str = "asya-system";
const VERIFIED: usize = 3;
/// Dry runs of these last until the API server's timeout, and there are more than run at a time (SAFE-9).
const UNVERIFIED: usize = 12;

/// Accepts connections, keeps them open and never responds.
struct BlackHole {
    address: String,
    calls: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for BlackHole {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl BlackHole {
    async fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(Error::other)?;
        let address = listener.local_addr().map_err(Error::other)?.to_string();
        let calls: Arc<AtomicUsize> = Arc::default();
        let counted = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                open.push(connection);
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self {
            address,
            calls,
            task,
        })
    }

    /// Replaces every webhook pod behind the Service.
    async fn replace_webhook(&self, stage: &Stage) -> Result<()> {
        let services = Api::<Service>::namespaced(stage.cluster.client(), HOME);
        for service in services.list(&ListParams::default()).await? {
            let name = service.metadata.name.unwrap_or_default();
            let ports = service.spec.and_then(|it| it.ports);
            for port in ports.into_iter().flatten() {
                let port = port.port.try_into().map_err(Error::other)?;
                let backend = Backend {
                    address: self.address.clone(),
                    ready: None,
                };
                stage.cluster.set_route(HOME, &name, port, &[backend])?;
            }
        }
        Ok(())
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

fn actors(scenario: &Scenario, stem: &str, count: usize, required: bool) -> Vec<Value> {
    let names = (0..count).map(|number| format!("{stem}-{number}"));
    let actors = names.map(|target| {
        let mut actor = bound_actor(&scenario.name(&target), &target);
        actor["spec"]["binding"] = json!({"rollout": "OnRestart", "required": required});
        actor
    });
    actors.collect()
}

/// Applies all of them at once, because the API server calls the webhook for each.
async fn apply(scenario: &Scenario, actors: &[Value]) -> Result<()> {
    try_join_all(actors.iter().map(|actor| scenario.apply(actor))).await?;
    Ok(())
}

/// Names and failure policies of the entries.
type Entries = Vec<(String, Option<String>)>;

async fn entries(scenario: &Scenario) -> Result<Entries, kube::Error> {
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(scenario.client());
    let found = injectors.get(INJECTOR).await?.webhooks.unwrap_or_default();
    let mut entries: Entries = found
        .into_iter()
        .map(|it| (it.name, it.failure_policy))
        .collect();
    entries.sort();
    Ok(entries)
}

async fn entries_are(
    scenario: &Scenario,
    what: &str,
    within: Duration,
    are_so: impl Fn(&Entries) -> bool,
) -> Result<Entries> {
    let began = Instant::now();
    let found = eventually(what, within, async || {
        let found = entries(scenario).await?;
        check(are_so(&found), format_args!("{found:?}"))?;
        Ok(found)
    })
    .await?;
    eprintln!("{what} after {:?}", began.elapsed());
    Ok(found)
}

fn failing(entries: &Entries) -> usize {
    let all = entries.iter();
    all.filter(|(_, policy)| policy.as_deref() == Some("Fail"))
        .count()
}

fn is_required(entry: &str) -> bool {
    entry.contains(".required.")
}

/// Deletes an entry that fails closed, as another client would.
async fn delete_one_that_fails(scenario: &Scenario) -> Result<()> {
    let injectors: Api<MutatingWebhookConfiguration> = Api::all(scenario.client());
    let mut left = injectors.get(INJECTOR).await?.webhooks.unwrap_or_default();
    let first = left
        .iter()
        .position(|it| it.failure_policy.as_deref() == Some("Fail"));
    left.remove(first.ok_or_else(|| Error::other("no entry fails closed"))?);
    let params = PatchParams {
        field_manager: Some("another-client".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"webhooks": left}));
    injectors.patch(INJECTOR, &params, &patch).await?;
    Ok(())
}

/// SAFE-9, CFG-2, CFG-8, CFG-9
#[tokio::test]
async fn webhook_that_never_answers_does_not_delay_the_entries_of_bindings() {
    let _turn = own_cluster().await;
    let mut stage = Stage::set_with(unvalidated(), &[]).await.unwrap();
    Scenario::run_on(Ok(stage.cluster.clone()), "timeout", async |scenario| {
        apply(scenario, &actors(scenario, "verified", VERIFIED, true)).await?;
        let before = entries_are(scenario, "all fail closed", WAIT, |all| {
            failing(all) == VERIFIED
        })
        .await?;

        let hole = BlackHole::open().await?;
        // Connections to live replicas would be reused.
        stage.webhook.kill().await?;
        hole.replace_webhook(&stage).await?;
        let (user, audit) = (stage.operator.user(), stage.cluster.audit());
        let mark = audit.mark().await?;
        apply(scenario, &actors(scenario, "unverified", UNVERIFIED, true)).await?;
        let all = entries_are(scenario, "each has its entry", RESTORED, |all| {
            all.len() == before.len() + UNVERIFIED
        })
        .await?;
        assert_eq!(failing(&all), VERIFIED, "{all:?}");
        let calls = hole.calls();
        eventually("dry runs wait for an answer", WAIT, async || {
            let calls = hole.calls() - calls;
            check(calls > 0, "no call")
        })
        .await?;

        delete_one_that_fails(scenario).await?;
        entries_are(scenario, "the deleted entry is restored", RESTORED, |now| {
            *now == all
        })
        .await?;

        apply(scenario, &actors(scenario, "next", 1, true)).await?;
        let more = entries_are(scenario, "another binding has its entry", RESTORED, |now| {
            now.len() == all.len() + 1
        })
        .await?;

        apply(scenario, &actors(scenario, "verified", 1, false)).await?;
        let fewer = entries_are(scenario, "it no longer fails closed", RESTORED, |now| {
            failing(now) == VERIFIED - 1
        })
        .await?;
        let required = |all: &Entries| all.iter().filter(|(name, _)| is_required(name)).count();
        assert_eq!(required(&fewer), required(&more) - 1);

        let probes = eventually("the second dry run has ended", WAIT, async || {
            let requests = audit.requests_since(mark, &user).await;
            let mut requests = requests.map_err(NotYet::new)?;
            requests.retain(|it| it.resource == "pods" && it.dry_run);
            check(requests.len() >= 2, requests.len())?;
            Ok(requests.len())
        })
        .await?;
        let all = entries(scenario).await?;
        assert_eq!(failing(&all), VERIFIED - 1, "nothing was verified: {all:?}");
        eprintln!("{probes} dry runs, {} unanswered calls", hole.calls());
        Ok(())
    })
    .await;
}
