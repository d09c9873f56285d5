//! JSON patches that test what they rely on: what another writes meanwhile stays.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use kube::core::Status;
use serde_json::Value;

/// What must stand at `path`.
pub fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: pointer(path),
        value,
    })
}

/// Puts something where nothing is; before the element of a list, or with `-` behind the last.
pub fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: pointer(path),
        value,
    })
}

/// Puts something in the place of what stands there.
pub fn replace(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation {
        path: pointer(path),
        value,
    })
}

/// Takes something away.
pub fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation {
        path: pointer(path),
    })
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

/// Whether a test failed: the object changed, or is another one. An object that is refused as a whole, because it was
/// stored before a rule of the API server's, answers 422, too, but with the fields that are wrong.
pub fn is_failed_test(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes);
    status.code == 422 && causes.is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::is_failed_test;

    /// FIN-1
    #[test]
    fn a_changed_object_is_told_from_one_that_is_refused() {
        for (details, changed) in [
            (json!({}), true),
            (
                json!({"causes": [{"reason": "FieldValueInvalid", "field": ".spec.workload.replicas"}]}),
                false,
            ),
        ] {
            let answer =
                json!({"status": "Failure", "code": 422, "reason": "Invalid", "details": details});
            let answer = serde_json::from_value(answer).unwrap();
            assert_eq!(is_failed_test(&answer), changed, "{details}");
        }
    }
}
