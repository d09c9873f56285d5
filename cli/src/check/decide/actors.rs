//! Transports and actors, as reported by the actors.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{Check, counted};
use crate::actor;
use crate::catalogue;
use crate::check::gather::Observed;
use crate::check::reading::Read;
use crate::status;

pub fn transports(observed: &Observed) -> Check {
    let installation = match &observed.installation {
        Ok(installation) => installation,
        Err(why) => return Check::unknown("transports", why),
    };
    let enabled = installation.transports.iter().filter(|it| it.enabled);
    let names: Vec<&str> = enabled.map(|it| it.name.as_str()).collect();
    if names.is_empty() {
        return Check::failed("transports", "NoTransport", "");
    }
    match failing_transports(&observed.actors) {
        Some(detail) => Check::failed("transports", "TransportFailing", &detail),
        None => Check::ok("transports", names.join(", ")),
    }
}

/// Each transport that actors cannot use, with the number of these actors and the message of one of them.
fn failing_transports(actors: &Read<Vec<Value>>) -> Option<String> {
    let mut failing: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    for actor in actors.as_deref().unwrap_or_default() {
        let status = actor::status_of(actor);
        let broken = actor::condition(&status, "TransportReady").filter(|it| {
            it.status == "False"
                && matches!(
                    &*it.reason,
                    "BrokerUnreachable"
                        | "BrokerAuthFailed"
                        | "CredentialsMissing"
                        | "BrokerThrottled"
                )
        });
        if let Some(condition) = broken {
            let name = actor["spec"]["transport"].as_str().unwrap_or_default();
            let entry = failing
                .entry(name)
                .or_insert_with(|| (0, format!("{}: {}", condition.reason, condition.message)));
            entry.0 += 1;
        }
    }
    let lines: Vec<String> = failing
        .iter()
        .map(|(name, (count, text))| format!("{name} ({}): {text}", counted(*count, "actor")))
        .collect();
    (!lines.is_empty()).then(|| lines.join(". "))
}

pub fn actors(actors: &Read<Vec<Value>>, now: Timestamp) -> Vec<Check> {
    let actors = match actors {
        Ok(actors) => actors,
        Err(why) => return vec![Check::unknown("actors", why)],
    };
    let summaries: Vec<_> = actors
        .iter()
        .map(|actor| status::summary(actor, now))
        .collect();
    let mut checks = Vec::new();
    for summary in &summaries {
        if let Some(attention) = &summary.attention {
            let subject = format!("actor {}/{}", summary.namespace, summary.name);
            checks.push(match catalogue::entry(&attention.reason) {
                Some(entry) => Check {
                    fix: catalogue::remedy(entry.name, &attention.message).map(|it| it.fix),
                    ..Check::failed(&subject, entry.name, &attention.message)
                },
                None => Check::failed(
                    &subject,
                    "ActorFailing",
                    &format!("{}: {}", attention.reason, attention.message),
                ),
            });
        }
    }
    if checks.is_empty() {
        checks.push(Check::ok(
            "actors",
            match summaries.len() {
                0 => "there are none yet".to_owned(),
                all => format!("{}, none needs attention", counted(all, "actor")),
            },
        ));
    }
    checks
}

/// Messages without a consumer, and dead letters. A queue that several actors share is reported once.
pub fn queues(observed: &Observed) -> Vec<Check> {
    let actors = observed.actors.as_deref().unwrap_or_default();
    let named: BTreeMap<String, &Value> = actors.iter().map(|it| (name_of(it), it)).collect();
    let mut checks = Vec::new();
    let mut shared = BTreeSet::new();
    for (name, state) in &observed.queues {
        let Some(actor) = named.get(name) else {
            continue;
        };
        for finding in state.findings(actor) {
            let is_shared = state.has_shared_dead_letters && !finding.is_failure;
            let queue = state.dead_letter_queue.as_deref().unwrap_or_default();
            if is_shared && !shared.insert(queue) {
                continue;
            }
            let subject = if is_shared {
                format!("queue {queue}")
            } else {
                format!("actor {name}")
            };
            checks.push(if finding.is_failure {
                Check::failed(&subject, finding.name, &finding.text)
            } else {
                Check::warning(&subject, finding.name, &finding.text)
            });
        }
    }
    checks
}

/// As `namespace/name`.
fn name_of(actor: &Value) -> String {
    let text = |field: &str| actor["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}
