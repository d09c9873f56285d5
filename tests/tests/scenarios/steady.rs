//! What matches the desired state is not touched; drift is repaired at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use asya_tests::audit::{Audit, Mark, Write};
use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::rabbitmq::{Call, RabbitMq};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::jiff::SignedDuration;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::{all_running, minimal_actor, own_cluster};

const ACTORS: usize = 100;
/// How long nothing may happen.
const WINDOW: Duration = Duration::from_mins(1);
/// WRK-4, RUN-2
const REPAIR: Duration = Duration::from_secs(2);

pub(crate) struct Writes<'a> {
    pub(crate) audit: Audit,
    pub(crate) user: &'a str,
}

impl Writes<'_> {
    pub(crate) async fn since(&self, mark: Mark) -> Result<Vec<Write>> {
        self.audit.writes_since(mark, self.user).await
    }

    /// Waits for two seconds without a write.
    pub(crate) async fn end(&self) -> Result<()> {
        let mut mark = self.audit.mark().await?;
        eventually("the operator writes no more", SOON, async || {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = self.audit.mark().await.map_err(NotYet::new)?;
            let last = std::mem::replace(&mut mark, now);
            let writes = self.since(last).await.map_err(NotYet::new)?;
            check(writes.is_empty(), format_args!("{} writes", writes.len()))
        })
        .await
    }
}

