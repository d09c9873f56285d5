//! The webhook configurations follow the bindings, are restored after edits and deletions, and are deleted with the
//! operator.

mod expressions;
mod other_writers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::operator::{Instance, Launch, Operator};
use asya_tests::scenario::Scenario;
use asya_tests::scheduling::{own_cluster_to_time, timed};
use asya_tests::{Error, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::binding::{bound_actor, condition, model, status_is};
use crate::steady::Writes;

/// CFG-2
const FOLLOWED: Duration = Duration::from_secs(2);
/// CFG-9, AVL-5
const HEALED: Duration = Duration::from_secs(5);
const INJECTOR: &str = "asya-operator-injector";
const VALIDATOR: &str = "asya-operator-validator";
const OWNER_ROLE: &str = "asya-operator-webhook-anchor";

/// A listener that accepts connections, counts them and never responds.
struct Listener {
    url: String,
    calls: Arc<AtomicUsize>,
}

impl Listener {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(Error::other)?;
        let address = listener.local_addr().map_err(Error::other)?;
        let calls: Arc<AtomicUsize> = Arc::default();
        let counted = Arc::clone(&calls);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self {
            url: format!("https://{address}"),
            calls,
        })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

/// An operator that maintains webhook configurations for a webhook that never responds.
struct Stage {
    cluster: Cluster,
    webhook: Listener,
    operator: Operator,
    instance: Instance,
}

impl Stage {
    async fn set(cluster: &Cluster) -> Result<Self> {
        let operator = Operator::install(cluster, json!({"webhook": {"enabled": true}})).await?;
        let webhook = Listener::start().await?;
        let launch = Launch {
            args: vec![format!("--webhook-url={}", webhook.url)],
            ..Launch::default()
        };
        let instance = operator.launch("rules", launch).await?;
        instance.wait_ready().await?;
        Ok(Self {
            cluster: cluster.clone(),
            webhook,
            operator,
            instance,
        })
    }

    fn injectors(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.cluster.client())
    }

    /// Waits until the configuration exists and has these entries.
    async fn entries(
        &self,
        what: &str,
        within: Duration,
        are_so: impl Fn(&[MutatingWebhook]) -> bool,
    ) -> Result<Vec<MutatingWebhook>> {
        eventually(what, within, async || {
            let found = self.injectors().get(INJECTOR).await?;
            let entries = found.webhooks.unwrap_or_default();
            let names: Vec<_> = entries
                .iter()
                .map(|it| (&it.name, &it.failure_policy))
                .collect();
            check(are_so(&entries), format_args!("{names:?}"))?;
            Ok(entries)
        })
        .await
    }

    async fn uids(&self) -> Result<(Option<String>, Option<String>)> {
        let validators: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.client());
        let injector = self.injectors().get_opt(INJECTOR).await?;
        let validator = validators.get_opt(VALIDATOR).await?;
        let uid = |metadata: kube::api::ObjectMeta| metadata.uid;
        Ok((
            injector.and_then(|it| uid(it.metadata)),
            validator.and_then(|it| uid(it.metadata)),
        ))
    }

    /// The Events that report a restored configuration.
    async fn restored(&self) -> Result<Vec<String>, kube::Error> {
        let events: Api<Event> = Api::namespaced(self.cluster.client(), "default");
        let selector = ListParams::default().fields("reason=WebhookConfigurationRestored");
        let found = events.list(&selector).await?;
        Ok(found
            .into_iter()
            .filter_map(|event| event.message)
            .collect())
    }
}

fn names(entries: &[MutatingWebhook]) -> BTreeSet<&str> {
    entries.iter().map(|entry| &*entry.name).collect()
}

/// CFG-1 to CFG-5, CFG-8 to CFG-10, AVL-5, VAC-8
#[tokio::test]
async fn webhook_configurations_follow_bindings_and_their_owner_role() {
    let _turn = own_cluster_to_time().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    let _timed = timed().await;
    Scenario::run_on(Ok(cluster.clone()), "rules", async |scenario| {
        let mut stage = Stage::set(&cluster).await?;
        without_a_binding_nothing_is_asked(&stage, scenario).await?;
        let required = entries_follow_bindings(&mut stage, scenario).await?;
        nothing_is_written_at_rest(&stage).await?;
        edits_and_deletions_are_healed(&stage).await?;
        last_binding_takes_the_entries_away(&stage, scenario, &required).await?;
        configurations_go_with_the_owner_role(&stage).await
    })
    .await;
}

