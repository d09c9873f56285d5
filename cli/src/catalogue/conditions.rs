//! Reasons of an actor's conditions.

use asya_shared::reason::Reason;

use super::{BINDING, Entry, FRAMEWORKS, RUNBOOKS, SAFETY, STANDALONE, TROUBLESHOOTING, fix_of};

pub const ENTRIES: &[Entry] = &entries();

const fn entries() -> [Entry; Reason::ALL.len()] {
    let mut entries = [entry(Reason::ALL[0]); Reason::ALL.len()];
    let mut at = 1;
    while at < entries.len() {
        entries[at] = entry(Reason::ALL[at]);
        at += 1;
    }
    entries
}

const fn entry(reason: Reason) -> Entry {
    Entry {
        name: reason.as_str(),
        meaning: reason.meaning(),
        fix: fix(reason),
        page: page(reason),
    }
}

pub const fn fix(reason: Reason) -> &'static str {
    fix_of(reason.remedy())
}

const fn page(reason: Reason) -> &'static str {
    match reason {
        Reason::RivalAutoscaler
        | Reason::ScalingNotSupported
        | Reason::Resolved
        | Reason::TargetNotFound
        | Reason::TargetNotReady
        | Reason::TargetStopped
        | Reason::KindNotInstalled
        | Reason::KindForbidden
        | Reason::UnsupportedTarget
        | Reason::AlreadyBound
        | Reason::CrossNamespace
        | Reason::NamespaceExcluded
        | Reason::Ambiguous
        | Reason::AllPodsInjected
        | Reason::PodsNotInjected
        | Reason::RolloutInProgress
        | Reason::RolloutWaiting
        | Reason::RolloutHalted
        | Reason::TargetURLUnknown
        | Reason::SpecConflict
        | Reason::StrategyNotAllowed
        | Reason::UnbindBlocked => BINDING,
        Reason::ProbeFailed | Reason::ProbeRejected | Reason::NotProven => SAFETY,
        Reason::WorkloadMissing | Reason::ProgressDeadlineExceeded | Reason::RetriesExhausted => {
            FRAMEWORKS
        }
        Reason::QueueConflict | Reason::BrokerAuthFailed | Reason::BrokerUnreachable => RUNBOOKS,
        Reason::WebhookNotReady
        | Reason::NoConflict
        | Reason::BindingConflict
        | Reason::FieldConflict => TROUBLESHOOTING,
        _ => STANDALONE,
    }
}
