//! Measures one crowd: the time taken, the writes per writer, and the processor time used.

use std::collections::BTreeMap;
use std::time::Duration;

use asya_tests::audit::{Mark, Write};
use asya_tests::cluster::RunningCluster;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::Instance;
use asya_tests::{Error, Result};
use jiff::Timestamp;

use crate::bare::Bare;
use crate::crowd::Crowd;
use crate::machine::{self, Memory};

const PATIENCE: Duration = Duration::from_mins(10);
/// The number of reconciles of an instance since its start.
const RECONCILES: &str = "controller_runtime_reconcile_total";
/// Resources of the objects that are applied last for an actor.
const APPLIED: [&str; 2] = ["deployments", "scaledobjects"];
/// The cluster components whose processor time is reported next to the writer's.
const PARTS: [&str; 6] = [
    "kube-apiserver",
    "etcd",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "rabbitmq",
];

/// The measurements of a crowd; times are in seconds from the creation of its first actor.
pub struct Row {
    /// `bare` or `operator`.
    pub who: &'static str,
    /// The number of actors.
    pub actors: usize,
    /// Until every actor was created.
    pub created: f64,
    /// Until the last Deployment or `ScaledObject` was applied, and so every queue declared.
    pub applied: f64,
    /// Until the last write, when every actor has been reported as Running or Napping.
    pub settled: f64,
    /// Writes for all actors, including those that the namespace needs once.
    pub writes: usize,
    /// The number of rejected writes.
    pub refused: usize,
    /// The highest number of writes received within one second.
    pub peak: usize,
    /// The writes by kind, with their number and times.
    pub kinds: Vec<Kind>,
    /// Processor seconds of the writer; `None` for the bare client, which runs in this process.
    pub cpu: Option<f64>,
    /// Processor seconds of the cluster's parts.
    pub parts: Vec<(&'static str, f64)>,
}

/// Writes of one kind.
pub struct Kind {
    /// The resource and subresource.
    pub name: String,
    /// The number of writes.
    pub count: usize,
    /// When the first write, half of the writes, and the last write had been received.
    pub times: [f64; 3],
}

/// A cluster that runs an operator.
pub struct Bench<'a> {
    cluster: &'a RunningCluster,
    user: String,
}

struct Begun {
    mark: Mark,
    at: Timestamp,
    cpu: Vec<Duration>,
}

impl<'a> Bench<'a> {
    /// `user` is the writer's name in the audit log.
    pub fn new(cluster: &'a RunningCluster, user: String) -> Self {
        Self { cluster, user }
    }

    pub fn cluster(&self) -> &RunningCluster {
        self.cluster
    }

    /// Measures the bare client with the crowd.
    pub async fn bare(&self, bare: &Bare, crowd: &Crowd) -> Result<Row> {
        let begun = self.begin().await?;
        bare.serve(crowd).await?;
        self.end("bare", crowd, begun, None).await
    }

    /// Measures the operator with the crowd.
    pub async fn operator(&self, instance: &mut Instance, crowd: &Crowd) -> Result<Row> {
        instance.restart().await?;
        instance.wait_ready().await?;
        self.writes_end().await?;
        let (pid, from) = (instance.process().pid(), crowd.version().await?);
        let before = machine::cpu(pid)?;
        let begun = self.begin().await?;
        let settled =
            async { tokio::try_join!(crowd.create(|_, _| ()), crowd.all_settled(&from)).map(drop) };
        // Fails if the instance exits, for example because it could not renew its lease in time: nothing restarts it.
        instance.process().alive_while(settled).await?;
        let cpu = machine::cpu(pid)?.saturating_sub(before).as_secs_f64();
        self.writes_end().await?;
        self.end("operator", crowd, begun, Some(cpu)).await
    }