async fn deployment(scenario: &Scenario, name: &str, replicas: i32) -> Result<()> {
    let deployments = scenario.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &model(name, replicas)?)
        .await?;
    eventually(format_args!("{name} has its pods"), SOON, async || {
        let status = deployments.get(name).await?.status.unwrap_or_default();
        check(
            status.replicas.unwrap_or(0) == replicas,
            format_args!("{:?}", status.replicas),
        )
    })
    .await
}

async fn without_a_binding_nothing_is_asked(stage: &Stage, scenario: &Scenario) -> Result<()> {
    stage
        .entries("a configuration without entries", SOON, <[_]>::is_empty)
        .await?;
    deployment(scenario, "unbound", 100).await?;
    assert_eq!(stage.webhook.calls(), 0, "100 pods were created");
    let injector = stage.injectors().get(INJECTOR).await?;
    let roles: Api<ClusterRole> = Api::all(stage.cluster.client());
    let role = roles.get(OWNER_ROLE).await?;
    let owners = injector.metadata.owner_references.unwrap_or_default();
    assert_eq!(
        owners
            .iter()
            .map(|owner| Some(&owner.uid))
            .collect::<Vec<_>>(),
        [role.metadata.uid.as_ref()]
    );
    let owners = role.metadata.owner_references.unwrap_or_default();
    assert_eq!(
        owners.iter().map(|owner| &*owner.kind).collect::<Vec<_>>(),
        ["Namespace"],
        "Helm made it"
    );
    Ok(())
}

/// Returns the name of the actor whose binding is required.
async fn entries_follow_bindings(stage: &mut Stage, scenario: &Scenario) -> Result<String> {
    let (optional, required) = (scenario.name("may"), scenario.name("must"));
    scenario.apply(&bound_actor(&optional, "web")).await?;
    let applied = Instant::now();
    let entries = stage
        .entries("the first binding has an entry", FOLLOWED, |all| {
            all.len() == 1
        })
        .await?;
    eprintln!("first binding: entry after {:?}", applied.elapsed());
    let entry = json!(entries[0]);
    assert_eq!(
        (&entry["name"], &entry["failurePolicy"]),
        (&json!("generic.inject.asya.sh"), &json!("Ignore"))
    );
    assert!(entry.to_string().contains(scenario.namespace()), "{entry}");
    assert!(
        entry["clientConfig"]["caBundle"]
            .as_str()
            .is_some_and(|bundle| bundle.len() > 500),
        "{entry}"
    );
    let before = stage.webhook.calls();
    deployment(scenario, "web", 1).await?;
    eventually("the webhook is asked", SOON, async || {
        check(stage.webhook.calls() > before, "not asked")
    })
    .await?;
    // Otherwise it would dry-run the target's pods.
    stage.instance.stop().await?;
    let before = stage.webhook.calls();
    deployment(scenario, "unbound-too", 5).await?;
    assert_eq!(stage.webhook.calls(), before, "pods that nobody binds");
    stage.instance.restart().await?;
    stage.instance.wait_ready().await?;

    let mut actor = bound_actor(&required, "needed");
    actor["spec"]["binding"] = json!({"required": true});
    scenario.apply(&actor).await?;
    let is_required = |entry: &&MutatingWebhook| entry.name.contains(".required.");
    let entries = stage
        .entries("the required binding has its own", FOLLOWED, |all| {
            all.iter().any(|it| is_required(&it))
        })
        .await?;
    let policy = entries
        .iter()
        .find(is_required)
        .and_then(|it| it.failure_policy.as_deref());
    assert_eq!(
        policy,
        Some("Ignore"),
        "nothing has shown that pods come back injected"
    );
    status_is(scenario, &required, "it is in force", SOON, |status| {
        status["boundSince"].is_string()
    })
    .await?;
    Ok(required)
}

/// CFG-1: steady state
async fn nothing_is_written_at_rest(stage: &Stage) -> Result<()> {
    let user = stage.operator.user();
    let writes = Writes {
        audit: stage.cluster.audit(),
        user: &user,
    };
    let of_configurations = async |mark| -> Result<usize> {
        let mut all = writes.since(mark).await?;
        all.retain(|write| write.resource.ends_with("webhookconfigurations"));
        Ok(all.len())
    };
    // The required binding is still probed by dry runs, which persist nothing.
    let mark = writes.audit.mark().await?;
    let pods = async || -> Result<usize, NotYet> {
        let requests = writes.audit.requests_since(mark, writes.user).await;
        let mut all = requests.map_err(NotYet::new)?;
        all.retain(|write| write.resource == "pods" && write.verb == "create");
        Ok(all.len())
    };
    eventually("the required binding is tried again", SOON, async || {
        let tried = pods().await?;
        check(tried >= 1, format_args!("{tried} tries"))
    })
    .await?;
    assert_eq!(of_configurations(mark).await?, 0);
    Ok(())
}

