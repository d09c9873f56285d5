//! The outputs in docs/cli.md are those of this scenario. With `ASYA_WRITE_DOCS=1` it writes them; otherwise it
//! compares them, ignoring pod names, ages and numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::error::Error;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::{create_broker_secrets, default_values, merge, unvalidated};
use asya_tests::scenario::{Scenario, documents};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::{MINUTE, run};
use crate::binding::{bound_actor, condition, model};
use crate::{minimal_actor, own_cluster};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli.md");
const WRITE: &str = "ASYA_WRITE_DOCS";
const NAMESPACE: &str = "models";
/// Characters of generated names.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";

const VALUES: &str = "transports:
  rabbitmq: {enabled: true, type: rabbitmq, config: {host: rabbitmq.default}}
";
const POD: &str = "apiVersion: v1
kind: Pod
metadata:
  name: phi-7d9f-x
  namespace: models
  labels: {app: phi, pod-template-hash: 7d9f, asya.sh/inject: \"false\"}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: phi-7d9f, uid: \"1\", controller: true}]
spec: {containers: [{name: model, image: model:1, ports: [{containerPort: 8000}]}]}
---
apiVersion: asya.sh/v1alpha1
kind: AsyncActor
metadata: {name: embed, namespace: models}
spec:
  transport: rabbitmq
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: phi}
";
const LINTED: &str = "apiVersion: asya.sh/v1alpha1
kind: AsyncActor
metadata: {name: embed, namespace: models}
spec:
  transport: rabbitmq
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: phi}
  runtime: {targetURL: ftp://phi}
  scalling: {enabled: true}
---
apiVersion: asya.sh/v1alpha1
kind: AsyncActor
metadata: {name: chat, namespace: models}
spec:
  transport: sqs
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: phi}
";

/// Runs the commands of the page.
struct Author<'a> {
    scenario: &'a Scenario,
    folder: PathBuf,
    /// Output of a region's commands, each after its prompt.
    regions: BTreeMap<&'static str, String>,
}

impl Author<'_> {
    fn file(&self, name: &str, text: &str) -> Result<()> {
        let file = self.folder.join(name);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder).map_err(Error::other)?;
        }
        std::fs::write(file, text).map_err(Error::other)
    }

    /// Adds a command to a region; it must exit with this code.
    async fn shows(&mut self, region: &'static str, code: i32, args: &[&str]) -> Result<String> {
        let shown = run(self.scenario, NAMESPACE, &self.folder, args).await?;
        assert_eq!(
            shown.code,
            Some(code),
            "{args:?}: {}{}",
            shown.out,
            shown.err
        );
        let args: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
        let is_note = |line: &&str| line.starts_with("note: ");
        let (notes, questions): (Vec<&str>, Vec<&str>) = shown.err.lines().partition(is_note);
        let text = self.regions.entry(region).or_default();
        let prompt = format!("$ kubectl asya {}", args.join(" "));
        let lines = [&*prompt].into_iter().chain(questions);
        let lines = lines.chain(shown.out.lines());
        for line in lines.chain(notes) {
            *text += line;
            text.push('\n');
        }
        Ok(shown.out)
    }

    /// Removes lines of a region: from a line that begins with `from` up to the next line that begins with `to`.
    fn without(&mut self, region: &'static str, from: &str, to: &str) {
        let Some(text) = self.regions.get_mut(region) else {
            return;
        };
        let mut kept = String::new();
        let mut leaves_out = false;
        for line in text.lines() {
            if leaves_out && line.starts_with(to) {
                leaves_out = false;
                kept.push('\n');
            }
            if !leaves_out {
                kept += line;
                kept.push('\n');
            }
            if !leaves_out && line.starts_with(from) {
                leaves_out = true;
                kept += "\n...\n";
            }
        }
        *text = kept;
    }
}

