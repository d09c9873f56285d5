//! Everything random in a simulation follows from its seed and from what the decision is about, never from the order in
//! which decisions are made: whatever one run leaves out, as shrinking does, the rest stays as it was.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use fastrand::Rng;

/// The seed of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// Random numbers for the decision with this name.
    pub fn rng_for(self, decision: impl Hash) -> Rng {
        let mut hasher = DefaultHasher::new();
        (self.0, decision).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }

    /// Makes the jitter that the controller draws next follow from the call that it has just made: tasks that wake at
    /// the same moment run in any order.
    pub fn seed_jitter(self, call: impl Hash) {
        fastrand::seed(self.rng_for(("jitter", call)).u64(..));
    }
}

/// A delay between two numbers of milliseconds.
pub fn delay(random: &mut Rng, milliseconds: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.u64(milliseconds))
}

/// One of several values.
pub fn pick<'a, T>(random: &mut Rng, values: &'a [T]) -> &'a T {
    &values[random.usize(..values.len())]
}
