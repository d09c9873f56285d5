//! Problems of actors, on the shared cluster.

use asya_tests::Result;
use asya_tests::error::Error;
use asya_tests::eventually::{check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{checked, is_found};
use crate::binding::{bound_actor, condition, model, older_than_the_next, status_is};
use crate::cli::MINUTE;
use crate::minimal_actor;

/// A problem of an actor: base of its name, its cause, and what `check` finds.
struct Problem {
    name: &'static str,
    /// Changes an actor that would otherwise run.
    cause: fn(&mut Value),
    id: &'static str,
    fix: &'static str,
}

const PROBLEMS: [Problem; 11] = [
    Problem {
        name: "unknown-transport",
        cause: |it| it["spec"]["transport"] = json!("kafka"),
        id: "InvalidTransport",
        fix: "Name a configured transport",
    },
    Problem {
        name: "no-queue",
        cause: |it| it["spec"]["transport"] = json!("theirs"),
        id: "QueueMissing",
        fix: "Create the queue at the broker",
    },
    Problem {
        name: "no-node",
        cause: |it| template(it)["spec"]["nodeSelector"] = json!({"gpu": "yes"}),
        id: "PendingResources",
        fix: "Add nodes, raise the quota",
    },
    Problem {
        name: "no-image",
        cause: |it| mode(it, "imagepull", "asya-runtime"),
        id: "ImagePullError",
        fix: "Correct its name",
    },
    Problem {
        name: "crashes",
        cause: |it| mode(it, "crashloop", "asya-runtime"),
        id: "RuntimeError",
        fix: "Read `kubectl logs POD --container asya-runtime --previous`",
    },
    Problem {
        name: "sidecar-crashes",
        cause: |it| mode(it, "crashloop", "asya-sidecar"),
        id: "SidecarError",
        fix: "Read `kubectl logs POD --container asya-sidecar --previous`",
    },
    Problem {
        name: "invalid",
        cause: |it| template(it)["spec"]["containers"][0]["command"] = json!(["sh"]),
        id: "ValidationError",
        fix: "Correct the field that the message names",
    },
    Problem {
        name: "taken",
        cause: |_| {},
        id: "NotOwned",
        fix: "Rename the actor or that object",
    },
    Problem {
        name: "rival",
        cause: |it| it["spec"]["scaling"] = json!({"enabled": true, "minReplicas": 1}),
        id: "RivalAutoscaler",
        fix: "Delete that object",
    },
    Problem {
        name: "no-target",
        cause: |it| binds(it, "apps/v1", "Deployment"),
        id: "TargetNotFound",
        fix: "Create it, or correct the name",
    },
    Problem {
        name: "no-kind",
        cause: |it| binds(it, "example.org/v1", "Nothing"),
        id: "KindNotInstalled",
        fix: "Install its CustomResourceDefinition",
    },
];

fn template(actor: &mut Value) -> &mut Value {
    &mut actor["spec"]["workload"]["template"]
}

fn mode(actor: &mut Value, mode: &str, container: &str) {
    template(actor)["metadata"]["labels"] =
        json!({"kwok.test/mode": mode, "kwok.test/container": container});
}

fn binds(actor: &mut Value, api_version: &str, kind: &str) {
    let target = json!({"apiVersion": api_version, "kind": kind, "name": "none"});
    actor["spec"] = json!({"transport": "rabbitmq", "workloadRef": target});
}

/// Objects that others have created first.
fn of_others(scenario: &Scenario) -> Result<Vec<Value>> {
    let (taken, scaled_twice) = (scenario.name("taken"), scenario.name("rival"));
    let mut foreign = serde_json::to_value(model(&taken, 1)?)?;
    let mut held = serde_json::to_value(model("held", 2)?)?;
    held["spec"]["strategy"] = json!({"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
    let mut before = serde_json::to_value(model("before", 1)?)?;
    for deployment in [&mut foreign, &mut held, &mut before] {
        deployment["apiVersion"] = json!("apps/v1");
        deployment["kind"] = json!("Deployment");
    }
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "rival"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": scaled_twice}, "maxReplicas": 3,
        },
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "held"}}},
    });
    Ok(vec![foreign, held, before, autoscaler, budget])
}

/// Bindings that cannot come into effect, and one whose target another actor has.
async fn bindings(scenario: &Scenario) -> Result<()> {
    for target in ["held", "before"] {
        let deployments = scenario.api::<Deployment>();
        eventually("the target is ready", MINUTE, async || {
            let status = deployments.get(target).await?.status.unwrap_or_default();
            check(
                status.ready_replicas == status.replicas,
                format_args!("{status:?}"),
            )
        })
        .await?;
    }
    let mut later = bound_actor(&scenario.name("later"), "before");
    later["spec"]["binding"] = json!({"rollout": "OnRestart"});
    let held = bound_actor(&scenario.name("held"), "held");
    scenario.apply_all(&[later, held]).await?;
    let first = scenario.name("later");
    status_is(scenario, &first, "it is bound", MINUTE, |status| {
        condition(status, "TargetResolved").1 == "Resolved"
    })
    .await?;
    older_than_the_next(scenario, &first).await?;
    let second = bound_actor(&scenario.name("second"), "before");
    scenario.apply(&second).await
}