fn quoted(arg: &str) -> String {
    if arg.contains([' ', '"']) {
        format!("'{arg}'")
    } else {
        arg.to_owned()
    }
}

/// The page with these regions.
fn filled(page: &str, regions: &BTreeMap<&str, String>) -> String {
    let mut filled = page.to_owned();
    for (name, text) in regions {
        let (begins, ends) = markers(name);
        let found = filled
            .split_once(&*begins)
            .and_then(|(before, rest)| Some((before, rest.split_once(&*ends)?.1)));
        let (before, after) = found.unwrap_or_else(|| panic!("docs/cli.md has no {begins}"));
        filled = format!("{before}{begins}\n```\n{text}```\n{ends}{after}");
    }
    filled
}

fn markers(name: &str) -> (String, String) {
    (
        format!("<!-- output of tests: {name} -->"),
        format!("<!-- end of {name} -->"),
    )
}

/// A page without what differs between runs: numbers, ages, generated names, and column widths.
fn shape(page: &str) -> Vec<String> {
    let words = |line: &str| {
        let words: Vec<&str> = line
            .split_whitespace()
            .map(|word| if differs(word) { "#" } else { word })
            .collect();
        words.join(" ")
    };
    page.lines().map(words).collect()
}

fn differs(word: &str) -> bool {
    let word = word.trim_matches(|it: char| !it.is_alphanumeric());
    let last = word.rsplit('-').next().unwrap_or_default();
    let generated =
        word.contains('-') && last.len() >= 5 && last.chars().all(|it| GENERATED.contains(it));
    generated || word.contains(|it: char| it.is_ascii_digit())
}

#[test]
fn shape_is_the_same_for_other_names_and_ages() {
    let one = "embed  2/2   25s   phi-7cbccc47c9-9sstd (phi-bcdfghjkl-mnpqr).";
    let other = "embed 0/1 3m2s phi-66bccc47c9-xwvzt (phi-bcdfgh8kl-mnpqr).";
    assert_eq!(shape(one), shape(other));
    assert_ne!(shape("embed Running"), shape("embed Napping"));
}

/// Runs kubectl in the namespace that the page shows.
async fn kubectl(scenario: &Scenario, args: &[&str]) -> Result<String> {
    let args = [&["--namespace", NAMESPACE], args].concat();
    scenario.cluster().kubectl(&args).await
}

async fn kubectl_apply(scenario: &Scenario, folder: &Path, objects: &[Value]) -> Result<()> {
    let file = folder.join("objects.json");
    std::fs::write(&file, documents(objects)).map_err(Error::other)?;
    let file = file.display().to_string();
    let args = ["apply", "--filename", &file];
    kubectl(scenario, &args).await.map(drop)
}

fn deployment(name: &str, replicas: i32) -> Result<Value> {
    let mut deployment = serde_json::to_value(model(name, replicas)?)?;
    deployment["apiVersion"] = json!("apps/v1");
    deployment["kind"] = json!("Deployment");
    Ok(deployment)
}

/// Waits until these actors have these reasons of a condition, this many ready pods, and these numbers of messages.
async fn reasons_are(scenario: &Scenario, expected: &[(&str, &str, &str, &str)]) -> Result<()> {
    for (name, kind, reason, ready) in expected {
        eventually(format_args!("{name} is {reason}"), 2 * MINUTE, async || {
            let text = kubectl(scenario, &["get", "asya", name, "-o", "json"]).await;
            let text = text.map_err(NotYet::new)?;
            let actor: Value = serde_json::from_str(&text)?;
            let status = &actor["status"];
            let is_so = condition(status, kind).1 == *reason
                && (ready.is_empty()
                    || status["replicasSummary"] == **ready && status["queuedMessages"].is_i64())
                && (*kind != "Injected" || status["injection"]["proved"].is_string());
            check(is_so, status)
        })
        .await?;
    }
    Ok(())
}

