//! Bindings at rest: neither a restart nor unrelated changes make the operator act.

use std::time::Duration;

use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{LATER, NotYet, check, eventually};
use asya_tests::operator::{Instance, Operator, unvalidated};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use asya_tests::{Error, Result};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, model, older_than_the_next, status_is};
use crate::own_cluster;
use crate::steady::{RECONCILES, Writes};

/// Number of bindings in each state.
const EACH: usize = 5;

/// A state of a binding, and the condition that identifies it.
struct State {
    name: &'static str,
    reported: (&'static str, &'static str),
    /// A condition that becomes true last.
    reported_last: Option<(&'static str, &'static str)>,
    /// Replicas of the target; `None` if there is no target.
    replicas: Option<i32>,
    /// Merged into the actor's spec.
    spec: Value,
    /// Merged into the target's spec once its pods exist.
    then: Value,
}

fn states() -> Vec<State> {
    let state = |name, reported, replicas| State {
        name,
        reported,
        reported_last: None,
        replicas,
        spec: json!({}),
        then: Value::Null,
    };
    vec![
        state("rolled", ("Injected", "AllPodsInjected"), Some(1)),
        state("proved", ("Injected", "ScaledToZero"), Some(0)),
        state("absent", ("TargetResolved", "TargetNotFound"), None),
        State {
            spec: json!({"workloadRef": {"apiVersion": "example.org/v1", "kind": "Nothing", "name": "none"}}),
            ..state("unknown", ("TargetResolved", "KindNotInstalled"), None)
        },
        State {
            spec: json!({"binding": {"rollout": "OnRestart"}}),
            ..state("later", ("Injected", "PodsNotInjected"), Some(1))
        },
        State {
            spec: json!({"scaling": {"enabled": true}}),
            // Scaling is reported before the pods have the sidecar.
            reported_last: Some(("Injected", "AllPodsInjected")),
            ..state("unscaled", ("ScalingReady", "KedaNotInstalled"), Some(1))
        },
        State {
            then: json!({"paused": true}),
            ..state("waits", ("Injected", "RolloutWaiting"), Some(1))
        },
        State {
            then: json!({"template": {"spec": {"containers": [{"name": "model", "ports": null}]}}}),
            ..state("deaf", ("Injected", "TargetURLUnknown"), Some(1))
        },
    ]
}

async fn all_have_pods(scenario: &Scenario) -> Result<()> {
    let deployments = scenario.api::<Deployment>();
    eventually("the targets have their pods", LATER, async || {
        let found = deployments.list(&ListParams::default()).await?;
        let missing = found.iter().filter(|it| {
            let wanted = it.spec.as_ref().and_then(|it| it.replicas).unwrap_or(0);
            let status = it.status.clone().unwrap_or_default();
            let have = (status.replicas, status.ready_replicas);
            status.observed_generation != it.metadata.generation
                || (wanted > 0 && have != (Some(wanted), Some(wanted)))
        });
        let missing: Vec<_> = missing.map(|it| (&it.metadata.name, &it.status)).collect();
        check(missing.is_empty(), format_args!("{missing:?}"))
    })
    .await
}

/// Creates the targets and actors for a state; returns the actors' names.
async fn set(scenario: &Scenario, state: &State) -> Result<Vec<String>> {
    let deployments = scenario.api::<Deployment>();
    let (mut actors, mut names) = (Vec::new(), Vec::new());
    for number in 0..EACH {
        let target = format!("{}-{number}", state.name);
        if let Some(replicas) = state.replicas {
            let model = model(&target, replicas)?;
            deployments.create(&PostParams::default(), &model).await?;
        }
        let mut actor = bound_actor(&scenario.name(&target), &target);
        for (key, value) in state.spec.as_object().into_iter().flatten() {
            actor["spec"][key] = value.clone();
        }
        names.push(scenario.name(&target));
        actors.push(actor);
    }
    all_have_pods(scenario).await?;
    if !state.then.is_null() {
        let patch = Patch::Strategic(json!({"spec": state.then}));
        for number in 0..EACH {
            let target = format!("{}-{number}", state.name);
            deployments
                .patch(&target, &PatchParams::default(), &patch)
                .await?;
        }
        all_have_pods(scenario).await?;
    }
    scenario.apply_all(&actors).await?;
    Ok(names)
}

async fn all_reported(
    scenario: &Scenario,
    names: &[String],
    (kind, reason): (&str, &str),
) -> Result<()> {
    eventually(format_args!("{EACH} are {reason}"), LATER, async || {
        let found = scenario.actors().list(&ListParams::default()).await?;
        let of_state = found.iter().filter(|it| names.contains(&it.name_any()));
        let not_yet = of_state.filter(|it| condition(&it.data["status"], kind).1 != reason);
        let not_yet: Vec<_> = not_yet.map(|it| &it.data["status"]["conditions"]).collect();
        check(not_yet.is_empty(), format_args!("{not_yet:?}"))
    })
    .await
}

/// Adds second actors for bound targets, and bound actors whose deletion is blocked.
async fn set_by_others(scenario: &Scenario) -> Result<()> {
    older_than_the_next(scenario, &scenario.name("rolled-0")).await?;
    let of = |n: usize| (scenario.name(&format!("second-{n}")), format!("rolled-{n}"));
    let second: Vec<_> = (0..EACH).map(of).collect();
    let actors: Vec<_> = second
        .iter()
        .map(|(name, target)| bound_actor(name, target))
        .collect();
    scenario.apply_all(&actors).await?;
    let names: Vec<_> = second.into_iter().map(|(name, _)| name).collect();
    all_reported(scenario, &names, ("TargetResolved", "AlreadyBound")).await?;

    let held = State {
        name: "held",
        reported: ("Injected", "AllPodsInjected"),
        reported_last: None,
        replicas: Some(1),
        spec: json!({}),
        then: Value::Null,
    };
    let names = set(scenario, &held).await?;
    all_reported(scenario, &names, held.reported).await?;
    for (number, name) in names.iter().enumerate() {
        let target = format!("deployment/held-{number}");
        scenario.kubectl(&["rollout", "pause", &target]).await?;
        scenario
            .kubectl(&["delete", "asya", name, "--wait=false"])
            .await?;
    }
    all_reported(scenario, &names, ("Ready", "UnbindBlocked")).await
}

