//! The cost of a restart.

use serde::Serialize;

use super::restart::{ReplacedBy, Restart};

/// Pods and accelerators that a change occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    pub rollouts: u32,
    /// Pods that are replaced.
    pub replaced: i64,
    /// Pods of a new workload.
    pub started: i64,
    /// Minimum number of pods that stay ready meanwhile.
    pub ready: i64,
    pub gpus_per_pod: i64,
    /// GPUs that the pods hold now.
    pub gpus_now: i64,
    /// Maximum number of GPUs that they hold meanwhile.
    pub gpus_meanwhile: i64,
}

/// The cost of a restart of pods with this many GPUs each.
pub fn of_restart(restart: &Restart, gpus_per_pod: i64) -> Cost {
    let pods = i64::try_from(restart.total).unwrap_or(i64::MAX);
    let replaces = restart.by != ReplacedBy::None && restart.pods > 0;
    let part = |number: i32| if replaces { i64::from(number) } else { 0 };
    let max = pods.saturating_add(part(restart.surge));
    Cost {
        rollouts: u32::from(replaces),
        replaced: i64::try_from(restart.pods).unwrap_or(i64::MAX),
        started: 0,
        ready: (pods - part(restart.unavailable)).max(0),
        gpus_per_pod,
        gpus_now: pods.saturating_mul(gpus_per_pod),
        gpus_meanwhile: max.saturating_mul(gpus_per_pod),
    }
}

/// The cost of starting a new workload.
pub fn of_start(pods: i32, gpus_per_pod: i64) -> Cost {
    let started = i64::from(pods);
    Cost {
        started,
        gpus_per_pod,
        gpus_meanwhile: started.saturating_mul(gpus_per_pod),
        ..Cost::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ROLL-7
    #[test]
    fn surge_holds_more_gpus_and_eviction_holds_none() {
        let restart = |by, pods, surge, unavailable| Restart {
            by,
            pods,
            total: 4,
            surge,
            unavailable,
            ..Restart::default()
        };
        let cost = |rollouts, replaced, ready, gpus_meanwhile| Cost {
            rollouts,
            replaced,
            started: 0,
            ready,
            gpus_per_pod: 2,
            gpus_now: 8,
            gpus_meanwhile,
        };
        for (restart, expected) in [
            (restart(ReplacedBy::Workload, 4, 1, 1), cost(1, 4, 3, 10)),
            (restart(ReplacedBy::Operator, 2, 0, 1), cost(1, 2, 3, 8)),
            (restart(ReplacedBy::Workload, 4, 0, 4), cost(1, 4, 0, 8)),
            (restart(ReplacedBy::None, 0, 0, 0), cost(0, 0, 4, 8)),
        ] {
            assert_eq!(of_restart(&restart, 2), expected, "{restart:?}");
        }
        assert_eq!(of_start(3, 2).gpus_meanwhile, 6);
    }
}