async fn before_the_binding(author: &mut Author<'_>) -> Result<()> {
    let scenario = author.scenario;
    let embed = "apiVersion: asya.sh/v1alpha1\nkind: AsyncActor\nmetadata: {name: embed}\nspec:\n  transport: rabbitmq\n  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: phi}\n";
    author.file("embed.yaml", embed)?;
    kubectl_apply(
        scenario,
        &author.folder,
        &[deployment("phi", 2)?, deployment("llama", 1)?],
    )
    .await?;
    for target in ["phi", "llama"] {
        let target = format!("deployment/{target}");
        kubectl(scenario, &["rollout", "status", &target, "--timeout=60s"]).await?;
    }
    author
        .shows("preview", 0, &["preview", "-f", "embed.yaml"])
        .await?;
    let of_pod = "pod of Deployment/phi (inject)";
    author.without("preview", "pod of Deployment/phi   admitted", of_pod);
    author.without("preview", "+    asya.sh/asya", "Deployment/phi (change)");

    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"},
        "spec": {"hard": {"requests.memory": "16Mi"}},
    });
    kubectl_apply(scenario, &author.folder, &[quota]).await?;
    let is_counted = "--for=jsonpath={.status.hard}";
    kubectl(
        scenario,
        &["wait", "quota/tight", is_counted, "--timeout=60s"],
    )
    .await?;
    author
        .shows("preview-quota", 1, &["preview", "-f", "embed.yaml"])
        .await?;
    author.without("preview-quota", "$ kubectl", "restarts");
    author.without("preview-quota", "  fix: Raise", "DRY RUN");
    author.without(
        "preview-quota",
        "pod of Deployment/phi   REJECTED",
        "the end",
    );
    let deleted = kubectl(scenario, &["delete", "quota", "tight"]).await;
    deleted.map(drop)
}

async fn offline(author: &mut Author<'_>) -> Result<()> {
    author.file("values.yaml", VALUES)?;
    author.file("pod.yaml", POD)?;
    author.file(
        "other-pod.yaml",
        &POD.replace("app: phi", "app: llama")
            .replace("name: phi-7d9f,", "name: llama-7d9f,"),
    )?;
    author.file("actors/models.yaml", LINTED)?;
    let file = |name: &'static str| ["why", "-f", name, "--values", "values.yaml"];
    author.shows("why-file", 1, &file("pod.yaml")).await?;
    author
        .shows("why-nearest", 1, &file("other-pod.yaml"))
        .await?;
    let lint = ["lint", "-f", "actors", "--values", "values.yaml"];
    author.shows("lint", 1, &lint).await?;
    author
        .shows("explain", 0, &["explain", "QueueConflict"])
        .await
        .map(drop)
}

async fn actors(author: &mut Author<'_>) -> Result<()> {
    let scenario = author.scenario;
    let mut embed = bound_actor("embed", "phi");
    embed["spec"]["binding"] = json!({"rollout": "OnRestart"});
    let mut chat = bound_actor("chat", "llama");
    chat["spec"]["transport"] = json!("kafka");
    let mut resize = minimal_actor("resize");
    resize["spec"]["workload"]["replicas"] = json!(1);
    kubectl_apply(scenario, &author.folder, &[embed, chat, resize]).await?;
    let expected = [
        ("embed", "Injected", "PodsNotInjected", "0/2"),
        ("chat", "TransportReady", "InvalidTransport", ""),
        ("resize", "WorkloadReady", "PodsReady", "1/1"),
    ];
    reasons_are(scenario, &expected).await?;
    author.shows("status", 1, &["status", "-o", "wide"]).await?;
    author.shows("status-page", 1, &["status", "embed"]).await?;
    author.shows("trace", 0, &["trace", "resize"]).await?;
    let pods: Api<Pod> = Api::namespaced(scenario.client(), NAMESPACE);
    let pods = pods.list(&ListParams::default().labels("app=phi")).await?;
    let pod = pods.iter().find_map(|it| it.metadata.name.clone());
    let pod = pod.unwrap_or_default();
    author.shows("why", 1, &["why", &pod]).await?;
    author.shows("check", 1, &["check"]).await?;
    let unbind = ["unbind", "embed", "--dry-run=server"];
    author.shows("changes", 0, &unbind).await.map(drop)
}

