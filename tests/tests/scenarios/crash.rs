//! The operator is killed at each of its writes in turn, and still converges to the same result.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::counting_proxy::{CountingProxy, HookPoint};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::{Instance, Launch, Operator};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::{all_running, minimal_actor, own_cluster};

const RUNS: usize = 20;
const ACTORS: usize = 3;
const SEED: u64 = 0x00a5_7a00;
const CONVERGED: Duration = Duration::from_mins(1);
const STEPS: [Step; 3] = [Step::Create, Step::Update, Step::Delete];
const HOOK_POINTS: [HookPoint; 3] = [
    HookPoint::BeforeForwarding,
    HookPoint::BeforeAnswering,
    HookPoint::AfterAnswering,
];

/// A seeded pseudo-random sequence (xorshift).
struct Numbers(u64);

impl Numbers {
    fn new() -> Self {
        let seed = std::env::var("ASYA_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(SEED);
        eprintln!("ASYA_TEST_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from(self.0 % bound).unwrap_or_default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Create,
    Update,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    ApiServer,
    Broker,
}

struct Crash<'a> {
    scenario: &'a Scenario,
    kubernetes: CountingProxy,
    broker: CountingProxy,
    instance: Instance,
    /// The actors as last applied.
    actors: Vec<Value>,
    version: u32,
}

fn name(object: &Value) -> String {
    object["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

impl Crash<'_> {
    fn proxy(&self, side: Side) -> &CountingProxy {
        match side {
            Side::ApiServer => &self.kubernetes,
            Side::Broker => &self.broker,
        }
    }

    fn written(&self) -> [(Side, usize); 2] {
        [Side::ApiServer, Side::Broker].map(|side| (side, self.proxy(side).writes().len()))
    }

    async fn take(&mut self, step: Step) -> Result<()> {
        if step == Step::Delete {
            let actors = self.scenario.actors();
            for actor in &self.actors {
                actors
                    .delete(&name(actor), &DeleteParams::default())
                    .await?;
            }
            return Ok(());
        }
        self.version += 1;
        for actor in &mut self.actors {
            let workload = &mut actor["spec"]["workload"];
            workload["replicas"] = json!(1 + self.version % 2);
            workload["template"]["spec"]["containers"][0]["image"] =
                json!(format!("handler:{}", self.version));
        }
        self.scenario.apply_all(&self.actors).await
    }

    /// Whether the step has converged, without duplicates or leftovers.
    async fn settled(&self, step: Step) -> Result<(), NotYet> {
        let (scenario, all) = (self.scenario, ListParams::default());
        let deployments = scenario.api::<Deployment>().list(&all).await?.items;
        let maps = scenario.api::<ConfigMap>().list(&all).await?.items;
        let scripts = maps
            .iter()
            .filter(|map| map.metadata.name.as_deref() == Some("asya-runtime"))
            .count();
        let actors = scenario.actors().list(&all).await?.items;
        let rabbitmq = scenario.cluster().rabbitmq().map_err(NotYet::new)?;
        let queues = rabbitmq.queues().await.map_err(NotYet::new)?;
        let mut queues: Vec<String> = queues.into_iter().map(|queue| queue.name).collect();
        queues.sort();
        let wanted = if step == Step::Delete {
            0
        } else {
            self.actors.len()
        };
        let counts = (actors.len(), deployments.len(), queues.len(), scripts);
        check(
            counts == (wanted, wanted, wanted, wanted.min(1)),
            format_args!("{counts:?} actors, Deployments, queues, scripts"),
        )?;
        if step == Step::Delete {
            return Ok(());
        }
        for applied in &self.actors {
            let name = name(applied);
            let actor = actors
                .iter()
                .find(|actor| actor.metadata.name.as_ref() == Some(&name));
            let actor = actor.ok_or_else(|| NotYet::new(format_args!("no {name}")))?;
            let status = &actor.data["status"];
            check(
                status["status"] == "Running"
                    && status["observedGeneration"].as_i64() == actor.metadata.generation,
                format_args!("status of {name}: {status}"),
            )?;
            check(
                actor.data["spec"] == applied["spec"],
                format_args!("spec {}", actor.data["spec"]),
            )?;
            let finalizers = actor.metadata.finalizers.as_deref().unwrap_or_default();
            check(
                finalizers == ["asya.sh/finalizer"],
                format_args!("finalizers {finalizers:?}"),
            )?;

            let found = deployments
                .iter()
                .find(|found| found.metadata.name.as_ref() == Some(&name));
            let spec = found
                .and_then(|found| found.spec.clone())
                .unwrap_or_default();
            let replicas = spec.replicas.map(i64::from);
            check(
                replicas == applied["spec"]["workload"]["replicas"].as_i64(),
                format_args!("replicas {replicas:?}"),
            )?;
            let containers = spec.template.spec.unwrap_or_default().containers;
            let images: Vec<_> = containers
                .into_iter()
                .filter_map(|container| container.image)
                .collect();
            check(
                images.len() == 2 && images[0] == format!("handler:{}", self.version),
                format_args!("images {images:?}"),
            )?;

            let queue = format!("asya-{name}");
            check(queues.contains(&queue), format_args!("queues {queues:?}"))?;
            let bindings = rabbitmq.queue_bindings(&queue).await.map_err(NotYet::new)?;
            let keys: Vec<_> = bindings
                .iter()
                .filter(|binding| binding.source == "asya")
                .map(|binding| binding.routing_key.as_str())
                .collect();
            check(
                keys == [queue.as_str(), name.as_str()],
                format_args!("keys {keys:?}"),
            )?;
        }
        Ok(())
    }

    async fn converges(&self, step: Step, what: &str) -> Result<()> {
        eventually(what, CONVERGED, async || self.settled(step).await).await
    }

    /// Performs a step, and restarts the operator if it was killed. Returns whether it was.
    async fn survives(&mut self, step: Step, what: &str) -> Result<bool> {
        self.take(step).await?;
        tokio::select! {
            biased;
            _ = self.instance.process().wait() => {}
            settled = self.converges(step, what) => settled?,
        }
        self.kubernetes.remove_hook();
        self.broker.remove_hook();
        // It may have been killed at the very last write.
        let died = self.instance.process().exited().is_some();
        if died {
            self.instance.restart().await?;
            self.instance.wait_ready().await?;
        }
        self.converges(step, what).await?;
        Ok(died)
    }
}

/// FIN-1, FIN-2, FIN-3, FW-2, QUE-2, RUN-2, WRK-1
#[tokio::test]
async fn operator_killed_at_any_write_still_converges() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "crash", async |scenario| {
        let kubernetes = CountingProxy::to_api_server(&cluster).await?;
        let broker = CountingProxy::to_rabbitmq(&cluster).await?;
        // Without leader election, so that the next process need not wait for the lease.
        let values = json!({
            "leaderElection": {"enabled": false},
            "transports": {"rabbitmq": {"config": {"management": {"port": broker.port()}}}},
        });
        let operator = Operator::install(&cluster, values).await?;
        let launch = Launch {
            server: Some(kubernetes.url()),
            ..Launch::default()
        };
        let instance = operator.launch("crashing", launch).await?;
        instance.wait_ready().await?;
        let actors = (0..ACTORS)
            .map(|n| minimal_actor(&scenario.name(&format!("victim-{n}"))))
            .collect();
        let mut crash = Crash {
            scenario,
            kubernetes,
            broker,
            instance,
            actors,
            version: 0,
        };

        // An undisturbed run counts the writes at which the operator can be killed.
        let mut writes = BTreeMap::new();
        for step in STEPS {
            let before = crash.written();
            crash.survives(step, "undisturbed").await?;
            for ((side, before), (_, after)) in before.into_iter().zip(crash.written()) {
                writes.insert((step, side), after - before);
            }
        }
        eprintln!("writes for {ACTORS} actors: {writes:?}");

        let mut numbers = Numbers::new();
        let (mut deaths, started) = (BTreeMap::<_, usize>::new(), Instant::now());
        for run in 0..RUNS {
            let step = STEPS[run % STEPS.len()];
            let mut side = [Side::ApiServer, Side::ApiServer, Side::Broker][numbers.below(3)];
            if writes[&(step, side)] == 0 {
                side = Side::ApiServer;
            }
            let point = HOOK_POINTS[numbers.below(HOOK_POINTS.len())];
            let number = numbers.below(writes[&(step, side)]) + 1;
            let killer = crash.instance.killer();
            crash.proxy(side).on_write(number, point, killer);
            let what = format!("run {run}, {step:?}: write {number} to {side:?}, {point:?}");
            let since = Instant::now();
            let died = crash.survives(step, &what).await?;
            let seen = if died { "killed" } else { "not reached" };
            eprintln!("{what}: {seen}, converged after {:?}", since.elapsed());
            if died {
                *deaths.entry((step, side)).or_default() += 1;
            }
        }
        eprintln!("{RUNS} runs in {:?}, killed: {deaths:?}", started.elapsed());
        let kills: usize = deaths.values().sum();
        assert!(
            kills * 4 >= RUNS * 3,
            "the operator was killed in only {kills} of {RUNS} runs"
        );
        Ok(())
    })
    .await;
}

/// FW-9, FW-12, OPS-6
#[tokio::test]
async fn operator_resumes_when_the_api_server_returns() {
    let _turn = own_cluster().await;
    let mut cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "outage", async |scenario| {
        // Without leader election: a long outage would lose the lease.
        let operator =
            Operator::install(&cluster, json!({"leaderElection": {"enabled": false}})).await?;
        let instance = operator.start("operator").await?;
        let names = ["before", "changed"].map(|name| scenario.name(name));
        let mut actors: Vec<Value> = names.iter().map(|name| minimal_actor(name)).collect();
        scenario.apply_all(&actors).await?;
        all_running(scenario, &names).await?;

        let server = "kube-apiserver";
        cluster.process(server)?.kill().await;
        cluster.restart(server).await?;
        eventually("the API server answers", CONVERGED, async || {
            scenario
                .kubectl(&["get", "asya"])
                .await
                .map_err(NotYet::new)
        })
        .await?;
        let after = scenario.name("after");
        actors[1]["spec"]["workload"]["replicas"] = json!(2);
        actors.push(minimal_actor(&after));
        scenario.apply_all(&actors).await?;
        all_running(scenario, &[names.as_slice(), &[after]].concat()).await?;
        let workload = scenario.api::<Deployment>().get(&names[1]).await?;
        assert_eq!(workload.spec.and_then(|spec| spec.replicas), Some(2));
        instance.wait_ready().await?;
        assert_eq!(instance.process().exited(), None);
        Ok(())
    })
    .await;
}

