//! The operator is killed at some write, again and again, and ends where it
//! would have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::counting_proxy::{CountingProxy, Moment};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::{Instance, Launch, Operator};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::{minimal_actor, own_cluster};

const RUNS: u32 = 20;
const SEED: u64 = 0x00a5_7a00;
/// Longer than a lease that nobody released.
const CONVERGED: Duration = Duration::from_mins(1);

/// Numbers that are the same for the same seed (xorshift).
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

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Create,
    Update,
    Delete,
}

struct Crash<'a> {
    scenario: &'a Scenario,
    kubernetes: CountingProxy,
    broker: CountingProxy,
    instance: Instance,
    actor: String,
    version: u32,
}

impl Crash<'_> {
    async fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Create | Step::Update => {
                self.version += 1;
                let mut actor = minimal_actor(&self.actor);
                let container = &mut actor["spec"]["workload"]["template"]["spec"]["containers"][0];
                container["image"] = json!(format!("handler:{}", self.version));
                self.scenario.apply(&actor).await
            }
            Step::Delete => {
                let actors = self.scenario.actors();
                actors.delete(&self.actor, &DeleteParams::default()).await?;
                Ok(())
            }
        }
    }

    /// Whether everything is as it should be after a step; nothing twice,
    /// nothing left.
    async fn settled(&self, step: Step) -> Result<(), NotYet> {
        let deployments = self
            .scenario
            .api::<Deployment>()
            .list(&ListParams::default())
            .await?
            .items;
        let runtime = self
            .scenario
            .api::<ConfigMap>()
            .get_opt("asya-runtime")
            .await?
            .is_some();
        let queues = self
            .scenario
            .cluster()
            .rabbitmq()
            .map_err(NotYet::new)?
            .queues()
            .await
            .map_err(NotYet::new)?;
        let queues: Vec<String> = queues.into_iter().map(|queue| queue.name).collect();
        let actor = self.scenario.actors().get_opt(&self.actor).await?;
        if let Step::Delete = step {
            check(actor.is_none(), "the actor is there")?;
            check(
                deployments.is_empty(),
                format_args!("{} Deployments", deployments.len()),
            )?;
            check(!runtime, "the runtime is there")?;
            return check(queues.is_empty(), format_args!("queues {queues:?}"));
        }
        let actor = actor.ok_or_else(|| NotYet::new("no actor"))?;
        let status = &actor.data["status"];
        let current = status["observedGeneration"].as_i64() == actor.metadata.generation;
        check(
            status["status"] == "Running" && current,
            format_args!("status {status}"),
        )?;
        check(runtime, "no runtime")?;
        check(
            queues == [format!("asya-{}", self.actor)],
            format_args!("queues {queues:?}"),
        )?;
        check(
            deployments.len() == 1,
            format_args!("{} Deployments", deployments.len()),
        )?;
        let pod = deployments
            .into_iter()
            .next()
            .and_then(|found| found.spec?.template.spec)
            .unwrap_or_default();
        let images: Vec<_> = pod
            .containers
            .iter()
            .filter_map(|container| container.image.as_deref())
            .collect();
        let wanted = format!("handler:{}", self.version);
        check(
            images.len() == 2 && images[0] == wanted,
            format_args!("images {images:?}"),
        )
    }
}

/// FIN-2, FIN-3, QUE-2, WRK-1
#[tokio::test]
async fn an_operator_killed_at_any_write_ends_where_it_would_have_ended() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "crash", async |scenario| {
        let kubernetes = CountingProxy::to_api_server(&cluster).await?;
        let broker = CountingProxy::to_rabbitmq(&cluster).await?;
        // Without a lease, so that the next one starts at once.
        let operator = Operator::install(
            &cluster,
            json!({
                "leaderElection": {"enabled": false},
                "transports": {"rabbitmq": {"config": {"management": {"port": broker.port()}}}},
            }),
        )
        .await?;
        let launch = Launch {
            server: Some(kubernetes.url()),
            ..Launch::default()
        };
        let instance = operator.launch("crashing", launch).await?;
        instance.wait_ready().await?;
        let actor = scenario.name("victim");
        let mut crash = Crash {
            scenario,
            kubernetes,
            broker,
            instance,
            actor,
            version: 0,
        };
        let mut numbers = Numbers::new();
        let (mut kills, mut kinds) = (0, BTreeSet::new());
        for run in 0..RUNS {
            let step = [Step::Create, Step::Update, Step::Delete][run as usize % 3];
            let moment = [
                Moment::BeforeForwarding,
                Moment::BeforeAnswering,
                Moment::AfterAnswering,
            ];
            let moment = moment[usize::try_from(numbers.below(3)).unwrap_or_default()];
            let (proxy, side, most) = if numbers.below(3) == 0 {
                (&crash.broker, "broker", 3)
            } else {
                (&crash.kubernetes, "API server", 6)
            };
            let number = numbers.below(most) + 1;
            let killer = crash.instance.killer();
            proxy.strike(usize::try_from(number).unwrap_or(1), moment, killer);
            let what =
                format!("run {run}: {step:?}, struck at write {number} to the {side}, {moment:?}");
            crash.take(step).await?;
            let died = tokio::select! {
                biased;
                _ = crash.instance.process().wait() => true,
                settled = eventually(&what, CONVERGED, async || crash.settled(step).await) => {
                    settled?;
                    false
                }
            };
            crash.kubernetes.disarm();
            crash.broker.disarm();
            // It may have been struck at the very last write.
            let died = died || crash.instance.process().exited().is_some();
            if died {
                kills += 1;
                kinds.insert((format!("{step:?}"), side));
                crash.instance.restart().await?;
                crash.instance.wait_ready().await?;
            }
            eprintln!("{what}: {}", if died { "killed" } else { "not reached" });
            eventually(&what, CONVERGED, async || crash.settled(step).await).await?;
        }
        eprintln!("{kills} kills: {kinds:?}");
        assert!(
            kills >= RUNS / 3,
            "only {kills} of {RUNS} runs were struck: the writes are fewer than drawn"
        );
        Ok(())
    })
    .await;
}
