//! Explains the webhook's decision about a pod.

use asya_shared::config::{Settings, TransportsConfig};
use asya_shared::inject::bound::{
    Action, BoundActor, Decision, InjectionReason, PodView, ProbeResult, decide, missing,
};
use asya_shared::names::is_excluded_namespace;
use asya_shared::resolve::IntermediateOwners;
use asya_shared::review::{BindingInputs, bound_actor};
use serde::Serialize;
use serde_json::Value;

use super::known::KnownActor;
use super::nearest::{Nearest, nearest};
use crate::actor::next_step;
use crate::answer::Answer;
use crate::catalogue;
use crate::installation::Installation;

/// The rules of INJ-1, in order.
const RULES: [&str; 9] = [
    "pods of the namespace may be injected",
    "an actor binds the pod",
    "its binding is in effect",
    "actor and pod are usable",
    "the pod has the sidecar already",
    "the pod has an older sidecar",
    "no name conflicts; model URL is known",
    "the API server admits such pods",
    "the pod gets the sidecar",
];

#[derive(Clone, Copy)]
pub struct Question<'a> {
    pub pod: &'a Value,
    pub namespace: &'a str,
    pub operator_namespace: &'a str,
    /// All actors in the namespace.
    pub actors: &'a [KnownActor],
    /// The operator's settings, if known: the rules from the fourth on depend on them.
    pub installation: Option<&'a Installation>,
    pub clusters: Option<&'a IntermediateOwners>,
    pub offline: bool,
}

/// The decision about the pod at its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It has the sidecar.
    Injected,
    /// It has the sidecar from the pod template that the operator wrote, so nothing is left to inject.
    FromTemplate,
    /// It starts without the sidecar.
    NotInjected,
    /// It is rejected, because the sidecar is required.
    Rejected,
    /// Unknown without the operator's settings.
    Unknown,
}

/// The decision, rule by rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// As `namespace/name`.
    pub pod: String,
    /// If the pod does not exist: the workload that would create it, as Kind/name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_pod_of: Option<String>,
    /// The pod's controller, as Kind/name.
    pub controller: Option<String>,
    pub outcome: Outcome,
    pub reason: String,
    /// The rule that decides, from 1 to 9 (INJ-1).
    pub rule: usize,
    pub rules: Vec<RuleAnswer>,
    /// The actor that binds the pod.
    pub actor: Option<String>,
    /// Its target, as Kind/name.
    pub target: Option<String>,
    /// If no actor binds it: the closest match.
    pub nearest: Option<Nearest>,
    /// If the pod exists without the sidecar that a new one would get: why.
    pub running: Option<String>,
    /// What the actor's rollout strategy does about such pods, and the command that replaces them.
    pub next: Option<String>,
    pub warnings: Vec<String>,
    pub fix: String,
    pub page: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleAnswer {
    pub number: usize,
    pub rule: &'static str,
    pub verdict: Verdict,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The rule does not decide; the next one applies.
    Passes,
    /// The rule decides for the sidecar.
    Injects,
    /// The rule decides against it.
    Stops,
    /// An earlier rule has decided.
    NotReached,
    Unknown,
}

impl Explanation {
    /// Whether another pod has the same explanation.
    pub fn is_like(&self, other: &Self) -> bool {
        let key = |it: &Self| {
            (
                it.outcome,
                it.rules.clone(),
                it.running.clone(),
                it.warnings.clone(),
            )
        };
        key(self) == key(other)
    }

    pub fn answer(&self) -> Answer {
        match self.outcome {
            Outcome::FromTemplate => Answer::Fine,
            Outcome::Injected if self.running.is_none() => Answer::Fine,
            Outcome::Injected | Outcome::NotInjected | Outcome::Rejected => Answer::Findings,
            Outcome::Unknown => Answer::Unknown,
        }
    }
}

/// Explains what the webhook decides about the pod.
pub fn explain(question: &Question<'_>) -> Explanation {
    let explanation = by_the_rules(question);
    let owner = question
        .actors
        .iter()
        .find(|it| it.has_own_pod(question.pod));
    match owner.filter(|_| explanation.reason == InjectionReason::NoActor.as_str()) {
        Some(owner) => own_pod(explanation, owner, question.namespace),
        None => explanation,
    }
}

/// Explains a pod of the actor's own workload.
fn own_pod(mut explanation: Explanation, owner: &KnownActor, namespace: &str) -> Explanation {
    let rule = explanation.rule;
    let decisive = explanation.rules.iter_mut().find(|it| it.number == rule);
    if let Some(decisive) = decisive {
        decisive.text = KnownActor::own_workload_text(&owner.name);
    }
    Explanation {
        outcome: Outcome::FromTemplate,
        actor: Some(format!("{namespace}/{}", owner.name)),
        nearest: None,
        fix: "Nothing to do.".to_owned(),
        ..explanation
    }
}

