//! The demo's output: numbered steps, and timed lines below them.

use std::cell::{Cell, OnceCell};
use std::time::Instant;

/// The steps, in order.
const STEPS: [&str; 8] = [
    "RabbitMQ: that of the installed package",
    "etcd, the control plane of Kubernetes, kubectl",
    "kwok and helm",
    "a cluster with the operator",
    "a first actor",
    "messages: a chain of actors, a fan-out, an error",
    "an actor that binds to a Deployment",
    "KEDA, and models of KAITO and KServe",
];

/// The progress of the demo.
pub(super) struct Progress {
    /// When the first line was printed: earlier builds do not count.
    started: OnceCell<Instant>,
    /// Number of steps announced before the demo's own.
    before: usize,
    taken: Cell<usize>,
}

impl Progress {
    pub(super) fn after(before: usize) -> Self {
        Self {
            started: OnceCell::new(),
            before,
            taken: Cell::new(0),
        }
    }

    /// Announces the next step.
    pub(super) fn step(&self) {
        println!("{}", self.next());
    }

    fn next(&self) -> String {
        let taken = self.taken.get();
        self.taken.set(taken + 1);
        let (number, all) = (self.before + taken + 1, self.before + STEPS.len());
        let step = STEPS.get(taken).copied().unwrap_or_default();
        format!("[{number}/{all}] {step}")
    }

    /// Prints what happens in this step, with the time since the first such line.
    pub(super) fn say(&self, what: &str) {
        let started = self.started.get_or_init(Instant::now);
        println!("{:>6.1} s  {what}", started.elapsed().as_secs_f32());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_after_those_before() {
        let progress = Progress::after(3);
        let steps: Vec<String> = STEPS.iter().map(|_| progress.next()).collect();
        assert_eq!(steps[0], "[4/11] RabbitMQ: that of the installed package");
        assert_eq!(steps[7], "[11/11] KEDA, and models of KAITO and KServe");
    }
}
