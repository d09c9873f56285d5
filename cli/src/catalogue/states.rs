//! Values of STATUS that are no reason of a condition, too.

use super::{Entry, STANDALONE, TROUBLESHOOTING, entry_of};

pub const ENTRIES: &[Entry] = &[
    entry_of(
        "Creating",
        "The first pods are starting.",
        "Wait.",
        TROUBLESHOOTING,
    ),
    entry_of(
        "Running",
        "As many pods as desired are ready.",
        "Nothing to do.",
        TROUBLESHOOTING,
    ),
    entry_of(
        "Napping",
        "The actor is scaled to zero; the next message starts a pod.",
        "Nothing to do.",
        STANDALONE,
    ),
    entry_of(
        "Updating",
        "A rollout replaces the pods.",
        "Wait.",
        TROUBLESHOOTING,
    ),
    entry_of(
        "ScalingUp",
        "More pods are starting.",
        "Wait.",
        TROUBLESHOOTING,
    ),
    entry_of(
        "ScalingDown",
        "Surplus pods are stopping.",
        "Wait.",
        TROUBLESHOOTING,
    ),
    entry_of(
        "Degraded",
        "Some pods are ready; others fail, or do not become ready.",
        "`kubectl asya trace NAME` shows which; look at their Events and logs.",
        TROUBLESHOOTING,
    ),
    entry_of(
        "TransportError",
        "The queue cannot be used.",
        "See the reason of condition TransportReady: `kubectl asya status NAME`.",
        TROUBLESHOOTING,
    ),
    entry_of(
        "ScalingError",
        "KEDA cannot scale the workload.",
        "See the reason of condition ScalingReady: `kubectl asya status NAME`.",
        TROUBLESHOOTING,
    ),
];
