//! The figures of a run.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::footprint::Footprint;
use super::ledger::Verdict;
use super::schedule::Fault;
use super::setup::Setup;

/// Maximum number of printed list items.
const SHOWN: usize = 10;

/// The figures and the violations of invariants.
pub struct Report {
    setup: Setup,
    /// How often each kind of fault was injected, and the longest time until consumption resumed.
    kinds: BTreeMap<&'static str, (usize, Duration)>,
    messages: usize,
    lost: usize,
    duplicates: usize,
    pub duplicates_bound: usize,
    crashes: usize,
    pub crashes_bound: usize,
    footprints: Option<(Footprint, Footprint)>,
    violations: Vec<String>,
}

impl Report {
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            kinds: BTreeMap::new(),
            messages: 0,
            lost: 0,
            duplicates: 0,
            duplicates_bound: 0,
            crashes: 0,
            crashes_bound: 0,
            footprints: None,
            violations: Vec::new(),
        }
    }

    pub fn injected(&mut self, fault: &Fault, resumed_after: Duration) {
        let (count, longest) = self.kinds.entry(fault.kind()).or_default();
        *count += 1;
        *longest = resumed_after.max(*longest);
    }

    pub fn violated(&mut self, what: String) {
        self.violations.push(what);
    }

    /// SC-108
    pub fn settled(&mut self, verdict: &Verdict, messages: usize) {
        self.messages = messages;
        self.lost = verdict.lost.len();
        self.duplicates = verdict.duplicates;
        self.crashes = verdict.crashed;
        let lost = verdict.lost.iter().map(|id| format!("lost: {id}"));
        self.violations.extend(lost);
        self.violations.extend(verdict.wrong.iter().cloned());
        if self.duplicates > self.duplicates_bound {
            self.violated(format!("more than {} duplicates", self.duplicates_bound));
        }
        if self.crashes > self.crashes_bound {
            self.violated(format!(
                "more than {} messages crashed their runtime",
                self.crashes_bound
            ));
        }
    }

    pub fn footprints(&mut self, before: Footprint, after: Footprint) {
        self.footprints = Some((before, after));
        if !after.is_within(&before) {
            self.violated(format!("a sidecar grew from {before:?} to {after:?}"));
        }
    }

    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    fn faults(&self) -> usize {
        self.kinds.values().map(|(count, _)| count).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} faults, {} messages, {} lost, {} duplicates of at most {}, {} in error-end with a killed runtime of \
             at most {}",
            self.setup,
            self.faults(),
            self.messages,
            self.lost,
            self.duplicates,
            self.duplicates_bound,
            self.crashes,
            self.crashes_bound,
        )?;
        for (kind, (count, longest)) in &self.kinds {
            writeln!(
                f,
                "  {count:4}  {kind}; resumed after {longest:.1?} at most"
            )?;
        }
        if let Some((before, after)) = self.footprints {
            writeln!(
                f,
                "  a sidecar that lived throughout: {before:?}, then {after:?}"
            )?;
        }
        for violation in self.violations.iter().take(SHOWN) {
            writeln!(f, "  VIOLATED: {violation}")?;
        }
        if self.violations.len() > SHOWN {
            writeln!(f, "  and {} more violations", self.violations.len() - SHOWN)?;
        }
        Ok(())
    }
}
