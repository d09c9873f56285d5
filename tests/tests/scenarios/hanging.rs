//! A broker that accepts connections and never responds, and one that responds slowly.

use std::time::{Duration, Instant};

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::eventually::{check, eventually};
use asya_tests::operator::{Operator, default_values};
use asya_tests::scenario::Scenario;
use asya_tests::turn::quiet;
use asya_tests::{Error, Result};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{all_running, all_running_within, apply_all, minimal_actor, own_cluster};

const HANG: usize = 50;
const FINE: usize = 20;
/// How much longer actors on the healthy broker may take. If the hanging broker blocked them, they would wait for a
/// call to time out, which takes 10 s: two or three times as long as creating all of them. The rest allows for two runs
/// to differ on a busy machine.
const RATIO: f64 = 1.75;

/// Accepts connections until the end of the test, and never responds.
async fn silence() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            open.push(connection);
        }
    });
    port
}

fn actors(
    scenario: &Scenario,
    stem: &str,
    count: usize,
    transport: &str,
) -> (Vec<String>, Vec<Value>) {
    let names: Vec<String> = (0..count)
        .map(|n| scenario.name(&format!("{stem}-{n}")))
        .collect();
    let actors = names.iter().map(|name| {
        let mut actor = minimal_actor(name);
        actor["metadata"]["labels"] = json!({"batch": stem});
        actor["spec"]["transport"] = json!(transport);
        actor
    });
    let actors = actors.collect();
    (names, actors)
}

/// The time from applying all of them at once until all are Running.
async fn time_to_run(scenario: &Scenario, stem: &str) -> Result<Duration> {
    let (names, actors) = actors(scenario, stem, FINE, "rabbitmq");
    let started = Instant::now();
    apply_all(scenario, &actors).await?;
    all_running(scenario, &names).await?;
    Ok(started.elapsed())
}

/// QUE-9, QUE-5, STA-4
#[tokio::test]
async fn hanging_broker_does_not_slow_actors_on_another() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "hanging", async |scenario| {
        let mute = json!({
            "type": "rabbitmq", "enabled": true,
            "config": {"host": "127.0.0.1", "management": {"port": silence().await}},
        });
        let operator = Operator::install(&cluster, json!({"transports": {"mute": mute}})).await?;
        let _instance = operator.start("one").await?;
        // The first batch warms up the operator and the namespace, so that neither is measured.
        time_to_run(scenario, "warm").await?;
        let quiet = quiet().await;
        let without = time_to_run(scenario, "without").await?;

        let (_, hanging) = actors(scenario, "mute", HANG, "mute");
        apply_all(scenario, &hanging).await?;
        eventually("calls hang", Duration::from_secs(30), async || {
            let actors = scenario.actors().list(&ListParams::default()).await?;
            let begun = actors.iter().filter(|actor| {
                actor.data["spec"]["transport"] == "mute" && actor.metadata.finalizers.is_some()
            });
            let begun = begun.count();
            check(begun == HANG, format_args!("{begun} begun"))
        })
        .await?;
        let with = time_to_run(scenario, "with").await?;
        let ratio = with.as_secs_f64() / without.as_secs_f64();
        eprintln!("{FINE} actors run after {without:?}; while another broker hangs, after {with:?}: {ratio:.2} times as long");
        assert!(ratio <= RATIO, "{ratio}");
        drop(quiet);

        // Every actor on the hanging broker reports it.
        eventually("the others tell why", Duration::from_mins(2), async || {
            let actors = scenario.actors().list(&ListParams::default()).await?;
            let told = actors.iter().filter(|actor| actor.data["status"]["status"] == "TransportError");
            let told = told.count();
            check(told == HANG, format_args!("{told} of {HANG}"))
        })
        .await
    })
    .await;
}

const SLOW: usize = 500;
/// For that many actors beside other scenarios.
const SERVED: Duration = Duration::from_mins(5);
/// The best of this many runs with and without the slow broker counts, since other programs disturb each of them.
const RUNS: usize = 3;

/// The average time from an actor's creation until it is Running. The time from the first application to the last actor
/// would mostly measure the machine.
async fn time_to_converge(scenario: &Scenario, stem: &str) -> Result<Duration> {
    let audit = scenario.cluster().audit();
    let mark = audit.mark().await?;
    let (names, actors) = actors(scenario, stem, FINE, "rabbitmq");
    apply_all(scenario, &actors).await?;
    // List only these actors: listing those on the other broker, too, would distort the measurement.
    let batch = ListParams::default().labels(&format!("batch={stem}"));
    eventually("all are Running", Duration::from_mins(1), async || {
        let actors = scenario.actors().list(&batch).await?;
        let running = actors
            .iter()
            .filter(|actor| actor.data["status"]["status"] == "Running");
        let running = running.count();
        check(running == FINE, format_args!("{running} of {FINE}"))
    })
    .await?;
    let writes = audit.writes_in(mark, scenario.namespace()).await?;
    let of_actor = |name: &str| {
        let all = writes.iter();
        let mut all = all.filter(|it| it.resource == "asyncactors" && it.name == name);
        all.next().zip(all.next_back())
    };
    let mut sum = Duration::ZERO;
    for name in &names {
        let writes = of_actor(name).ok_or_else(|| Error::Other(format!("{name}: no write")))?;
        let (created, running) = writes;
        sum += Duration::try_from(running.time.duration_since(created.time)).unwrap_or_default();
    }
    let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
    Ok(sum / count)
}

async fn best_time_to_converge(scenario: &Scenario, stem: &str) -> Result<Duration> {
    let mut best = Duration::MAX;
    for run in 0..RUNS {
        let time = time_to_converge(scenario, &format!("{stem}-{run}")).await?;
        eprintln!("{stem}: Running after {time:?} on average");
        best = best.min(time);
    }
    Ok(best)
}

/// OPS-22
#[tokio::test]
async fn broker_that_answers_late_slows_down_no_actor_on_another() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "late", async |scenario| {
        let proxy = CountingProxy::to_rabbitmq(&cluster).await?;
        let mut late = default_values(&cluster)["transports"]["rabbitmq"].clone();
        late["config"]["management"]["port"] = json!(proxy.port());
        let operator = Operator::install(&cluster, json!({"transports": {"late": late}})).await?;
        let _instance = operator.start("one").await?;
        time_to_run(scenario, "warm").await?;
        let quiet = quiet().await;
        let without = best_time_to_converge(scenario, "without").await?;

        proxy.delay((1..=4).map(Duration::from_secs));
        let (names, actors) = actors(scenario, "late", SLOW, "late");
        apply_all(scenario, &actors).await?;
        eventually("all have begun", Duration::from_mins(2), async || {
            let actors = scenario.actors().list(&ListParams::default()).await?;
            let begun = actors.iter().filter(|actor| {
                actor.data["spec"]["transport"] == "late" && actor.metadata.finalizers.is_some()
            });
            let begun = begun.count();
            check(begun == SLOW, format_args!("{begun} begun"))
        })
        .await?;
        let with = best_time_to_converge(scenario, "with").await?;
        let ratio = with.as_secs_f64() / without.as_secs_f64();
        eprintln!("while another broker answers in 1 to 4 s, it takes {ratio:.2} times as long");
        assert!(ratio <= 1.25, "{ratio}");
        drop(quiet);

        // Actors on the slow broker are served as well.
        proxy.delay([]);
        all_running_within(scenario, &names, SERVED).await
    })
    .await;
}