    /// Restarts the operator and waits until it has made at least one reconcile per actor (FW-4 (b)).
    pub async fn restart(&self, instance: &mut Instance, crowd: &Crowd) -> Result<String> {
        instance.stop().await?;
        let mark = self.cluster.audit().mark().await?;
        instance.restart().await?;
        let began = std::time::Instant::now();
        instance.wait_ready().await?;
        let ready = began.elapsed().as_secs_f64();
        let size = crowd.names.len();
        let wanted = f64::from(u32::try_from(size).map_err(Error::other)?);
        let reconciles = eventually("every actor was seen", PATIENCE, async || {
            let reconciles = instance
                .metric(RECONCILES, &[])
                .await
                .map_err(NotYet::new)?;
            check(
                reconciles >= wanted,
                format_args!("{reconciles} reconciles"),
            )?;
            Ok(reconciles)
        })
        .await?;
        let seen = began.elapsed().as_secs_f64();
        self.writes_end().await?;
        let writes = self.cluster.audit().writes_since(mark, &self.user).await?;
        let pid = instance.process().pid();
        Ok(format!(
            "{size} actors, restart: ready after {ready:.1} s, {reconciles} reconciles after {seen:.1} s, {} writes, {}, {:.1} s of a processor",
            writes.len(),
            Memory::of(pid)?,
            machine::cpu(pid)?.as_secs_f64(),
        ))
    }

    async fn begin(&self) -> Result<Begun> {
        Ok(Begun {
            mark: self.cluster.audit().mark().await?,
            at: Timestamp::now(),
            cpu: self.processors()?,
        })
    }

    async fn end(
        &self,
        who: &'static str,
        crowd: &Crowd,
        begun: Begun,
        cpu: Option<f64>,
    ) -> Result<Row> {
        let after = self.processors()?;
        let used = after.iter().zip(&begun.cpu);
        let used = used.map(|(after, before)| after.saturating_sub(*before).as_secs_f64());
        let audit = self.cluster.audit();
        let all = audit.writes_in(begun.mark, &crowd.namespace).await?;
        let since = |time: Timestamp| time.duration_since(begun.at).as_secs_f64();
        let last = |wanted: &dyn Fn(&Write) -> bool| {
            let times = all.iter().filter(|write| wanted(write)).map(|w| w.time);
            times.max().map_or(f64::NAN, since)
        };
        let ours: Vec<_> = all.iter().filter(|write| write.user == self.user).collect();
        Ok(Row {
            who,
            actors: crowd.names.len(),
            created: last(&|write| write.resource == "asyncactors" && write.verb == "create"),
            applied: last(&|write| APPLIED.contains(&&*write.resource) && write.user == self.user),
            settled: last(&|write| write.user == self.user),
            writes: ours.len(),
            refused: ours.iter().filter(|write| write.code >= 400).count(),
            peak: peak(ours.iter().map(|write| since(write.time)).collect()),
            kinds: kinds(&ours, since),
            cpu,
            parts: PARTS.into_iter().zip(used).collect(),
        })
    }

    fn processors(&self) -> Result<Vec<Duration>> {
        let parts = PARTS.iter();
        parts
            .map(|part| machine::cpu(self.cluster.process(part)?.pid()))
            .collect()
    }

    /// Waits until there has been no write for two seconds.
    async fn writes_end(&self) -> Result<()> {
        let audit = self.cluster.audit();
        let mut mark = audit.mark().await?;
        eventually("nothing is written any more", PATIENCE, async || {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = audit.mark().await.map_err(NotYet::new)?;
            let last = std::mem::replace(&mut mark, now);
            let writes = audit.writes_since(last, &self.user).await;
            let writes = writes.map_err(NotYet::new)?;
            check(writes.is_empty(), format_args!("{} writes", writes.len()))
        })
        .await
    }
}

/// The highest number of these times, in seconds, within one second.
fn peak(mut times: Vec<f64>) -> usize {
    times.sort_by(f64::total_cmp);
    let begins = times.iter().enumerate();
    let within = begins.map(|(at, begin)| times.partition_point(|time| *time < begin + 1.0) - at);
    within.max().unwrap_or_default()
}

fn kinds(writes: &[&Write], since: impl Fn(Timestamp) -> f64) -> Vec<Kind> {
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for write in writes {
        let parts = [&*write.resource, &*write.subresource];
        let name = parts.join("/").trim_end_matches('/').to_owned();
        times.entry(name).or_default().push(since(write.time));
    }
    let mut kinds: Vec<Kind> = times
        .into_iter()
        .map(|(name, mut times)| {
            times.sort_by(f64::total_cmp);
            let at = |index: usize| times.get(index).copied().unwrap_or(f64::NAN);
            Kind {
                name,
                count: times.len(),
                times: [at(0), at(times.len() / 2), at(times.len() - 1)],
            }
        })
        .collect();
    kinds.sort_by(|one, other| one.times[1].total_cmp(&other.times[1]));
    kinds
}
