//! Every reason and finding that a user can come across, with its meaning, the fix, and the page with more about it.

mod checks;
mod conditions;
mod injection;
mod preview;
mod rules;
mod states;

use asya_shared::inject::bound::InjectionReason;
use serde::Serialize;

/// The documentation page of this program.
pub const INDEX: &str = "docs/cli.md";

const PREFIX: &str = "ASYA-";

/// A reason or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The reason as in conditions, Events and annotations, or the requirement that a rule enforces. Stable.
    pub name: &'static str,
    /// Its meaning, as a sentence.
    pub meaning: &'static str,
    /// What to do.
    pub fix: &'static str,
    /// A page of the documentation.
    pub page: &'static str,
}

const fn entry_of(
    name: &'static str,
    meaning: &'static str,
    fix: &'static str,
    page: &'static str,
) -> Entry {
    Entry {
        name,
        meaning,
        fix,
        page,
    }
}

/// The fix for a reason with this remedy.
const fn fix_of(remedy: Option<&'static str>) -> &'static str {
    match remedy {
        Some(remedy) => remedy,
        None => "Nothing to do.",
    }
}

const STANDALONE: &str = "docs/spec/standalone.md";
const BINDING: &str = "docs/spec/binding.md";
const SAFETY: &str = "docs/spec/safety.md";
const ADMISSION: &str = "docs/spec/admission.md";
const FRAMEWORKS: &str = "docs/spec/frameworks.md";
const FAQ: &str = "docs/guides/faq.md";
const RUNBOOKS: &str = "docs/runbooks.md";
const TROUBLESHOOTING: &str = "docs/troubleshooting.md";

/// All entries by kind: values of STATUS, reasons of conditions, reasons of injection, rules, and findings of `check`
/// and `preview`.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    let kinds = [
        states::ENTRIES,
        conditions::ENTRIES,
        injection::ENTRIES,
        rules::ENTRIES,
        checks::ENTRIES,
        preview::ENTRIES,
    ];
    kinds.into_iter().flatten()
}

/// The entry with this name or id, in any case.
pub fn entry(name: &str) -> Option<&'static Entry> {
    let is_id = name
        .get(..PREFIX.len())
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX));
    let name = if is_id { &name[PREFIX.len()..] } else { name };
    all().find(|entry| entry.name.eq_ignore_ascii_case(name))
}

/// The entry with the fix for a condition with this reason and message. A failed dry run has many causes: if the
/// webhook has left the pod unchanged, the webhook's reason ends the message.
pub fn remedy(reason: &str, message: &str) -> Option<&'static Entry> {
    let inner = message.rsplit_once(": ").map(|(_, inner)| inner);
    let inner = inner.filter(|_| reason == "ProbeFailed");
    let is_known = |inner: &&str| InjectionReason::ALL.iter().any(|it| it.as_str() == *inner);
    let inner = inner.filter(is_known).and_then(entry);
    inner.or_else(|| entry(reason))
}

/// The id of a finding, such as `ASYA-VAL-3`.
pub fn id(name: &str) -> String {
    format!("{PREFIX}{name}")
}

#[cfg(test)]
mod tests;
