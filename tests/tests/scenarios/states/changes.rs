//! The normal life of an actor: created, running, updated, deleted.

use asya_tests::Result;
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Case, Reported, actor, kubelet, workload};

/// STA-4, STA-6
#[tokio::test]
async fn creating_is_reported_for_a_new_actor() {
    Case::run("Creating", async |case| {
        let name = case.scenario.name("new");
        let reported = workload("Creating", "Progressing");
        let applied = actor(&name, "hold", 1);
        case.is_reported(reported, "a new actor", &name, case.apply(&applied))
            .await
    })
    .await;
}

/// STA-4, STA-6, API-7
#[tokio::test]
async fn running_is_reported_and_shown_by_kubectl() {
    Case::run("Running", async |case| {
        let name = case.scenario.name("starts");
        case.apply(&actor(&name, "hold", 1)).await?;
        case.is(workload("Creating", "Progressing"), &name).await?;
        let pod = kubelet::pod(case.scenario, &name).await?;
        let starts = kubelet::report_status(case.scenario, &pod, kubelet::ready(&pod));
        let reported = workload("Running", "PodsReady");
        case.is_reported(reported, "the only pod gets ready", &name, starts)
            .await?;
        let shown = case.scenario.kubectl(&["get", "asya", &name]).await?;
        let mut lines = shown.lines();
        let (header, row) = (
            lines.next().unwrap_or_default(),
            lines.next().unwrap_or_default(),
        );
        let column = header.find("STATUS").and_then(|at| row.get(at..));
        assert!(
            column.is_some_and(|status| status.starts_with("Running ")),
            "{shown}"
        );
        Ok(())
    })
    .await;
}

/// A running actor.
async fn runs(case: &Case<'_>, mode: &str, replicas: i32) -> Result<(String, Value)> {
    let name = case.scenario.name("runs");
    let actor = actor(&name, mode, replicas);
    case.apply(&actor).await?;
    case.is(workload("Running", "PodsReady"), &name).await?;
    Ok((name, actor))
}

/// STA-4, STA-6
#[tokio::test]
async fn updating_is_reported_for_a_new_template() {
    Case::run("Updating", async |case| {
        let (name, mut actor) = runs(case, "ready", 1).await?;
        let template = &mut actor["spec"]["workload"]["template"];
        template["metadata"]["labels"]["kwok.test/mode"] = json!("hold");
        let reported = workload("Updating", "RollingOut");
        let why = "another template, whose pods take their time";
        case.is_reported(reported, why, &name, case.apply(&actor))
            .await
    })
    .await;
}

/// STA-4 row 10, WRK-2
#[tokio::test]
async fn restart_and_scale_down_of_a_stateful_set_are_distinguished() {
    Case::watch("sets", async |case| {
        let scenario = case.scenario;
        let name = scenario.name("set");
        let mut actor = actor(&name, "slowstop", 1);
        actor["spec"]["workload"]["kind"] = json!("StatefulSet");
        case.apply(&actor).await?;
        case.is(workload("Running", "PodsReady"), &name).await?;

        let mark = case.recorder.mark();
        let set = format!("statefulset/{name}");
        scenario.kubectl(&["rollout", "restart", &set]).await?;
        let restarted = workload("Updating", "RollingOut");
        case.recorder.first(mark, &name, restarted, SOON).await?;
        scenario
            .kubectl(&["rollout", "status", &set, "--timeout=60s"])
            .await?;
        eventually("it runs again", SOON, async || {
            let states = case.recorder.states(mark, &name);
            // A status in flight may still say Running.
            let begun = states.iter().position(|it| *it == "Updating");
            check(
                states[begun.unwrap_or_default()..] == ["Updating", "Running"],
                format_args!("{states:?}"),
            )
        })
        .await?;

        actor["spec"]["workload"]["replicas"] = json!(3);
        case.apply(&actor).await?;
        eventually("three pods are reported", SOON, async || {
            let found = scenario.actors().get(&name).await?;
            let reported = &found.data["status"];
            let all_run = reported["status"] == "Running" && reported["readyReplicas"] == 3;
            check(all_run, format_args!("{reported}"))
        })
        .await?;
        let all = workload("Running", "PodsReady");
        actor["spec"]["workload"]["replicas"] = json!(1);
        let mark = case.recorder.mark();
        case.apply(&actor).await?;
        let fewer = workload("ScalingDown", "PodsReady");
        case.recorder.first(mark, &name, fewer, SOON).await?;
        case.recorder.first(mark, &name, all, SOON).await?;
        let states = case.recorder.states(mark, &name);
        assert!(!states.contains(&"Updating".to_owned()), "{states:?}");
        Ok(())
    })
    .await;
}

/// STA-4, STA-6
#[tokio::test]
async fn scaling_up_is_reported_for_more_replicas() {
    Case::run("ScalingUp", async |case| {
        let (name, mut actor) = runs(case, "ready", 1).await?;
        actor["spec"]["workload"]["replicas"] = json!(3);
        let reported = workload("ScalingUp", "Scaling");
        case.is_reported(
            reported,
            "3 replicas in place of 1",
            &name,
            case.apply(&actor),
        )
        .await
    })
    .await;
}

/// STA-4, STA-6
#[tokio::test]
async fn scaling_down_is_reported_for_fewer_replicas() {
    Case::run("ScalingDown", async |case| {
        let (name, mut actor) = runs(case, "slowstop", 3).await?;
        actor["spec"]["workload"]["replicas"] = json!(1);
        let reported = workload("ScalingDown", "PodsReady");
        case.is_reported(
            reported,
            "1 replica in place of 3",
            &name,
            case.apply(&actor),
        )
        .await
    })
    .await;
}

/// STA-4, STA-6, FIN-1, FIN-2
#[tokio::test]
async fn terminating_is_reported_and_does_not_wait_for_other_finalizers() {
    Case::run("Terminating", async |case| {
        let scenario = case.scenario;
        let name = scenario.name("goes");
        let mut held = actor(&name, "ready", 1);
        held["metadata"]["finalizers"] = json!(["example.com/backup"]);
        case.apply(&held).await?;
        case.is(workload("Running", "PodsReady"), &name).await?;
        let actors = scenario.actors();
        let reported = Reported {
            state: "Terminating",
            condition: "Ready",
            reason: "Terminating",
        };
        let deleted = async {
            actors.delete(&name, &DeleteParams::default()).await?;
            Ok(())
        };
        case.is_reported(
            reported,
            "deletion, another finalizer holds it",
            &name,
            deleted,
        )
        .await?;
        let only_theirs = eventually("our part is done", SOON, async || {
            let finalizers = actors
                .get(&name)
                .await?
                .metadata
                .finalizers
                .unwrap_or_default();
            match &*finalizers {
                [theirs] if theirs == "example.com/backup" => Ok(()),
                other => Err(NotYet::new(format_args!("{other:?}"))),
            }
        });
        only_theirs.await?;
        let queue = scenario
            .cluster()
            .rabbitmq()?
            .queue(&format!("asya-{name}"))
            .await?;
        assert!(queue.is_none(), "the queue is still there");
        let left = scenario.api::<Deployment>().get_opt(&name).await?;
        assert!(left.is_none(), "the Deployment is still there");

        // The finalizer is not added back: the API server would always reject that for an object that is being deleted.
        let label = Patch::Merge(json!({"metadata": {"annotations": {"asya.sh/paused": "false"}}}));
        actors.patch(&name, &PatchParams::default(), &label).await?;
        let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        actors
            .patch(&name, &PatchParams::default(), &release)
            .await?;
        scenario.actor_gone(&name, SOON).await
    })
    .await;
}