fn by_the_rules(question: &Question<'_>) -> Explanation {
    let raw = question.pod.to_string();
    let pod = PodView::decode(&raw).ok();
    if is_excluded_namespace(question.namespace, question.operator_namespace) {
        return explained(
            question,
            pod.as_ref(),
            InjectionReason::NotServed,
            None,
            &[],
        );
    }
    let bindings = bindings(question);
    if bindings.is_empty() {
        // In this case, the webhook does not read the pod.
        return explained(question, pod.as_ref(), InjectionReason::NoActor, None, &[]);
    }
    let Some(pod) = pod else {
        return explained(question, None, InjectionReason::Unreadable, None, &[]);
    };
    let decision = decide(&bindings, &pod);
    explained(
        question,
        Some(&pod),
        decision.reason,
        Some(&decision),
        &bindings,
    )
}

/// The namespace's bindings, as the webhook prepares them.
fn bindings(question: &Question<'_>) -> Vec<BoundActor> {
    let (no_transports, defaults) = (
        TransportsConfig::default(),
        Settings::parse(None, None, None),
    );
    let settings = question
        .installation
        .map(|it| &it.settings)
        .or(defaults.as_ref().ok());
    let Some(settings) = settings else {
        return Vec::new();
    };
    let scripts = question
        .installation
        .and_then(|it| it.facts.scripts.as_deref());
    let inputs = BindingInputs {
        transports: question
            .installation
            .map_or(&no_transports, |it| &it.transports),
        settings,
        scripts_hash: scripts.unwrap_or_default(),
        clusters: question.clusters,
    };
    let actors = question
        .actors
        .iter()
        .filter_map(|known| known.actor.as_deref());
    let mut bindings: Vec<_> = actors
        .filter_map(|actor| bound_actor(actor, &inputs))
        .collect();
    if question.offline {
        for binding in &mut bindings {
            binding.probe_result = ProbeResult::Verified;
        }
    }
    bindings
}

fn explained(
    question: &Question<'_>,
    pod: Option<&PodView<'_>>,
    reason: InjectionReason,
    decision: Option<&Decision<'_>>,
    bindings: &[BoundActor],
) -> Explanation {
    let rule = rule_of(reason);
    let actor = decision.and_then(|it| it.actor);
    let known = actor.and_then(|actor| question.actors.iter().find(|it| it.name == actor.name));
    let is_unknown = question.installation.is_none() && rule > 3;
    let entry = catalogue::entry(reason.as_str());
    let text = decision
        .and_then(decisive_text)
        .or(entry.map(|it| it.meaning.to_owned()));
    let outcome = if is_unknown {
        Outcome::Unknown
    } else {
        outcome(reason, decision)
    };
    let controller = pod.and_then(PodView::controller);
    let name = name_of(question.pod);
    let running = known
        .filter(|_| reason == InjectionReason::Injected && !question.offline)
        .and_then(|it| running(it, question.pod));
    let next = running.as_ref().zip(known);
    Explanation {
        pod: format!("{}/{name}", question.namespace),
        new_pod_of: None,
        controller: controller.map(|it| format!("{}/{}", it.kind, it.name)),
        outcome,
        reason: if is_unknown {
            "Unknown".to_owned()
        } else {
            reason.as_str().to_owned()
        },
        rule: if is_unknown { 4 } else { rule },
        rules: answers(
            if is_unknown { 4 } else { rule },
            outcome,
            &text.unwrap_or_default(),
            actor,
        ),
        actor: actor.map(ToString::to_string),
        target: known.and_then(KnownActor::target),
        nearest: pod
            .filter(|_| reason == InjectionReason::NoActor)
            .and_then(|pod| nearest(bindings, pod)),
        next: next.and_then(|(_, actor)| next_step(&actor.object)),
        running,
        warnings: warnings(decision),
        fix: fix(is_unknown, entry),
        page: entry.map_or(catalogue::INDEX, |it| it.page).to_owned(),
    }
}

fn fix(is_unknown: bool, entry: Option<&catalogue::Entry>) -> String {
    if is_unknown {
        return "Name the operator's namespace with --operator-namespace, or pass the --values of its chart.".to_owned();
    }
    entry.map_or_else(String::new, |it| it.fix.to_owned())
}

