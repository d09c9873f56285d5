//! `kubectl asya`, as a user runs it.

mod bundle;
mod documented;
mod findings;
mod formats;
mod preview;
mod queue;
mod requests;
mod terminal;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use asya_tests::Result;
use asya_tests::error::Error;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::operator::bin_folder;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, model, status_is};
use crate::minimal_actor;

/// Generous, because the machine is shared.
const MINUTE: Duration = Duration::from_mins(1);

/// The result of running the program.
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    fn json(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.out)?)
    }
}

/// Runs the program in the scenario's namespace, and prints what a user would see.
async fn asya(scenario: &Scenario, args: &[&str]) -> Result<Ended> {
    run(scenario, scenario.namespace(), &std::env::temp_dir(), args).await
}

/// Additional flags: other scenarios slow the API server down, so commands may take as long as the scenario waits for
/// them.
fn patience(args: &[&str]) -> &'static [&'static str] {
    if args.contains(&"--timeout") {
        return &[];
    }
    &["--timeout", "50s"]
}

/// Runs the program in a namespace and a folder, and prints what a user would see.
async fn run(scenario: &Scenario, namespace: &str, folder: &Path, args: &[&str]) -> Result<Ended> {
    let failed = |error: std::io::Error| Error::other(format!("kubectl-asya: {error}"));
    let program = bin_folder()?.join("kubectl-asya");
    let program = std::path::absolute(program).map_err(Error::other)?;
    let output = tokio::process::Command::new(program)
        .args(args)
        .args(patience(args))
        .args(["--namespace", namespace])
        .current_dir(folder)
        .env_clear()
        .env("KUBECONFIG", &scenario.cluster().state().kubeconfig)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(failed)?;
    let ended = Ended {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    let command = args.join(" ");
    println!(
        "$ kubectl asya {command}\n{}{}[{:?}]\n",
        ended.out, ended.err, ended.code
    );
    Ok(ended)
}

/// A kubeconfig for a user without permissions.
fn restricted(scenario: &Scenario) -> Result<String> {
    let state = scenario.cluster().state();
    let config = std::fs::read(&state.kubeconfig).map_err(Error::other)?;
    let mut config: Value = serde_json::from_slice(&config)?;
    config["users"][0]["user"]["as"] = json!("nobody");
    let file = scenario.cluster().folder().join(scenario.name("nobody"));
    std::fs::write(&file, config.to_string()).map_err(Error::other)?;
    Ok(file.display().to_string())
}

/// A bound Deployment with two pods that started before the binding.
async fn bound(scenario: &Scenario, name: &str) -> Result<Vec<String>> {
    let deployments = scenario.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &model("model", 2)?)
        .await?;
    let pods = scenario.api::<Pod>();
    let names = eventually("the target has two pods", SOON, async || {
        let found = pods
            .list(&ListParams::default().labels("app=model"))
            .await?;
        let names: Vec<String> = found
            .iter()
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        check(names.len() == 2, format_args!("{names:?}"))?;
        Ok(names)
    })
    .await?;
    let ready = "--for=jsonpath={.status.readyReplicas}=2";
    scenario
        .kubectl(&["wait", "deployment/model", ready, "--timeout=60s"])
        .await?;
    let mut actor = bound_actor(name, "model");
    actor["spec"]["binding"] = json!({"rollout": "OnRestart"});
    scenario.apply(&actor).await?;
    status_is(scenario, name, "its pods are reported", SOON, |status| {
        condition(status, "Injected") == ("False", "PodsNotInjected")
            && status["injection"]["proved"].is_string()
    })
    .await?;
    Ok(names)
}

