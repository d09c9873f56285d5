//! Selected members of a JSON object, as written.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::Deserializer;

use super::Written;

/// The values of `keys` in the JSON object `text`. Keys are compared exactly; if one is repeated, the last one counts,
/// as in the runtime. Other values may be nested arbitrarily deep: they are skipped, not decoded.
///
/// # Errors
/// If the text is not a single JSON object.
pub(super) fn fields<'a, const N: usize>(
    text: &'a str,
    keys: [&'static str; N],
) -> Result<[Option<&'a str>; N], serde_json::Error> {
    let mut found = [None; N];
    let mut deserializer = Deserializer::from_str(text);
    deserializer.deserialize_map(Object {
        keys,
        found: &mut found,
    })?;
    deserializer.end()?;
    Ok(found)
}

/// Like [`fields`], but for the beginning of an object: what is complete before the text ends.
pub(super) fn fields_of_beginning<'a, const N: usize>(
    text: &'a str,
    keys: [&'static str; N],
) -> [Option<&'a str>; N] {
    let mut found = [None; N];
    let object = Object {
        keys,
        found: &mut found,
    };
    // The text ends early, which is always an error.
    let _ = Deserializer::from_str(text).deserialize_map(object);
    found
}

/// Whether a JSON value is a string.
pub(super) fn is_string(written: &str) -> bool {
    written.starts_with('"')
}

/// Whether a JSON value is an object.
pub(super) fn is_object(written: &str) -> bool {
    written.starts_with('{')
}

struct Object<'f, 'a, const N: usize> {
    keys: [&'static str; N],
    found: &'f mut [Option<&'a str>; N],
}

impl<'a, const N: usize> Visitor<'a> for Object<'_, 'a, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some(index) = map.next_key_seed(Key(&self.keys))? {
            let value: Written<'a> = map.next_value()?;
            if let Some(index) = index {
                let place = self
                    .found
                    .get_mut(index)
                    .ok_or_else(|| A::Error::custom("no such key"))?;
                *place = Some(value.get());
            }
        }
        Ok(())
    }
}

/// The index of a key among those looked for.
struct Key<'k>(&'k [&'static str]);

impl<'a> DeserializeSeed<'a> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'a>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|wanted| *wanted == key))
    }
}
