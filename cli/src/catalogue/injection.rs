//! Reasons why a pod does or does not get the sidecar of a binding, except those that are also reasons of conditions.

use asya_shared::reason::{InjectionReason, MissingSidecar};

use super::{ADMISSION, BINDING, Entry, RUNBOOKS, SAFETY, fix_of};

pub const ENTRIES: &[Entry] = &[
    decided(InjectionReason::NotServed, ADMISSION),
    decided(InjectionReason::Unreadable, ADMISSION),
    decided(InjectionReason::NoActor, ADMISSION),
    decided(InjectionReason::ActorDeleting, ADMISSION),
    decided(InjectionReason::NotBoundYet, BINDING),
    decided(InjectionReason::StrategyTemplate, BINDING),
    decided(InjectionReason::ActorUnusable, ADMISSION),
    decided(InjectionReason::OptedOut, BINDING),
    decided(InjectionReason::HostNetwork, BINDING),
    decided(InjectionReason::Windows, BINDING),
    decided(InjectionReason::RestartPolicy, BINDING),
    decided(InjectionReason::AlreadyInjected, ADMISSION),
    decided(InjectionReason::Replaced, ADMISSION),
    decided(InjectionReason::Restored, ADMISSION),
    decided(InjectionReason::NotProved, SAFETY),
    decided(InjectionReason::Injected, ADMISSION),
    missing(MissingSidecar::StartedBeforeBinding, BINDING),
    missing(MissingSidecar::WebhookUnavailable, RUNBOOKS),
    missing(MissingSidecar::RemovedByOther, BINDING),
    missing(MissingSidecar::NotInTemplate, BINDING),
];

/// A decision of the webhook about a pod.
const fn decided(reason: InjectionReason, page: &'static str) -> Entry {
    Entry {
        name: reason.as_str(),
        meaning: reason.meaning(),
        fix: fix_of(reason.remedy()),
        page,
    }
}

/// The controller's finding about a pod on which the webhook has not decided.
const fn missing(reason: MissingSidecar, page: &'static str) -> Entry {
    Entry {
        name: reason.as_str(),
        meaning: reason.meaning(),
        fix: fix_of(reason.remedy()),
        page,
    }
}