async fn messages(author: &mut Author<'_>) -> Result<()> {
    let scenario = author.scenario;
    let rabbitmq = scenario.cluster().rabbitmq()?;
    for (id, text) in [("first", "hello"), ("second", "world")] {
        let payload = json!({"text": text}).to_string();
        let args = ["send", "embed", &payload, "--id", id];
        let ended = run(scenario, NAMESPACE, &author.folder, &args).await?;
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
    let peek = ["queue", "embed", "--peek", "2", "--payload"];
    author.shows("queue", 0, &peek).await?;
    for id in ["lost-1", "lost-2"] {
        let route = json!({"actors": ["embed", "store"], "current": 0});
        let message = json!({"id": id, "route": route, "payload": {"n": 1}}).to_string();
        rabbitmq.publish("", "asya-embed-dlq", &message).await?;
    }
    author.shows("dlq", 0, &["dlq", "embed", "list"]).await?;
    author.shows("dlq", 0, &["dlq", "embed", "redrive"]).await?;
    let send = ["send", "embed", r#"{"text": "hello"}"#, "--wait=2s"];
    author.shows("send", 2, &send).await?;
    let bundle = ["bundle", "--output", "asya.tar.gz"];
    author.shows("bundle", 0, &bundle).await?;
    // No logs can be read here, and the reasons would name the harness.
    if let Some(text) = author.regions.get_mut("bundle") {
        let lines = text.lines().filter(|line| !line.contains("asya-system"));
        let lines = lines.map(|line| match line.split_once(": Get ") {
            Some((before, _)) => format!("{before}: …\n"),
            None => format!("{line}\n"),
        });
        *text = lines.collect();
    }
    Ok(())
}

#[tokio::test]
async fn page_shows_what_the_program_prints() {
    let _turn = own_cluster().await;
    let options = Options {
        keda: true,
        ..Options::default()
    };
    let mut cluster = RunningCluster::start(options).await.unwrap();
    let mut values = unvalidated();
    let dlq = json!({"dlq": {"enabled": true}});
    merge(
        &mut values,
        json!({"transports": {"rabbitmq": {"config": {"queues": dlq}}, "theirs": {"enabled": false}}}),
    );
    assert!(default_values(&cluster)["transports"]["theirs"].is_object());
    cluster.start_operator(values).await.unwrap();
    let its_own = Ok((*cluster).clone());
    Scenario::run_on(its_own, "cli-docs", async |scenario| {
        cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
        create_broker_secrets(&cluster.client(), NAMESPACE).await?;
        let folder = cluster.folder().join("docs");
        std::fs::create_dir_all(&folder).map_err(Error::other)?;
        let mut author = Author {
            scenario,
            folder,
            regions: BTreeMap::new(),
        };
        offline(&mut author).await?;
        before_the_binding(&mut author).await?;
        actors(&mut author).await?;
        messages(&mut author).await?;
        let page = std::fs::read_to_string(PAGE).map_err(Error::other)?;
        let filled = filled(&page, &author.regions);
        if std::env::var_os(WRITE).is_some() {
            return std::fs::write(PAGE, filled).map_err(Error::other);
        }
        let (page, filled) = (shape(&page), shape(&filled));
        let differs = page.iter().zip(&filled).find(|(old, new)| old != new);
        assert_eq!(differs, None, "{WRITE}=1 writes docs/cli.md");
        assert_eq!(page.len(), filled.len(), "{WRITE}=1 writes docs/cli.md");
        Ok(())
    })
    .await;
}