async fn seen_again(instance: &Instance, actors: usize) -> Result<()> {
    let actors = f64::from(u32::try_from(actors).map_err(Error::other)?);
    eventually("every actor is seen again", LATER, async || {
        let reconciles = instance
            .metric(RECONCILES, &[])
            .await
            .map_err(NotYet::new)?;
        check(
            reconciles >= actors,
            format_args!("{reconciles} reconciles"),
        )
    })
    .await
}

/// BIND-48, BIND-62
#[tokio::test]
async fn restart_with_fifty_bindings_in_every_state_writes_nothing() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "restarted", async |scenario| {
        let operator = Operator::install(&cluster, unvalidated()).await?;
        let mut instance = operator.start("operator").await?;
        let _webhook = Webhook::start(&operator).await?;
        let user = operator.user();
        let writes = Writes {
            audit: cluster.audit(),
            user: &user,
        };
        let states = states();
        let mut sets = Vec::new();
        for state in &states {
            let names = set(scenario, state).await?;
            let last = state
                .reported_last
                .map(|reported| (names.clone(), reported));
            sets.extend([(names, state.reported)].into_iter().chain(last));
        }
        for (names, reported) in &sets {
            all_reported(scenario, names, *reported).await?;
        }
        set_by_others(scenario).await?;
        let actors = scenario.actors().list(&ListParams::default()).await?;
        assert_eq!(actors.items.len(), EACH * (states.len() + 2));

        writes.end().await?;
        let rest = writes.audit.mark().await?;
        instance.stop().await?;
        instance.restart().await?;
        instance.wait_ready().await?;
        seen_again(&instance, actors.items.len()).await?;
        writes.end().await?;
        assert_eq!(writes.since(rest).await?, []);
        Ok(())
    })
    .await;
}

/// Waits for at least this many reconciles; returns their number.
async fn reconciles(instance: &Instance, at_least: f64) -> Result<f64> {
    eventually(format_args!("{at_least} reconciles"), LATER, async || {
        let reconciles = instance
            .metric(RECONCILES, &[])
            .await
            .map_err(NotYet::new)?;
        check(reconciles >= at_least, reconciles)?;
        Ok(reconciles)
    })
    .await
}

/// Starts an operator with one binding, and waits until it is at rest.
async fn at_rest(scenario: &Scenario, cluster: &Cluster) -> Result<(Instance, Webhook, f64)> {
    let operator = Operator::install(cluster, unvalidated()).await?;
    let instance = operator.start("operator").await?;
    // Without a webhook, the dry run of a pod would be retried continuously.
    let webhook = Webhook::start(&operator).await?;
    let (name, deployments) = (scenario.name("bound"), scenario.api::<Deployment>());
    let new = PostParams::default();
    deployments.create(&new, &model("bound", 1)?).await?;
    let mut actor = bound_actor(&name, "bound");
    actor["spec"]["binding"] = json!({"rollout": "OnRestart"});
    scenario.apply(&actor).await?;
    status_is(scenario, &name, "it is bound", LATER, |status| {
        condition(status, "Injected").1 == "PodsNotInjected" && status["pods"]["matched"] == 1
    })
    .await?;
    let mut before = -1.0;
    eventually("no reconcile happens any more", LATER, async || {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = instance
            .metric(RECONCILES, &[])
            .await
            .map_err(NotYet::new)?;
        let last = std::mem::replace(&mut before, now);
        check(last.total_cmp(&now).is_eq(), now)
    })
    .await?;
    Ok((instance, webhook, before))
}

async fn label(scenario: &Scenario, name: &str, round: usize) -> Result<()> {
    let label = Patch::Merge(json!({"metadata": {"labels": {"round": round.to_string()}}}));
    let deployments = scenario.api::<Deployment>();
    deployments
        .patch(name, &PatchParams::default(), &label)
        .await?;
    Ok(())
}

/// BIND-60
#[tokio::test]
async fn updates_of_unbound_workloads_cause_no_reconcile() {
    // A unit test covers the requirement's 20,000 updates. Here, the API server's watches are real.
    const UNBOUND: usize = 100;
    const UPDATES: usize = 5;
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "unbound", async |scenario| {
        let (instance, _webhook, before) = at_rest(scenario, &cluster).await?;
        let deployments = scenario.api::<Deployment>();
        let names: Vec<_> = (0..UNBOUND).map(|n| format!("unbound-{n}")).collect();
        let each = futures::stream::iter(&names);
        each.for_each_concurrent(32, async |name| {
            let new = model(name, 0).unwrap();
            let made = deployments.create(&PostParams::default(), &new).await;
            made.unwrap();
            for round in 0..UPDATES {
                label(scenario, name, round).await.unwrap();
            }
        })
        .await;
        // Later events of the same watch: each of two updates of the bound workload causes exactly one reconcile.
        for further in 1..=2_u8 {
            label(scenario, "bound", further.into()).await?;
            let expected = before + f64::from(further);
            let after = reconciles(&instance, expected).await?;
            assert!(
                after.total_cmp(&expected).is_eq(),
                "{before} reconciles before, {after} after"
            );
        }
        Ok(())
    })
    .await;
}
