//! Which fields an applier owns, as one number.
//!
//! A rival that changes or removes a field of ours takes its path out of our `managedFields` entry, so
//! a changed fingerprint shows drift without comparing values, defaults or quantities.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Hash, free of order, of the leaf paths of a `managedFields` entry.
///
/// It goes into status and is compared by the next process: the hash is fixed, not the standard
/// library's.
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

/// `metadata.managedFields`, each entry's fields reduced to a number.
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

impl RawManagedFields<'_> {
    /// An `Update` entry under the same name is another one, and so is a subresource's.
    pub(super) fn applied_by(&self, manager: &str) -> Option<Fingerprint> {
        self.0
            .iter()
            .find(|entry| {
                entry.manager == manager
                    && entry.operation == "Apply"
                    && entry.subresource.is_empty()
            })
            .map(|entry| Fingerprint(entry.fields_v1.0))
    }
}

#[derive(Default)]
struct Leaves(u64);

impl<'de> Deserialize<'de> for Leaves {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Below(ROOT).deserialize(deserializer).map(Leaves)
    }
}

/// Sums the leaves below the path whose hash it holds.
struct Below(u64);

impl<'de> DeserializeSeed<'de> for Below {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Below {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let (mut sum, mut leaf) = (0_u64, true);
        while let Some(step) = map.next_key::<Cow<'_, str>>()? {
            leaf = false;
            sum = sum.wrapping_add(map.next_value_seed(Below(child(self.0, &step)))?);
        }
        Ok(if leaf { mix(self.0) } else { sum })
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(0)
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<u64, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(0)
    }
}

const ROOT: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a over the step, started from the parent's hash; the 0xff keeps `a/bc` and `ab/c` apart.
fn child(parent: u64, step: &str) -> u64 {
    step.bytes().chain([0xff]).fold(parent, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Spreads a path's hash over all bits, so that sums of similar paths do not meet (`SplitMix64`).
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