/// The number of writes of each kind.
fn counted(writes: &[Write]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        let slash = if write.subresource.is_empty() {
            ""
        } else {
            "/"
        };
        let kind = format!(
            "{} {}{slash}{} {}",
            write.verb, write.resource, write.subresource, write.code
        );
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// The calls other than lists of queues and bindings, which are all that health checks and message counts need.
pub(crate) fn besides_lists(rabbitmq: &RabbitMq, mut calls: Vec<Call>) -> Vec<Call> {
    let lists = [
        rabbitmq.path_of("queues"),
        format!("{}/asya/bindings/source", rabbitmq.path_of("exchanges")),
    ];
    calls.retain(|call| call.method != "GET" || !lists.contains(&call.path));
    calls
}

/// The controller delays a status for 10 s after the creation of its actor, or of a pod, if nothing else would change
/// it. Both times have a resolution of one second.
const HELD_BACK: SignedDuration = SignedDuration::from_secs(8);

/// The number of actors that got their workload so late, because the broker served them late on a busy machine, that a
/// status was written first.
pub(crate) async fn late_actors(scenario: &Scenario, writes: &[Write]) -> Result<usize> {
    let is_late = |actor: &DynamicObject| {
        let is_its_workload = |write: &&Write| {
            write.resource == "deployments" && Some(&write.name) == actor.metadata.name.as_ref()
        };
        let created = actor.metadata.creation_timestamp.as_ref();
        let applied = writes.iter().find(is_its_workload);
        let took = created
            .zip(applied)
            .map(|(from, to)| to.time.duration_since(from.0));
        took.is_none_or(|took| took >= HELD_BACK)
    };
    let actors = scenario.actors().list(&ListParams::default()).await?;
    Ok(actors.iter().filter(|actor| is_late(actor)).count())
}

/// The number of pods that became ready, or were reported by their Deployment, so late on a busy machine that a status
/// was written with their earlier counts.
pub(crate) async fn late_pods(cluster: &Cluster, scenario: &Scenario) -> Result<usize> {
    let deployments = scenario.api::<Deployment>();
    let deployments = deployments.list(&ListParams::default()).await?;
    let rolled_out_at = |pod: &Pod| {
        let actor = pod.metadata.labels.as_ref()?.get("asya.sh/actor");
        let deployment = deployments
            .iter()
            .find(|it| it.metadata.name.as_ref() == actor)?;
        let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
        let updates = conditions
            .iter()
            .filter_map(|it| it.last_update_time.as_ref());
        updates.map(|it| it.0).max()
    };
    let pods: Api<Pod> = Api::namespaced(cluster.client(), scenario.namespace());
    let is_late = |pod: &Pod| {
        let created = pod.metadata.creation_timestamp.as_ref();
        let conditions = pod.status.iter().filter_map(|it| it.conditions.as_ref());
        let ready = conditions.flatten().find(|it| it.type_ == "Ready");
        let ready = ready.and_then(|it| it.last_transition_time.clone());
        let reported = ready.map(|ready| rolled_out_at(pod).map_or(ready.0, |at| at.max(ready.0)));
        let took = created
            .zip(reported)
            .map(|(from, to)| to.duration_since(from.0));
        took.is_none_or(|took| took >= HELD_BACK)
    };
    let pods = pods.list(&ListParams::default()).await?;
    Ok(pods.iter().filter(|pod| is_late(pod)).count())
}

/// Waits until all statuses have a message count. Returns how many had none yet: if the broker defers a reconcile
/// (OPS-22) that has created the queue, the status is written by the next one, and the count follows.
async fn all_counted(scenario: &Scenario) -> Result<usize> {
    let uncounted = async || -> Result<usize> {
        let actors = scenario.actors().list(&ListParams::default()).await?;
        let counts = actors.iter().map(|it| &it.data["status"]["queuedMessages"]);
        Ok(counts.filter(|count| count.is_null()).count())
    };
    let before = uncounted().await?;
    eventually(
        "all messages are counted",
        Duration::from_mins(1),
        async || {
            let left = uncounted().await.map_err(NotYet::new)?;
            check(left == 0, format_args!("{left} actors without a count"))
        },
    )
    .await?;
    Ok(before)
}

/// Number of reconciles that an instance has run since its start.
pub(crate) const RECONCILES: &str = "controller_runtime_reconcile_total";

/// WRK-5, QUE-8 (b), FW-4 (a, c); architecture, section 8
#[tokio::test]
async fn hundred_actors_at_rest_cause_no_write_even_after_a_restart() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "steady", async |scenario| {
        let operator = Operator::install(&cluster, json!({})).await?;
        let mut instance = operator.start("operator").await?;
        let user = operator.user();
        let writes = Writes {
            audit: cluster.audit(),
            user: &user,
        };
        let rabbitmq = cluster.rabbitmq()?;
        let broker = rabbitmq.access_log();

        writes.end().await?;
        let start = writes.audit.mark().await?;
        let names: Vec<String> = (0..ACTORS)
            .map(|n| scenario.name(&format!("still-{n}")))
            .collect();
        let actors: Vec<Value> = names.iter().map(|name| minimal_actor(name)).collect();
        let applied = Instant::now();
        scenario.apply_all(&actors).await?;
        all_running(scenario, &names).await?;
        eprintln!(
            "{ACTORS} actors: Running after {:?}, kubectl's own time included",
            applied.elapsed()
        );
        let uncounted = all_counted(scenario).await?;
        writes.end().await?;
        let first = writes.since(start).await?;
        let figures = counted(&first);
        eprintln!(
            "{} writes for {ACTORS} new actors: {figures:#?}",
            first.len()
        );
        // Once per namespace.
        let shared = first
            .iter()
            .filter(|write| write.resource == "configmaps")
            .count();
        assert_eq!(shared, 1, "{figures:#?}");
        let late = late_pods(&cluster, scenario).await? + late_actors(scenario, &first).await?;
        let max = 5 * ACTORS + late + uncounted;
        assert!(first.len() - shared <= max, "{max}: {figures:#?}");
        let refused: Vec<_> = first.iter().filter(|write| write.code >= 400).collect();
        assert!(refused.is_empty(), "{refused:#?}");

        let (rest, calls) = (writes.audit.mark().await?, broker.mark()?);
        tokio::time::sleep(WINDOW).await;
        assert_eq!(writes.since(rest).await?, []);
        let calls = broker.calls_since(calls, rabbitmq.user())?;
        assert_eq!(besides_lists(&rabbitmq, calls), []);

        let (rest, calls) = (writes.audit.mark().await?, broker.mark()?);
        instance.stop().await?;
        instance.restart().await?;
        let restarted = Instant::now();
        instance.wait_ready().await?;
        let seen = f64::from(u32::try_from(ACTORS).map_err(Error::other)?);
        eventually("every actor is seen again", SOON, async || {
            let reconciles = instance.metric(RECONCILES, &[]).await?;
            check(reconciles >= seen, format_args!("{reconciles} reconciles"))
        })
        .await?;
        eprintln!(
            "{ACTORS} actors: seen again {:?} after the restart",
            restarted.elapsed()
        );
        writes.end().await?;
        assert_eq!(writes.since(rest).await?, []);
        let calls = broker.calls_since(calls, rabbitmq.user())?;
        assert_eq!(besides_lists(&rabbitmq, calls), []);

        // The script is deleted with the last actor, even if all are deleted at once.
        let gone = Instant::now();
        scenario
            .actors()
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        eventually("nothing is left", SOON, async || {
            let actors = scenario
                .actors()
                .list(&ListParams::default())
                .await?
                .items
                .len();
            let runtime = scenario.api::<ConfigMap>().get_opt("asya-runtime").await?;
            let queues = cluster
                .rabbitmq()
                .map_err(NotYet::new)?
                .queues()
                .await
                .map_err(NotYet::new)?;
            check(
                (actors, runtime.is_none(), queues.len()) == (0, true, 0),
                format_args!(
                    "{actors} actors, runtime {}, {} queues",
                    runtime.is_some(),
                    queues.len()
                ),
            )
        })
        .await?;
        eprintln!("{ACTORS} actors: gone after {:?}", gone.elapsed());
        Ok(())
    })
    .await;
}