/// INJ-1, BIND-7: a user finds out why a pod has no sidecar, and gets the pods replaced.
#[tokio::test]
async fn user_finds_out_why_pods_have_no_sidecar_and_rolls_them() {
    Scenario::run("cli-why", async |scenario| {
        let name = scenario.name("bound");
        let pods = bound(scenario, &name).await?;
        let listed = asya(scenario, &["status"]).await?;
        assert_eq!(listed.code, Some(1), "{}", listed.out);
        assert!(listed.out.contains("PodsNotInjected"), "{}", listed.out);
        let page = asya(scenario, &["status", &name]).await?;
        assert!(
            page.out
                .contains("2 without the sidecar (StartedBeforeBinding)"),
            "{}",
            page.out
        );
        let namespace = scenario.namespace();
        let roll = format!("`kubectl asya roll {name} -n {namespace}` replaces them now");
        for part in [
            "2 pods are ready, without the sidecar",
            "spec.binding.rollout is OnRestart",
            &roll,
        ] {
            assert!(page.out.contains(part), "{part}: {}", page.out);
        }

        let why = asya(scenario, &["why", &format!("Pod/{}", pods[0])]).await?;
        assert_eq!(why.code, Some(1), "{}{}", why.out, why.err);
        assert!(
            why.out
                .contains("has no sidecar; created now, it would get it"),
            "{}",
            why.out
        );
        assert!(
            why.out.contains("\nwhy: StartedBeforeBinding") && why.out.contains(&roll),
            "{}",
            why.out
        );
        pods_of_others_are_explained(scenario, &name, &pods).await?;
        let why = asya(scenario, &["why", &pods[0], "-o", "json"])
            .await?
            .json()?;
        assert_eq!(
            (&why["reason"], &why["rule"]),
            (&json!("Injected"), &json!(9))
        );

        let refused = asya(scenario, &["roll", &name]).await?;
        assert_eq!(
            refused.code,
            Some(2),
            "nobody is there to consent: {}",
            refused.err
        );
        let rolled = asya(scenario, &["roll", &name, "--yes"]).await?;
        assert_eq!(rolled.code, Some(0), "{}", rolled.err);
        status_is(
            scenario,
            &name,
            "all pods are injected",
            Duration::from_mins(1),
            |status| condition(status, "Injected") == ("True", "AllPodsInjected"),
        )
        .await?;
        let found = scenario
            .api::<Pod>()
            .list(&ListParams::default().labels("app=model"))
            .await?;
        let injected = found
            .iter()
            .find(|pod| pod.metadata.deletion_timestamp.is_none());
        let injected = injected.and_then(|pod| pod.metadata.name.clone()).unwrap();
        let page = asya(scenario, &["status", &name]).await?;
        assert!(
            page.out.contains("annotation asya.sh/roll-now (since "),
            "{}",
            page.out
        );
        let why = asya(scenario, &["why", &injected]).await?;
        assert_eq!(why.code, Some(0), "{}{}", why.out, why.err);
        assert!(why.out.contains("(AlreadyInjected, rule 5)"), "{}", why.out);
        Ok(())
    })
    .await;
}

/// `why` for an actor or a Deployment explains each of its pods, or the pod that it would create.
async fn pods_of_others_are_explained(
    scenario: &Scenario,
    name: &str,
    pods: &[String],
) -> Result<()> {
    for subject in [format!("actor/{name}"), "deploy/model".to_owned()] {
        let why = asya(scenario, &["why", &subject, "-o", "json"]).await?;
        assert_eq!(why.code, Some(1), "{}{}", why.out, why.err);
        let why = why.json()?;
        let all = why.as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(all.len(), 2, "{why:#}");
        let named = |pod: &String| {
            let full = format!("{}/{pod}", scenario.namespace());
            all.iter().any(|it| it["pod"] == full)
        };
        assert!(pods.iter().all(named), "{why:#}");
        let page = asya(scenario, &["why", &subject]).await?;
        assert!(page.out.contains("the same holds for "), "{}", page.out);
    }
    let mut empty = serde_json::to_value(model("empty", 0)?)?;
    empty["spec"]["selector"]["matchLabels"] = json!({"app": "empty"});
    empty["spec"]["template"]["metadata"]["labels"] = json!({"app": "empty"});
    let deployments = scenario.api::<Deployment>();
    let empty = serde_json::from_value(empty)?;
    deployments.create(&PostParams::default(), &empty).await?;
    let why = asya(scenario, &["why", "deploy/empty"]).await?;
    assert_eq!(why.code, Some(1), "{}{}", why.out, why.err);
    let heading = "A new pod of Deployment/empty does not get the sidecar (NoActor, rule 2)";
    assert!(why.out.starts_with(heading), "{}", why.out);
    Ok(())
}

