//! Sends reviews over persistent TLS connections.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use asya_tests::cluster::Cluster;
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::Instance;
use asya_tests::{Error, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use reqwest::{Certificate, Client};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::crowd::{Crowd, namespace_of, target_of};
use crate::machine::{self, Memory};
use crate::reviews::review;

const SECRET: &str = "asya-operator-webhook-tls";
const NAME: &str = "asya-operator-webhook.asya-system.svc";
/// The port that the chart's pods listen on.
const PORT: u16 = 9443;
/// Size of a review under load, in bytes.
const USUAL: usize = 12_000;
const PATIENCE: Duration = Duration::from_mins(5);
/// Reviews are sent in batches at this interval; the batch size yields the requested rate.
const BEAT: Duration = Duration::from_millis(10);
const BEATS_PER_SECOND: u32 = 100;

/// A series of durations.
#[derive(Default)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds a measurement.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    fn at(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
        sorted.get(index).copied().unwrap_or_default()
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:.3} ms, p99 {:.3} ms, slowest {:.3} ms",
            self.at(50).as_secs_f64() * 1e3,
            self.at(99).as_secs_f64() * 1e3,
            self.at(100).as_secs_f64() * 1e3
        )
    }
}

/// A running replica of the webhook.
pub struct Replica {
    client: Client,
    url: String,
    pid: u32,
}

impl Replica {
    /// Connects to a replica, with the CA certificate that the controller created.
    pub async fn of(cluster: &Cluster, instance: &Instance) -> Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), "asya-system");
        let data = secrets.get(SECRET).await?.data.unwrap_or_default();
        let authority = data.get("ca.crt");
        let authority = authority.ok_or_else(|| Error::other("the Secret has no ca.crt"))?;
        let address = instance.address_of(PORT);
        let address = address.ok_or_else(|| Error::other("nobody listens for reviews"))?;
        let address: SocketAddr = address.parse().map_err(Error::other)?;
        let client = Client::builder()
            .resolve(NAME, address)
            .tls_certs_only([Certificate::from_pem(&authority.0)?])
            .build()?;
        Ok(Self {
            client,
            url: format!("https://{NAME}:{}/mutate/pods", address.port()),
            pid: instance.process().pid(),
        })
    }

    pub fn memory(&self) -> Result<Memory> {
        Memory::of(self.pid)
    }

    /// Waits until the replica injects pods of the last binding, and so has seen all of them.
    pub async fn knows(&self, crowd: &Crowd) -> Result<()> {
        let last = crowd.bindings().saturating_sub(1);
        let body = review(&namespace_of(last), &target_of(last), USUAL);
        eventually("the webhook knows all actors", PATIENCE, async || {
            let answer = ask(&self.client, &self.url, body.clone()).await;
            check(answer.map_err(NotYet::new)?, "not injected")
        })
        .await
    }

    /// Sends reviews one by one, each as soon as the previous one is answered.
    pub async fn one_by_one(&self, size: usize, body: &str, count: usize) -> Result<String> {
        let mut times = Times::default();
        for _ in 0..count {
            let began = Instant::now();
            injected(ask(&self.client, &self.url, body.to_owned()).await)?;
            times.add(began.elapsed());
        }
        Ok(format!("server, one by one, {size:>7} bytes: {times}"))
    }

    /// Sends reviews for pods of all bindings at a fixed rate, without waiting for earlier ones.
    pub async fn under_load(&self, crowd: &Crowd, rate: u32, lasts: Duration) -> Result<String> {
        let bodies: Vec<_> = (0..crowd.bindings())
            .map(|number| review(&namespace_of(number), &target_of(number), USUAL))
            .collect();
        let (before, began) = (machine::cpu(self.pid)?, Instant::now());
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut asked = JoinSet::new();
        let (mut sent, mut due) = (0_u32, 0);
        while began.elapsed() < lasts {
            beats.tick().await;
            due += rate;
            while sent < due / BEATS_PER_SECOND {
                let body =
                    bodies[usize::try_from(sent).map_err(Error::other)? % bodies.len()].clone();
                let (client, url, began) = (self.client.clone(), self.url.clone(), Instant::now());
                asked.spawn(async move {
                    let answer = ask(&client, &url, body).await;
                    (answer, began.elapsed())
                });
                sent += 1;
            }
        }
        let mut times = Times::default();
        while let Some(done) = asked.join_next().await {
            let (answer, time) = done.map_err(Error::other)?;
            injected(answer)?;
            times.add(time);
        }
        let took = began.elapsed().as_secs_f64();
        let cpu = machine::cpu(self.pid)?.saturating_sub(before).as_secs_f64();
        let sent = f64::from(sent);
        Ok(format!(
            "server, {rate}/s for {:.0} s: {:.0}/s answered, {times}; {cpu:.1} s of a processor, {:.0} reviews per second of it, {}",
            lasts.as_secs_f64(),
            sent / took,
            sent / cpu.max(0.01),
            self.memory()?,
        ))
    }
}

fn injected(answer: Result<bool>) -> Result<()> {
    if answer? {
        Ok(())
    } else {
        Err(Error::other("a pod was not injected"))
    }
}

/// Sends a review; returns whether the response contains a patch.
async fn ask(client: &Client, url: &str, body: String) -> Result<bool> {
    let request = client.post(url).header("content-type", "application/json");
    let answer = request.body(body).send().await?.error_for_status()?;
    let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
    Ok(answer["response"]["patch"].is_string())
}