/// Waits until another manager's change is repaired, and prints how long that took.
async fn repaired<F>(what: &str, mut look: F) -> Result<()>
where
    F: AsyncFnMut() -> Result<(), NotYet>,
{
    let since = Instant::now();
    eventually(what, REPAIR, async || look().await).await?;
    eprintln!("{what}: {:?}", since.elapsed());
    Ok(())
}

fn image(deployment: &Deployment, container: &str) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let found = pod
        .containers
        .iter()
        .find(|found| found.name == container)?;
    found.image.clone()
}

/// WRK-3, WRK-4
#[tokio::test]
async fn drift_of_a_workload_is_repaired() {
    Scenario::run_timed("rival", async |scenario| {
        let name = scenario.name("kept");
        let deployment = format!("deployment/{name}");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let api = scenario.api::<Deployment>();
        let wanted = image(&api.get(&name).await?, "asya-runtime");
        assert!(wanted.is_some());

        scenario
            .kubectl(&["set", "image", &deployment, "asya-runtime=rival:1"])
            .await?;
        repaired("a changed image comes back", async || {
            let found = image(&api.get(&name).await?, "asya-runtime");
            check(found == wanted, format_args!("{found:?}"))
        })
        .await?;

        for label in ["asya.sh/actor", "app.kubernetes.io/managed-by"] {
            scenario
                .kubectl(&["label", &deployment, &format!("{label}-")])
                .await?;
            repaired(&format!("the label {label} comes back"), async || {
                let labels = api.get(&name).await?.metadata.labels.unwrap_or_default();
                check(labels.contains_key(label), format_args!("{labels:?}"))
            })
            .await?;
        }

        scenario
            .kubectl(&["scale", &deployment, "--replicas=3"])
            .await?;
        repaired("the number of replicas comes back", async || {
            let replicas = api.get(&name).await?.spec.and_then(|spec| spec.replicas);
            check(replicas == Some(1), format_args!("{replicas:?}"))
        })
        .await?;

        let remove = r#"[{"op": "remove", "path": "/spec/template/spec/containers/1"}]"#;
        scenario
            .kubectl(&["patch", &deployment, "--type=json", "--patch", remove])
            .await?;
        repaired("the sidecar comes back", async || {
            let found = image(&api.get(&name).await?, "asya-sidecar");
            check(found.is_some(), "no sidecar")
        })
        .await?;

        let before = api.get(&name).await?.metadata.uid;
        api.delete(&name, &DeleteParams::default()).await?;
        repaired("a deleted workload comes back", async || {
            let after = api
                .get_opt(&name)
                .await?
                .and_then(|found| found.metadata.uid);
            check(
                after.is_some() && after != before,
                format_args!("{after:?}"),
            )
        })
        .await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        Ok(())
    })
    .await;
}