/// A name that is not in the namespace: the answer says where it is, or that there is no such namespace.
#[tokio::test]
async fn missing_actor_is_found_elsewhere_and_a_missing_namespace_is_said_to_be_missing() {
    Scenario::run("cli-missing", async |scenario| {
        let name = scenario.name("actor");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", MINUTE).await?;
        let temp = std::env::temp_dir();
        let namespace = scenario.namespace();
        let is_in = format!("it is in {namespace}: pass -n {namespace}");
        for (within, args, text) in [
            ("default", &["status", &name][..], &*is_in),
            ("default", &["trace", &name], &is_in),
            (
                "none-such",
                &["status", &name],
                "namespace none-such does not exist",
            ),
            (
                "none-such",
                &["status"],
                "namespace none-such does not exist",
            ),
            (
                "none-such",
                &["why", "pod-0"],
                "namespace none-such does not exist",
            ),
            (
                "default",
                &["status", "-A", "no-such-actor"],
                "in any namespace",
            ),
        ] {
            let ended = run(scenario, within, &temp, args).await?;
            assert_eq!(ended.code, Some(2), "{args:?}: {}", ended.out);
            assert!(ended.err.contains(text), "{text}: {}", ended.err);
            assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        }
        let found = run(scenario, "default", &temp, &["status", &name, "-A"]).await?;
        assert_eq!(found.code, Some(0), "{}{}", found.out, found.err);
        assert!(
            found
                .out
                .contains(&format!("AsyncActor {namespace}/{name} Running"))
        );

        let operators = ["--operator-namespace", "default"];
        let queue = asya(scenario, &[&["queue", &name][..], &operators].concat()).await?;
        let there = "there is one in asya-system: pass --operator-namespace asya-system";
        assert!(queue.err.contains(there), "{}", queue.err);
        Ok(())
    })
    .await;
}

/// API-3, FW-21, BIND-43: each change is one write, and the output says what follows.
#[tokio::test]
async fn actors_are_paused_resumed_retained_and_unbound() {
    Scenario::run("cli-change", async |scenario| {
        let (name, own) = (scenario.name("bound"), scenario.name("own"));
        bound(scenario, &name).await?;
        scenario.apply(&minimal_actor(&own)).await?;
        scenario.actor_status(&own, "Running", SOON).await?;
        for (command, annotation) in [("pause", json!("true")), ("resume", Value::Null)] {
            let changed = asya(scenario, &[command, &own, "--yes"]).await?;
            assert_eq!(changed.code, Some(0), "{}", changed.err);
            let stored = scenario.actors().get(&own).await?;
            let annotations = stored.metadata.annotations.unwrap_or_default();
            assert_eq!(
                json!(annotations.get("asya.sh/paused")),
                annotation,
                "{command}"
            );
        }
        let checked = asya(scenario, &["retain", &name, "--dry-run=server"]).await?;
        assert_eq!(checked.code, Some(0), "{}", checked.err);
        assert_eq!(
            scenario.actors().get(&name).await?.data["spec"]["queue"],
            Value::Null
        );
        let refused = asya(scenario, &["unbind", &own, "--yes"]).await?;
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        let unbound = asya(scenario, &["unbind", &name, "--keep-queue", "--yes"]).await?;
        assert_eq!(unbound.code, Some(0), "{}", unbound.err);
        scenario.actor_gone(&name, Duration::from_mins(1)).await?;
        let queue = format!("asya-{name}");
        let rabbitmq = scenario.cluster().rabbitmq()?;
        assert!(rabbitmq.queue(&queue).await?.is_some(), "the queue is kept");
        rabbitmq.delete_queue(&queue).await?;
        let missing = asya(scenario, &["status", &name]).await?;
        assert_eq!(missing.code, Some(2), "{}", missing.err);
        assert!(
            missing.err.contains(&format!("there are {own}")),
            "{}",
            missing.err
        );
        Ok(())
    })
    .await;
}

/// A working installation has no findings other than actors of other scenarios, and all its checks get an answer.
#[tokio::test]
async fn check_answers_every_question_of_a_working_installation() {
    Scenario::run("cli-check", async |scenario| {
        asya(scenario, &["check"]).await?;
        let checks = asya(scenario, &["check", "-o", "json"]).await?.json()?;
        let all = checks.as_array().map_or(&[][..], Vec::as_slice);
        for subject in [
            "Kubernetes",
            "CRD",
            "leader",
            "webhook configuration",
            "webhook review",
            "KEDA",
        ] {
            let found = all.iter().find(|it| it["subject"] == subject);
            assert_eq!(
                found.map(|it| &it["result"]),
                Some(&json!("ok")),
                "{subject}: {checks:#}"
            );
        }
        // Actors of other scenarios may name transports that do not exist.
        let transports = all.iter().find(|it| it["subject"] == "transports");
        let transports = transports.cloned().unwrap_or_default().to_string();
        assert!(
            !transports.is_empty() && !transports.contains(scenario.namespace()),
            "{transports}"
        );
        let before = asya(scenario, &["check", "--pre"]).await?;
        assert_eq!(before.code, Some(0), "{}", before.out);
        Ok(())
    })
    .await;
}
