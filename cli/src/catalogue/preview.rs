//! Findings of `preview`.

use super::{ADMISSION, Entry, SAFETY, STANDALONE, entry_of};

pub const ENTRIES: &[Entry] = &[
    entry_of(
        "RejectedByServer",
        "The API server rejects the object: it does not fit the schema or a rule of its kind.",
        "Change the field that the message names.",
        STANDALONE,
    ),
    entry_of(
        "RejectedByQuota",
        "A ResourceQuota of the namespace has no room for the object.",
        "Raise the quota, or set smaller resources for sidecar and runtime.",
        SAFETY,
    ),
    entry_of(
        "RejectedByPolicy",
        "A policy, a webhook, a LimitRange or Pod Security rejects the object.",
        "Change what the message names, or let the policy admit Asya's containers.",
        ADMISSION,
    ),
];
