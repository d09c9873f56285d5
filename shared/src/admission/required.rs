//! Which required bindings have an entry of their own, and which of these fail closed (CFG-7).

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;

use super::entry::{RequiredEntry, json_size, required_entry};
use super::{EntryBinding, EntrySettings, MAX_OBJECTS, MAX_REQUIRED, Policy, REQUIRED_PER_OBJECT};

/// Maximum size of all own entries, in bytes. The objects have room for more, but also for the entries that bindings
/// share, and their last entry may not fit.
const MAX_BYTES: usize = 7 * 512 * 1024;

/// A required binding whose pods may start without the sidecar, because its entry cannot fail closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnenforcedBinding {
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
    /// What prevents it.
    pub reason: Unenforced,
}

/// Why the entry of a required binding cannot fail closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unenforced {
    /// The maximum number or size of such entries has been reached, by others and, beyond its share, by its namespace.
    NoRoom,
    /// Its pod selector is too large for an entry, and nothing else distinguishes its pods.
    SelectorTooLarge,
}

/// The entries of required bindings.
#[derive(Default)]
pub(super) struct RequiredEntries<'b> {
    /// Entries of one binding each, in the order of the bindings.
    pub(super) own: Vec<MutatingWebhook>,
    /// Bindings without an entry of their own: they share entries, which fail open.
    pub(super) shared: Vec<&'b EntryBinding>,
    /// Bindings whose entry cannot fail closed.
    pub(super) unenforced: Vec<UnenforcedBinding>,
}

/// A required binding that may have an entry of its own.
struct Candidate<'b> {
    binding: &'b EntryBinding,
    entry: Box<MutatingWebhook>,
    size: usize,
    verified: bool,
    fails_closed: bool,
    has_own: bool,
}

/// Decides about those of `bindings` that are required. `bindings` are sorted oldest first.
pub(super) fn required_entries<'b>(
    settings: &EntrySettings,
    bindings: impl Iterator<Item = &'b EntryBinding>,
) -> RequiredEntries<'b> {
    let mut result = RequiredEntries::default();
    let mut candidates = Vec::new();
    for binding in bindings {
        let Policy::Required { verified } = binding.policy else {
            continue;
        };
        match required_entry(settings, binding) {
            RequiredEntry::Own(entry) => candidates.push(Candidate {
                binding,
                size: json_size(&entry),
                entry,
                verified,
                fails_closed: false,
                has_own: false,
            }),
            RequiredEntry::NoPods => {}
            RequiredEntry::TooLarge => {
                result.report(binding, Unenforced::SelectorTooLarge);
                result.shared.push(binding);
            }
        }
    }
    let budget = allocate_fail_closed(&mut candidates);
    allocate_own_entries(&mut candidates);
    for candidate in candidates {
        let Candidate { binding, size, .. } = candidate;
        // Report one that is not verified yet, too; otherwise it would be reported again after each restart.
        if !candidate.fails_closed && (candidate.verified || !budget.has_room_for(binding, size)) {
            result.report(binding, Unenforced::NoRoom);
        }
        if candidate.has_own {
            let policy = if candidate.fails_closed {
                "Fail"
            } else {
                "Ignore"
            };
            result.own.push(MutatingWebhook {
                failure_policy: Some(policy.to_owned()),
                ..*candidate.entry
            });
        } else {
            result.shared.push(binding);
        }
    }
    result
}

/// Lets verified entries fail closed: first those within the share of their namespace, then others as far as there is
/// room, oldest first in both cases. Entries that must not fail closed anyway take no room.
fn allocate_fail_closed<'b>(candidates: &mut [Candidate<'b>]) -> FailClosedBudget<'b> {
    let mut budget = FailClosedBudget {
        left: EntryBudget {
            entries: MAX_REQUIRED,
            bytes: MAX_BYTES,
        },
        shares: BTreeMap::new(),
        exceeds_shares: false,
    };
    for candidate in candidates.iter_mut().filter(|it| it.verified) {
        let share = budget.shares.entry(&candidate.binding.namespace);
        let share = share.or_insert(SHARE);
        if share.has_room(candidate.size) && budget.left.take(candidate.size) {
            share.take(candidate.size);
            candidate.fails_closed = true;
        }
    }
    for candidate in candidates.iter_mut().filter(|it| it.verified) {
        if !candidate.fails_closed && budget.left.take(candidate.size) {
            candidate.fails_closed = true;
            budget.exceeds_shares = true;
        }
    }
    budget
}

/// Decides which bindings have an entry of their own: first those that fail closed, then the oldest.
fn allocate_own_entries(candidates: &mut [Candidate<'_>]) {
    let mut budget = EntryBudget {
        entries: MAX_OBJECTS * REQUIRED_PER_OBJECT,
        bytes: MAX_BYTES,
    };
    for fails_closed in [true, false] {
        for candidate in candidates.iter_mut() {
            if candidate.fails_closed == fails_closed {
                candidate.has_own = budget.take(candidate.size);
            }
        }
    }
}

/// What is left for entries that fail closed.
struct FailClosedBudget<'b> {
    left: EntryBudget,
    /// What is left of the share of each namespace.
    shares: BTreeMap<&'b str, EntryBudget>,
    /// Whether an entry beyond the share of its namespace has room, which makes way for one within its share.
    exceeds_shares: bool,
}

impl FailClosedBudget<'_> {
    /// Whether this binding's entry would have room, once it is verified.
    fn has_room_for(&self, binding: &EntryBinding, size: usize) -> bool {
        let share = self.shares.get(&*binding.namespace).unwrap_or(&SHARE);
        self.left.has_room(size) || (self.exceeds_shares && share.has_room(size))
    }
}

/// One namespace's share of the budget, while others need the rest.
const SHARE: EntryBudget = EntryBudget {
    entries: MAX_REQUIRED / 2,
    bytes: MAX_BYTES / 2,
};

impl RequiredEntries<'_> {
    fn report(&mut self, binding: &EntryBinding, reason: Unenforced) {
        self.unenforced.push(UnenforcedBinding {
            namespace: binding.namespace.clone(),
            actor: binding.actor.clone(),
            reason,
        });
    }
}

/// How many entries, and of what total size, still fit.
#[derive(Clone, Copy)]
struct EntryBudget {
    entries: usize,
    bytes: usize,
}

impl EntryBudget {
    fn has_room(&self, size: usize) -> bool {
        self.entries > 0 && self.bytes >= size
    }

    /// Takes what an entry of this size needs; returns whether there is enough.
    fn take(&mut self, size: usize) -> bool {
        if !self.has_room(size) {
            return false;
        }
        self.entries -= 1;
        self.bytes -= size;
        true
    }
}