/// FIN-2, FIN-3, RMQ-4
#[tokio::test]
async fn unbound_queue_is_deleted_with_its_actor() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "unbound", async |scenario| {
        let broker = CountingProxy::to_rabbitmq(&cluster).await?;
        let values = json!({
            "leaderElection": {"enabled": false},
            "transports": {"rabbitmq": {"config": {"management": {"port": broker.port()}}}},
        });
        let operator = Operator::install(&cluster, values).await?;
        let mut instance = operator.start("crashing").await?;
        // Kill it once the queue and the exchange have been declared.
        broker.on_write(3, HookPoint::BeforeForwarding, instance.killer());
        let name = scenario.name("half");
        let queue = format!("asya-{name}");
        scenario.apply(&minimal_actor(&name)).await?;
        instance.process().ends(CONVERGED).await?;
        let rabbitmq = cluster.rabbitmq()?;
        assert!(rabbitmq.queue(&queue).await?.is_some());
        let bindings = rabbitmq.queue_bindings(&queue).await?;
        assert!(
            bindings.iter().all(|binding| binding.source.is_empty()),
            "{bindings:?}"
        );
        let found = scenario.actors().get(&name).await?;
        assert!(found.data["status"]["queue"].is_null(), "{:?}", found.data);

        let actors = scenario.actors();
        actors.delete(&name, &DeleteParams::default()).await?;
        instance.restart().await?;
        scenario.actor_gone(&name, CONVERGED).await?;
        assert!(rabbitmq.queue(&queue).await?.is_none(), "the queue stays");
        Ok(())
    })
    .await;
}
