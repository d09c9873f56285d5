//! Which required bindings have an entry of their own, and which of these fail closed (CFG-7).

use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;

use super::entry::{RequiredEntry, json_size, required_entry};
use super::{Binding, MAX_OBJECTS, MAX_REQUIRED, Policy, REQUIRED_PER_OBJECT, Settings};

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
    /// The maximum number or size of such entries has been reached.
    NoRoom,
    /// Its pod selector is too large for an entry, and nothing else tells its pods from others.
    SelectorTooLarge,
}

/// The entries of required bindings.
#[derive(Default)]
pub(super) struct RequiredEntries<'b> {
    /// Entries of one binding each, in the order of the bindings.
    pub(super) own: Vec<MutatingWebhook>,
    /// Bindings without an entry of their own: they share entries, which fail open.
    pub(super) shared: Vec<&'b Binding>,
    /// Bindings whose entry cannot fail closed.
    pub(super) unenforced: Vec<UnenforcedBinding>,
}

/// Decides about the required ones of `bindings`, which are sorted oldest first.
pub(super) fn required_entries<'b>(
    settings: &Settings,
    bindings: impl Iterator<Item = &'b Binding>,
) -> RequiredEntries<'b> {
    let mut result = RequiredEntries::default();
    let mut closed = Room {
        entries: MAX_REQUIRED,
        bytes: MAX_BYTES,
    };
    let mut own = Room {
        entries: MAX_OBJECTS * REQUIRED_PER_OBJECT,
        bytes: MAX_BYTES,
    };
    for binding in bindings {
        let Policy::Required { verified } = binding.policy else {
            continue;
        };
        let entry = match required_entry(settings, binding) {
            RequiredEntry::Own(entry) => entry,
            RequiredEntry::NoPods => continue,
            RequiredEntry::TooLarge => {
                result.report(binding, Unenforced::SelectorTooLarge);
                result.shared.push(binding);
                continue;
            }
        };
        let size = json_size(&entry);
        let has_room = closed.take(size);
        if !has_room {
            result.report(binding, Unenforced::NoRoom);
        }
        if own.take(size) {
            let fails = verified && has_room;
            result.own.push(MutatingWebhook {
                failure_policy: Some(if fails { "Fail" } else { "Ignore" }.to_owned()),
                ..*entry
            });
        } else {
            result.shared.push(binding);
        }
    }
    result
}

impl RequiredEntries<'_> {
    fn report(&mut self, binding: &Binding, reason: Unenforced) {
        self.unenforced.push(UnenforcedBinding {
            namespace: binding.namespace.clone(),
            actor: binding.actor.clone(),
            reason,
        });
    }
}

/// How many entries, and of what total size, still fit.
#[derive(Clone, Copy)]
struct Room {
    entries: usize,
    bytes: usize,
}

impl Room {
    fn has(&self, size: usize) -> bool {
        self.entries > 0 && self.bytes >= size
    }

    /// Takes the room for an entry of this size; returns whether there is any.
    fn take(&mut self, size: usize) -> bool {
        if !self.has(size) {
            return false;
        }
        self.entries -= 1;
        self.bytes -= size;
        true
    }
}