/// Another client sets the replicas of an actor's Deployment whenever `check` runs.
async fn set_replicas_again(scenario: &Scenario, name: &str) -> Result<()> {
    let deployments = scenario.api::<Deployment>();
    let params = PatchParams {
        field_manager: Some("night-shift".to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let scale = deployments.get_scale(name).await?;
    if scale.spec.is_none_or(|it| it.replicas != Some(3)) {
        deployments.patch_scale(name, &params, &patch).await?;
    }
    Ok(())
}

/// Two actors with the same name in two namespaces.
async fn two_for_one_queue(scenario: &Scenario) -> Result<()> {
    let name = scenario.name("same");
    let mut other = minimal_actor(&name);
    other["metadata"]["namespace"] = json!("default");
    scenario.apply(&minimal_actor(&name)).await?;
    scenario.actor_status(&name, "Running", MINUTE).await?;
    older_than_the_next(scenario, &name).await?;
    let file = scenario.cluster().folder().join(&name);
    std::fs::write(&file, other.to_string()).map_err(Error::other)?;
    let file = file.display().to_string();
    let cluster = scenario.cluster();
    cluster.kubectl(&["apply", "--filename", &file]).await?;
    let subject = format!("actor default/{name}");
    eventually("the second actor is found", MINUTE, async || {
        let (_, checks) = checked(scenario, &[]).await?;
        let finding = (&*subject, "QueueConflict", "Rename the actor");
        check(is_found(&checks, finding), format_args!("{checks:#}"))
    })
    .await?;
    cluster
        .kubectl(&["delete", "--filename", &file, "--timeout=60s"])
        .await
        .map(drop)
}

async fn are_found(scenario: &Scenario, findings: &[(&str, &str, &str)]) -> Result<()> {
    let namespace = scenario.namespace();
    let subjects = findings.iter().map(|(name, id, fix)| {
        let subject = format!("actor {namespace}/{}", scenario.name(name));
        (subject, *id, *fix)
    });
    let subjects: Vec<_> = subjects.collect();
    eventually("the problems are found", 2 * MINUTE, async || {
        let (ended, checks) = checked(scenario, &[]).await?;
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        for (subject, id, fix) in &subjects {
            let of_it = checks.as_array().into_iter().flatten();
            let of_it: Vec<_> = of_it.filter(|it| it["subject"] == **subject).collect();
            check(
                is_found(&checks, (subject, id, fix)),
                format_args!("{id}: {of_it:?}"),
            )?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn check_finds_each_problem_of_an_actor() {
    Scenario::run("cli-actor-problems", async |scenario| {
        scenario.apply_all(&of_others(scenario)?).await?;
        let actors = PROBLEMS.iter().map(|problem| {
            let mut actor = minimal_actor(&scenario.name(problem.name));
            (problem.cause)(&mut actor);
            actor
        });
        let actors: Vec<_> = actors.collect();
        scenario.apply_all(&actors).await?;
        bindings(scenario).await?;
        let mut findings: Vec<_> = PROBLEMS.iter().map(|it| (it.name, it.id, it.fix)).collect();
        findings.extend([
            ("later", "PodsNotInjected", "`kubectl asya why POD`"),
            ("second", "AlreadyBound", "Let one actor bind it"),
            ("held", "RolloutWaiting", "See the message"),
        ]);
        are_found(scenario, &findings).await?;

        let calm = scenario.name("contested");
        let mut actor = minimal_actor(&calm);
        actor["spec"]["workload"]["replicas"] = json!(1);
        scenario.apply(&actor).await?;
        scenario.actor_status(&calm, "Running", MINUTE).await?;
        eventually("contention is reported", 2 * MINUTE, async || {
            set_replicas_again(scenario, &calm)
                .await
                .map_err(asya_tests::eventually::NotYet::new)?;
            let status = &scenario.actors().get(&calm).await?.data["status"];
            check(
                condition(status, "Conflict") == ("True", "FieldConflict"),
                status,
            )
        })
        .await?;
        let contested = (
            "contested",
            "FieldConflict",
            "Make that client leave the field alone",
        );
        are_found(scenario, &[contested]).await?;

        two_for_one_queue(scenario).await?;
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
            "spec": {"hard": {"pods": "0"}},
        });
        scenario.apply(&quota).await?;
        scenario
            .kubectl(&[
                "wait",
                "quota/none",
                "--for=jsonpath={.status.hard.pods}=0",
                "--timeout=60s",
            ])
            .await?;
        scenario
            .apply(&minimal_actor(&scenario.name("beyond")))
            .await?;
        are_found(
            scenario,
            &[("beyond", "PendingResources", "Add nodes, raise the quota")],
        )
        .await?;

        // What has been removed is no longer found.
        scenario
            .kubectl(&["delete", "asya", "--all", "--timeout=120s"])
            .await?;
        let (_, checks) = checked(scenario, &[]).await?;
        let mine = format!("actor {}/", scenario.namespace());
        let left = checks.as_array().into_iter().flatten();
        let left: Vec<_> = left
            .filter(|it| {
                it["subject"]
                    .as_str()
                    .is_some_and(|it| it.starts_with(&mine))
            })
            .collect();
        assert!(left.is_empty(), "{left:#?}");
        Ok(())
    })
    .await;
}
