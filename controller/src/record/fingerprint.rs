//! The set of fields that a field manager owns, as one hash.
//!
//! If another field manager changes or removes one of our fields, the API server drops its path from our
//! `managedFields` entry. A changed fingerprint therefore shows drift without comparing values, defaults or quantities.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Order-independent hash of the leaf paths in a `managedFields` entry, except `spec.replicas`, which autoscalers take
/// over (WRK-3).
///
/// The value is stored in the status and compared after a restart, so the hash must be stable, unlike that of the
/// standard library.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Fields that a field manager owns through server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedFields {
    /// Fingerprint of all owned fields except `spec.replicas`.
    pub fingerprint: Fingerprint,
    /// Whether the manager owns `spec.replicas`.
    pub replicas: bool,
}

/// `metadata.managedFields`, with the fields of each entry reduced to a hash.
#[derive(Default, Deserialize)]
#[serde(transparent)]
pub(super) struct RawManagedFields<'a>(#[serde(borrow)] Vec<RawEntry<'a>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEntry<'a> {
    #[serde(borrow, default)]
    manager: Cow<'a, str>,
    #[serde(borrow, default)]
    operation: Cow<'a, str>,
    #[serde(borrow, default)]
    subresource: Cow<'a, str>,
    #[serde(default)]
    fields_v1: Leaves,
}

/// Fingerprint of the fields that `manager` owns through server-side apply; `None` if it owns none.
pub fn applied_by(entries: &[ManagedFieldsEntry], manager: &str) -> Option<String> {
    let raw = serde_json::to_string(entries).ok()?;
    let entries: RawManagedFields<'_> = serde_json::from_str(&raw).ok()?;
    Some(entries.applied_by(manager)?.fingerprint.to_string())
}

impl RawManagedFields<'_> {
    /// Fields that `manager` owns through server-side apply. `Update` entries and subresource entries under the same
    /// name do not count.
    pub(super) fn applied_by(&self, manager: &str) -> Option<OwnedFields> {
        let entry = self.0.iter().find(|entry| entry.is_of(manager, "Apply"))?;
        Some(OwnedFields {
            fingerprint: Fingerprint(entry.fields_v1.sum),
            replicas: entry.fields_v1.replicas,
        })
    }

    /// Whether a matching manager has an entry, excluding subresource entries.
    pub(super) fn is_written_by(&self, manager: impl Fn(&str) -> bool) -> bool {
        let mut entries = self.0.iter();
        entries.any(|entry| entry.subresource.is_empty() && manager(&entry.manager))
    }

    /// Index of the entry that `manager` wrote without server-side apply.
    pub(super) fn updated_by(&self, manager: &str) -> Option<usize> {
        self.0
            .iter()
            .position(|entry| entry.is_of(manager, "Update"))
    }
}

impl RawEntry<'_> {
    fn is_of(&self, manager: &str, operation: &str) -> bool {
        self.manager == manager && self.operation == operation && self.subresource.is_empty()
    }
}

/// Leaves below a path.
#[derive(Clone, Copy, Default)]
struct Leaves {
    /// Sum of the leaf path hashes.
    sum: u64,
    /// Whether `spec.replicas` is a leaf, which the sum excludes.
    replicas: bool,
}

impl<'de> Deserialize<'de> for Leaves {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Below(ROOT).deserialize(deserializer)
    }
}

/// Visitor that collects the leaves below the path with this hash.
struct Below(u64);

impl<'de> DeserializeSeed<'de> for Below {
    type Value = Leaves;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Leaves, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Below {
    type Value = Leaves;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Leaves, A::Error> {
        let mut all = Leaves::default();
        let mut is_leaf = true;
        while let Some(step) = map.next_key::<Cow<'_, str>>()? {
            is_leaf = false;
            let below = map.next_value_seed(Below(child(self.0, &step)))?;
            all.sum = all.sum.wrapping_add(below.sum);
            all.replicas |= below.replicas;
        }
        if is_leaf {
            all.replicas = self.0 == child(child(ROOT, "f:spec"), "f:replicas");
            all.sum = if all.replicas { 0 } else { mix(self.0) };
        }
        Ok(all)
    }

    fn visit_unit<E>(self) -> Result<Leaves, E> {
        Ok(Leaves::default())
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Leaves, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Leaves::default())
    }
}

const ROOT: u64 = 0xcbf2_9ce4_8422_2325;

/// Hashes one step with FNV-1a, seeded with the parent's hash. The 0xff separator keeps `a/bc` and `ab/c` apart.
fn child(parent: u64, step: &str) -> u64 {
    step.bytes().chain([0xff]).fold(parent, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Mixes a path's hash over all bits (`SplitMix64`), so that sums of similar paths do not collide.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
