//! Runs many seeds.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::run::{Options, Report, run};

/// Runs the seeds on several threads until this many have failed, and prints each failure. Returns the failed seeds, in
/// order.
#[must_use]
pub fn failing(seeds: &[u64], threads: usize, failures: usize) -> Vec<(u64, Report)> {
    let (next, failing) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = seeds.get(next.fetch_add(1, Ordering::Relaxed));
                    let Some(&seed) = seed.filter(|_| failing.lock().len() < failures) else {
                        return;
                    };
                    let report = run(&Options {
                        seed,
                        ..Options::default()
                    });
                    if !report.violations.is_empty() {
                        println!("seed {seed}: {}", report.violations.join("\n  "));
                        failing.lock().push((seed, report));
                    }
                }
            });
        }
    });
    let mut failing = failing.into_inner();
    failing.sort_by_key(|(seed, _)| *seed);
    failing
}