/// The webhook's reason for leaving a pod unchanged.
fn decisive_text(decision: &Decision<'_>) -> Option<String> {
    match &decision.action {
        Action::Deny(text) => Some(text.clone()),
        Action::Annotate(_) if warns_of_skipping(decision) => decision.warnings.first().cloned(),
        Action::Annotate(_) | Action::Allow | Action::Inject(_) => None,
    }
}

/// Whether the first warning is the decision itself. Opting out is deliberate, so the webhook does not warn about it.
fn warns_of_skipping(decision: &Decision<'_>) -> bool {
    matches!(decision.action, Action::Annotate(_)) && decision.reason != InjectionReason::OptedOut
}

fn warnings(decision: Option<&Decision<'_>>) -> Vec<String> {
    let Some(decision) = decision else {
        return Vec::new();
    };
    let skipped = usize::from(warns_of_skipping(decision));
    decision.warnings.iter().skip(skipped).cloned().collect()
}

/// Why an existing pod has no sidecar although a new one would, as reported by the operator.
fn running(actor: &KnownActor, pod: &Value) -> Option<String> {
    pod["metadata"]["uid"].as_str()?;
    let reasons = actor.reported_reasons(name_of(pod));
    let described: Vec<String> = reasons
        .iter()
        .map(|reason| {
            let entry = catalogue::entry(reason);
            // The next step says what this actor does about it.
            let fix = entry.filter(|_| *reason != missing::STARTED_BEFORE_BINDING);
            let fix = fix.map_or_else(String::new, |it| format!(" {}", it.fix));
            let text = entry.map_or_else(String::new, |it| format!(": {}{fix}", it.meaning));
            format!("{reason}{text}")
        })
        .collect();
    Some(match described.as_slice() {
        [] => "the operator has not reported on this pod yet".to_owned(),
        [reason] => reason.clone(),
        reasons => format!("one of: {}", reasons.join(" ")),
    })
}

fn outcome(reason: InjectionReason, decision: Option<&Decision<'_>>) -> Outcome {
    use InjectionReason::{AlreadyInjected, Injected, Replaced, Restored};
    let is_denied = decision.is_some_and(|it| matches!(it.action, Action::Deny(_)));
    match reason {
        _ if is_denied => Outcome::Rejected,
        AlreadyInjected | Injected | Replaced | Restored => Outcome::Injected,
        _ => Outcome::NotInjected,
    }
}

/// The row of INJ-1 to which a reason belongs.
fn rule_of(reason: InjectionReason) -> usize {
    use InjectionReason as Reason;
    match reason {
        Reason::NotServed | Reason::Unreadable => 1,
        Reason::NoActor => 2,
        Reason::ActorDeleting | Reason::NotBoundYet | Reason::StrategyTemplate => 3,
        Reason::ActorUnusable
        | Reason::OptedOut
        | Reason::HostNetwork
        | Reason::Windows
        | Reason::RestartPolicy => 4,
        Reason::AlreadyInjected => 5,
        Reason::Replaced | Reason::Restored => 6,
        Reason::SpecConflict | Reason::TargetUrlUnknown => 7,
        Reason::NotProved | Reason::ProbeRejected => 8,
        Reason::Injected => 9,
    }
}

fn answers(
    decisive: usize,
    outcome: Outcome,
    text: &str,
    actor: Option<&BoundActor>,
) -> Vec<RuleAnswer> {
    let numbered = (1..).zip(RULES);
    let answers = numbered.map(|(number, rule)| {
        let (verdict, text) = match number.cmp(&decisive) {
            std::cmp::Ordering::Less => (Verdict::Passes, passed(number, actor)),
            std::cmp::Ordering::Greater => (Verdict::NotReached, String::new()),
            std::cmp::Ordering::Equal => match outcome {
                Outcome::Injected => (Verdict::Injects, text.to_owned()),
                Outcome::FromTemplate | Outcome::NotInjected | Outcome::Rejected => {
                    (Verdict::Stops, text.to_owned())
                }
                Outcome::Unknown => (
                    Verdict::Unknown,
                    "the operator's settings are unknown".to_owned(),
                ),
            },
        };
        RuleAnswer {
            number,
            rule,
            verdict,
            text,
        }
    });
    answers.collect()
}

/// Why a rule does not decide about the pod.
fn passed(number: usize, actor: Option<&BoundActor>) -> String {
    match (number, actor) {
        (2, Some(actor)) => actor.to_string(),
        (5, _) => "it has not".to_owned(),
        (6, _) => "it has none".to_owned(),
        _ => String::new(),
    }
}

fn name_of(pod: &Value) -> &str {
    let metadata = &pod["metadata"];
    let name = metadata["name"]
        .as_str()
        .or(metadata["generateName"].as_str());
    name.unwrap_or("unnamed")
}

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod tests;
