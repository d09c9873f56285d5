//! All randomness in a simulation derives from the seed and the name of the decision, never from the order of
//! decisions: whatever shrinking leaves out of a run, the rest stays the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use fastrand::Rng;

/// The seed of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// A generator for the decision with this name.
    pub fn rng_for(self, decision: impl Hash) -> Rng {
        let mut hasher = DefaultHasher::new();
        (self.0, decision).hash(&mut hasher);
        Rng::with_seed(hasher.finish())
    }

    /// Makes the jitter that the controller draws next depend on the call that it has just made, because tasks that
    /// wake at the same moment run in any order.
    pub fn seed_jitter(self, call: impl Hash) {
        fastrand::seed(self.rng_for(("jitter", call)).u64(..));
    }
}

/// A random delay in this range of milliseconds.
pub fn delay(random: &mut Rng, milliseconds: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.u64(milliseconds))
}

/// Picks one of the values.
pub fn pick<'a, T>(random: &mut Rng, values: &'a [T]) -> &'a T {
    &values[random.usize(..values.len())]
}