/// RUN-2
#[tokio::test]
async fn drift_of_the_runtime_script_is_repaired() {
    Scenario::run_timed("script", async |scenario| {
        let name = scenario.name("scripted");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let api = scenario.api::<ConfigMap>();
        let wanted = api.get("asya-runtime").await?.data;

        api.delete("asya-runtime", &DeleteParams::default()).await?;
        repaired("a deleted script comes back", async || {
            let found = api.get_opt("asya-runtime").await?;
            let data = found.and_then(|map| map.data);
            check(data == wanted, "another script, or none")
        })
        .await?;

        let other =
            Patch::Merge(json!({"data": {"asya_runtime.py": "print()", "mine.txt": "kept"}}));
        api.patch("asya-runtime", &PatchParams::default(), &other)
            .await?;
        repaired("a changed script comes back", async || {
            let data = api.get("asya-runtime").await?.data.unwrap_or_default();
            let wanted = wanted
                .as_ref()
                .and_then(|wanted| wanted.get("asya_runtime.py"));
            check(data.get("asya_runtime.py") == wanted, "another script")?;
            // Other keys are kept (RUN-1).
            check(data.contains_key("mine.txt"), "the other key is gone")
        })
        .await
    })
    .await;
}

/// WRK-4, WRK-5
#[tokio::test]
async fn permitted_changes_to_a_workload_stay_and_cause_no_write() {
    Scenario::run("others", async |scenario| {
        let name = scenario.name("shared");
        let deployment = format!("deployment/{name}");
        scenario.apply(&minimal_actor(&name)).await?;
        scenario
            .kubectl(&["create", "deployment", "foreign", "--image=foreign"])
            .await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let (audit, user) = (
            scenario.cluster().audit(),
            scenario.cluster().operator_user()?,
        );
        let mark = audit.mark().await?;

        scenario
            .kubectl(&["label", &deployment, "team=blue"])
            .await?;
        scenario
            .kubectl(&["annotate", &deployment, "note=mine"])
            .await?;
        scenario
            .kubectl(&["scale", "deployment/foreign", "--replicas=2"])
            .await?;
        scenario
            .kubectl(&["rollout", "restart", &deployment])
            .await?;
        scenario
            .kubectl(&["rollout", "status", &deployment, "--timeout=30s"])
            .await?;
        // Events for an object arrive in order: once this change is repaired, the earlier ones have been observed, too.
        scenario
            .kubectl(&["set", "image", &deployment, "asya-runtime=rival:1"])
            .await?;
        let api = scenario.api::<Deployment>();
        eventually("a changed image comes back", SOON, async || {
            let found = image(&api.get(&name).await?, "asya-runtime");
            check(
                found.as_deref() != Some("rival:1"),
                format_args!("{found:?}"),
            )
        })
        .await?;
        scenario.actor_status(&name, "Running", SOON).await?;

        let mut writes = audit.writes_since(mark, &user).await?;
        writes.retain(|write| write.namespace == scenario.namespace());
        let figures = counted(&writes);
        writes.retain(|write| write.resource != "asyncactors");
        assert_eq!(
            writes.len(),
            1,
            "more than the repair of the image: {figures:#?}"
        );
        let found = api.get(&name).await?;
        let labels = found.metadata.labels.unwrap_or_default();
        assert_eq!(labels.get("team").map(String::as_str), Some("blue"));
        let annotations = found.metadata.annotations.unwrap_or_default();
        assert_eq!(annotations.get("note").map(String::as_str), Some("mine"));
        let template = found
            .spec
            .and_then(|spec| spec.template.metadata)
            .unwrap_or_default();
        assert!(
            template
                .annotations
                .unwrap_or_default()
                .contains_key("kubectl.kubernetes.io/restartedAt"),
            "the restart was undone"
        );
        Ok(())
    })
    .await;
}
