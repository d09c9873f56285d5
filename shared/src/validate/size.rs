//! The size of a spec (VAL-22). Controller and webhook hold the specs of all actors in memory, so without a limit the
//! actors of one namespace could exhaust the memory that all share.

use std::borrow::Borrow;

use serde_json::value::RawValue;

use super::Violation;

/// Largest spec that is accepted and kept in memory, in bytes of JSON. The API server limits the annotations of an
/// object to as much, so `kubectl apply`, which stores the whole object in one, fails for a larger spec anyway.
pub const MAX_SPEC_BYTES: usize = 256 << 10;
/// Longer than any name of a transport.
const LONGEST_TRANSPORT: usize = 1 << 10;

/// The violation of a spec that is too large; sizes are in bytes of JSON, as the API server sends it. An update may
/// leave it too large as long as it does not grow; `old` is the size before the update.
#[must_use]
pub fn spec_size(bytes: usize, old: Option<usize>) -> Option<Violation> {
    let grows = old.is_none_or(|old| bytes > old);
    (bytes > MAX_SPEC_BYTES && grows).then(|| Violation {
        path: "spec".to_owned(),
        problem: format!("has {bytes} bytes of JSON, more than {MAX_SPEC_BYTES}"),
        fix: Some(
            "move large values of env or args into a ConfigMap or the image, and refer to them"
                .to_owned(),
        ),
    })
}

/// The spec and transport of an actor to keep in memory: both, unless the spec is too large. In that case only the
/// transport is kept, for the sake of the actor's queue, if it can be the name of one.
#[must_use]
pub fn kept_spec<S: Borrow<RawValue>>(
    spec: Option<S>,
    transport: Option<Box<str>>,
) -> (Option<S>, Option<Box<str>>) {
    let is_small = |spec: &S| spec_size(spec.borrow().get().len(), None).is_none();
    if spec.as_ref().is_none_or(is_small) {
        return (spec, transport);
    }
    (
        None,
        transport.filter(|name| name.len() <= LONGEST_TRANSPORT),
    )
}

#[cfg(test)]
mod tests {
    use super::{MAX_SPEC_BYTES, spec_size};

    /// VAL-22
    #[test]
    fn spec_may_be_too_large_only_as_long_as_it_does_not_grow() {
        let (largest, larger) = (MAX_SPEC_BYTES, MAX_SPEC_BYTES + 1);
        for (bytes, old, accepted) in [
            (largest, None, true),
            (larger, None, false),
            (larger, Some(10), false),
            (larger, Some(largest), false),
            (larger, Some(larger), true),
            (larger, Some(larger + 1), true),
            (larger + 1, Some(larger), false),
            (largest, Some(larger), true),
        ] {
            let violation = spec_size(bytes, old);
            assert_eq!(violation.is_none(), accepted, "{bytes} after {old:?}");
        }
        assert_eq!(
            spec_size(larger, None).unwrap().to_string(),
            "spec: has 262145 bytes of JSON, more than 262144; move large values of env or args into a ConfigMap or \
             the image, and refer to them"
        );
    }
}