/// CFG-9
async fn edits_and_deletions_are_healed(stage: &Stage) -> Result<()> {
    let good = stage
        .injectors()
        .get(INJECTOR)
        .await?
        .webhooks
        .unwrap_or_default();
    let params = PatchParams {
        field_manager: Some("meddler".to_owned()),
        ..PatchParams::default()
    };
    let (mut first, mut added) = (json!(good), json!(good));
    first[0]["failurePolicy"] = json!("Fail");
    first[0]["clientConfig"]["caBundle"] = Value::Null;
    let mut foreign = added[0].clone();
    foreign["name"] = json!("theirs.example.com");
    if let Some(all) = added.as_array_mut() {
        all.push(foreign);
    }
    for (what, edited) in [
        ("an edit", first),
        ("an addition", added),
        ("all gone", json!([])),
    ] {
        let patch = Patch::Merge(json!({"webhooks": edited}));
        let edit = stage.injectors().patch(INJECTOR, &params, &patch).await?;
        assert_ne!(edit.webhooks.unwrap_or_default(), good, "{what}");
        let at = Instant::now();
        stage
            .entries(&format!("{what} is undone"), HEALED, |all| *all == *good)
            .await?;
        eprintln!("{what}: undone after {:?}", at.elapsed());
    }
    eventually("an Event names the meddler", SOON, async || {
        let told = stage.restored().await?;
        check(
            told.iter().any(|text| text.contains("meddler")),
            format_args!("{told:?}"),
        )
    })
    .await?;
    let validators: Api<ValidatingWebhookConfiguration> = Api::all(stage.cluster.client());
    let before = stage.uids().await?;
    stage
        .injectors()
        .delete(INJECTOR, &DeleteParams::default())
        .await?;
    validators
        .delete(VALIDATOR, &DeleteParams::default())
        .await?;
    eventually("both are there again", HEALED, async || {
        let now = stage.uids().await.map_err(NotYet::new)?;
        let again = now.0.is_some() && now.1.is_some() && now.0 != before.0 && now.1 != before.1;
        check(again, format_args!("{now:?}"))
    })
    .await?;
    stage
        .entries("with the same entries", HEALED, |all| {
            names(all) == names(&good)
        })
        .await?;
    Ok(())
}

async fn last_binding_takes_the_entries_away(
    stage: &Stage,
    scenario: &Scenario,
    required: &str,
) -> Result<()> {
    scenario
        .kubectl(&["delete", "asya", "--all", "--wait=false"])
        .await?;
    let deleted = Instant::now();
    stage
        .entries("no entry is left", FOLLOWED, <[_]>::is_empty)
        .await?;
    eprintln!("last binding: entries gone after {:?}", deleted.elapsed());
    scenario.actor_gone(required, SOON).await?;
    let late = scenario.name("late");
    scenario.apply(&bound_actor(&late, "web")).await?;
    stage
        .entries("it comes again", FOLLOWED, |all| all.len() == 1)
        .await?;
    let status = status_is(scenario, &late, "it is bound", SOON, |status| {
        condition(status, "TargetResolved").1 == "Resolved"
    })
    .await?;
    assert!(status["boundSince"].is_string(), "{status}");
    Ok(())
}

/// AVL-5
async fn configurations_go_with_the_owner_role(stage: &Stage) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(stage.cluster.client());
    let mut role = roles.get(OWNER_ROLE).await?;
    roles.delete(OWNER_ROLE, &DeleteParams::default()).await?;
    eventually("both are collected", SOON, async || {
        let left = stage.uids().await.map_err(NotYet::new)?;
        check(left == (None, None), format_args!("{left:?}"))
    })
    .await?;
    role.metadata = kube::api::ObjectMeta {
        name: role.metadata.name,
        annotations: role.metadata.annotations,
        labels: role.metadata.labels,
        ..Default::default()
    };
    let role = roles.create(&PostParams::default(), &role).await?;
    eventually(
        "the new ClusterRole owns the injector",
        HEALED,
        async || {
            let injector = stage.injectors().get(INJECTOR).await?;
            let owners = injector.metadata.owner_references.unwrap_or_default();
            let owned = owners
                .iter()
                .any(|owner| Some(&owner.uid) == role.metadata.uid.as_ref());
            check(owned, format_args!("{owners:?}"))
        },
    )
    .await
}
