//! Property tests. A failure prints the seed that reproduces it.
//!
//! `make test-unit` tries the same few hundred inputs of each property in every run, so that it fails because of a
//! change and never by chance. `make fuzz MINUTES=n` tries new inputs for n minutes. Inputs that it finds become
//! fixtures of ordinary tests.

pub mod injectors;
pub mod input;
pub mod pods;

use std::hash::{BuildHasher as _, DefaultHasher, Hash as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

pub use proptest;
use proptest::strategy::Strategy;
use proptest::test_runner::{
    Config, RngAlgorithm, TestCaseError, TestCaseResult, TestError, TestRng, TestRunner,
};

/// The seed of an earlier run, to reproduce it.
const SEED: &str = "ASYA_FUZZ_SEED";
/// How long to try each property.
const MINUTES: &str = "ASYA_FUZZ_MINUTES";
/// Inputs per seed.
const CASES: u32 = 256;

/// Tests a property with inputs from a strategy.
///
/// # Panics
/// If the property fails or panics; reports the smallest failing input and the seed.
pub fn check<S: Strategy>(strategy: &S, property: impl Fn(S::Value) -> TestCaseResult) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("fuzz").to_owned();
    let began = Instant::now();
    let lasts = variable(MINUTES).map(Duration::from_mins);
    let given = variable(SEED).or_else(|| lasts.is_none().then(|| seed_of(&name)));
    let mut cases: u64 = 0;
    loop {
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(began.elapsed()));
        cases += u64::from(CASES);
        if let Err(failure) = run(seed, strategy, &property) {
            panic!("{name}: {failure}\n{SEED}={seed} repeats it");
        }
        if given.is_some() || lasts.is_none_or(|lasts| began.elapsed() >= lasts) {
            println!("{name}: {cases} inputs, the last {CASES} from {SEED}={seed}");
            return;
        }
    }
}

/// Runs one seed.
fn run<S: Strategy>(
    seed: u64,
    strategy: &S,
    property: &impl Fn(S::Value) -> TestCaseResult,
) -> Result<(), String> {
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let bytes = seed.to_le_bytes().repeat(4);
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let outcome = TestRunner::new_with_rng(config, random).run(strategy, property);
    outcome.map_err(|error| match error {
        TestError::Fail(reason, input) => format!("{reason}\nsmallest input: {input:?}"),
        TestError::Abort(reason) => reason.to_string(),
    })
}

/// Turns any error into a failure of the property.
pub fn fail(error: impl std::fmt::Display) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

/// The seed of a property in `make test-unit`.
fn seed_of(property: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    property.hash(&mut hasher);
    hasher.finish()
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use proptest::prop_assert;

    use super::{check, run};

    #[test]
    fn a_failing_property_shrinks_and_a_seed_repeats_it() {
        let below = |number: u32| {
            prop_assert!(number < 1000, "too large");
            Ok(())
        };
        let failures = [7, 7].map(|seed| run(seed, &proptest::num::u32::ANY, &below));
        assert_eq!(failures[0], failures[1]);
        let failure = failures[0].as_ref().expect_err("it fails");
        assert!(failure.ends_with("smallest input: 1000"), "{failure}");
    }

    #[test]
    fn a_panic_is_a_failure() {
        let panics = || check(&proptest::num::u8::ANY, |_| panic!("always"));
        assert!(catch_unwind(panics).is_err());
    }
}
