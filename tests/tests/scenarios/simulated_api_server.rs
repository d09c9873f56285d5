//! The simulation's API server (docs/testing.md) responds like a real one.
//!
//! Random sequences of calls are sent to both. `ASYA_API_SEED` sets the first seed (1), `ASYA_API_SEQUENCES` the number
//! of sequences for each kind.

mod calls;
mod kinds;
mod normal;
mod servers;
mod sides;

use std::fmt::Write;
use std::time::{Duration, Instant};

use asya_tests::eventually::{NotYet, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use fastrand::Rng;
use futures::future::try_join_all;
use kube::Client;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use calls::Call;
use kinds::{KINDS, Kind};
use normal::{Names, differences, refuses_spec};
use servers::Server;
use sides::{Side, USER};

const LENGTH: usize = 24;
const SEQUENCES: u64 = 6;
const COUNT: &str = "ASYA_API_SEQUENCES";
/// Maximum number of runs for shrinking a failing sequence.
const ATTEMPTS: usize = 80;

/// How the responses to one call differ.
struct Difference {
    calls: Vec<Call>,
    found: Vec<String>,
    answers: [Value; 2],
}

/// A kind on both servers.
struct Pair {
    kind: &'static Kind,
    namespace: String,
    client: Client,
    /// Objects of the kind that exist in the namespace anyway.
    others: Vec<String>,
    calls: usize,
    /// Sequences that ended early because a spec was invalid.
    refused: usize,
}

#[tokio::test]
async fn simulated_api_server_answers_random_calls_as_the_real_one_does() {
    Scenario::run("simulated", async |scenario| {
        let first = number("ASYA_API_SEED", 1);
        let seeds = first..first + number(COUNT, SEQUENCES);
        let policy = keep_others_out(scenario).await?;
        let started = Instant::now();
        let compared = KINDS
            .iter()
            .map(|kind| compare(scenario, kind, seeds.clone()));
        let compared = try_join_all(compared).await;
        policy.remove().await?;
        let (mut calls, mut report) = (0, String::new());
        for (count, different) in compared? {
            calls += count;
            report += &different;
        }
        println!("seeds {seeds:?}: {calls} calls in {:?}", started.elapsed());
        if report.is_empty() {
            Ok(())
        } else {
            Err(Error::Other(report))
        }
    })
    .await;
}

fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

/// Runs the sequences of a kind until one differs. Returns the number of calls, and how the responses differ.
async fn compare(
    scenario: &Scenario,
    kind: &'static Kind,
    seeds: std::ops::Range<u64>,
) -> Result<(usize, String)> {
    let (client, namespace) = (scenario.client(), scenario.namespace());
    let others = Side::new(Server::Real(client.clone()), kind, namespace)
        .names()
        .await?;
    let mut pair = Pair {
        kind,
        namespace: namespace.to_owned(),
        client,
        others,
        calls: 0,
        refused: 0,
    };
    for seed in seeds {
        let sequence = calls::sequence(kind, &mut Rng::with_seed(seed), LENGTH);
        if let Some(difference) = pair.run(&sequence).await? {
            let smallest = pair.shrink(difference).await?;
            return Ok((pair.calls, smallest.report(kind, seed)));
        }
    }
    println!(
        "{}: {} calls, {} sequences cut short",
        kind.resource.kind, pair.calls, pair.refused
    );
    Ok((pair.calls, String::new()))
}

impl Pair {
    /// Sends the calls to both servers until the responses to one differ.
    async fn run(&mut self, calls: &[Call]) -> Result<Option<Difference>> {
        let side = |server| Side::new(server, self.kind, &self.namespace);
        let mut simulated = side(Server::simulated(self.kind, &self.namespace, &self.others));
        let mut real = side(Server::Real(self.client.clone()));
        let (mut simulated_names, mut real_names) = (Names::default(), Names::default());
        let mut difference = None;
        for (index, call) in calls.iter().enumerate() {
            self.calls += 1;
            let simulated = simulated_names.normal(self.kind, &simulated.call(call).await?);
            let real = real_names.normal(self.kind, &real.call(call).await?);
            let mut found = Vec::new();
            differences(&simulated, &real, "", &mut found);
            if refuses_spec(&real) {
                self.refused += 1;
                break;
            }
            if !found.is_empty() {
                let calls = calls[..=index].to_vec();
                difference = Some(Difference {
                    calls,
                    found,
                    answers: [simulated, real],
                });
                break;
            }
        }
        real.clean().await?;
        Ok(difference)
    }

    /// Leaves out calls as long as a difference remains.
    async fn shrink(&mut self, mut smallest: Difference) -> Result<Difference> {
        let mut attempts = 0;
        let mut size = smallest.calls.len() / 2;
        while size > 0 && attempts < ATTEMPTS {
            let mut from = 0;
            // The last call is the one whose responses differ.
            while from + size < smallest.calls.len() && attempts < ATTEMPTS {
                attempts += 1;
                let mut calls = smallest.calls.clone();
                calls.drain(from..from + size);
                match self.run(&calls).await? {
                    Some(smaller) => smallest = smaller,
                    None => from += size,
                }
            }
            size /= 2;
        }
        Ok(smallest)
    }
}

impl Difference {
    fn report(&self, kind: &Kind, seed: u64) -> String {
        let mut text = format!(
            "\n{}, ASYA_API_SEED={seed} ASYA_API_SEQUENCES=1:\n",
            kind.resource.kind
        );
        for call in &self.calls {
            let _ = writeln!(text, "  {call}");
        }
        for line in &self.found {
            let _ = writeln!(text, "    {line}");
        }
        let [simulated, real] = &self.answers;
        let _ = writeln!(text, "simulated: {simulated:#}\nreal: {real:#}");
        text
    }
}

/// A policy that lets no one else write in the scenario's namespace: neither controllers nor the operator, which would
/// interfere between two calls.
struct Policy {
    client: Client,
    name: String,
}

const POLICY: (&str, &str) = (
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
);

async fn keep_others_out(scenario: &Scenario) -> Result<Policy> {
    let name = scenario.namespace();
    let api_version = "admissionregistration.k8s.io/v1";
    // A namespace selector matches every cluster-scoped object, such as CRDs of other scenarios.
    let everything = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "Namespaced",
    }]);
    let policy = json!({
        "apiVersion": api_version, "kind": POLICY.0, "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
                "resourceRules": everything,
            },
            "validations": [{"expression": format!("request.userInfo.username == '{USER}'"), "reason": "Forbidden"}],
        },
    });
    let binding = json!({
        "apiVersion": api_version, "kind": POLICY.1, "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    for object in [policy, binding] {
        scenario.apply(&object).await?;
    }
    let policy = Policy {
        client: scenario.client(),
        name: name.to_owned(),
    };
    let refused = eventually("others cannot write", Duration::from_secs(30), async || {
        let uri = format!("/api/v1/namespaces/{name}/configmaps?dryRun=All");
        let body = json!({"metadata": {"name": "other"}})
            .to_string()
            .into_bytes();
        let request = http::Request::post(uri)
            .header("content-type", "application/json")
            .body(body)?;
        match policy.client.request_text(request).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            answer => Err(NotYet::new(format!("{answer:?}"))),
        }
    });
    match refused.await {
        Ok(()) => Ok(policy),
        Err(error) => {
            policy.remove().await?;
            Err(error)
        }
    }
}

impl Policy {
    /// Otherwise the namespace could not be deleted.
    async fn remove(&self) -> Result<()> {
        for kind in [POLICY.1, POLICY.0] {
            let kind =
                kube::core::GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
            let resource = kube::api::ApiResource::from_gvk_with_plural(&kind, &plural(&kind.kind));
            let api: kube::Api<kube::api::DynamicObject> =
                kube::Api::all_with(self.client.clone(), &resource);
            api.delete(&self.name, &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    kind.strip_suffix('y')
        .map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"))
}
