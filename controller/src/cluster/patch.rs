//! JSON patches that test their preconditions, so that concurrent writes are kept.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation};
use kube::core::Status;
use serde_json::Value;

/// Requires this value at `path`.
pub fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: pointer(path),
        value,
    })
}

/// Adds a value at `path`; in a list, before that element, or at the end with `-`.
pub fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: pointer(path),
        value,
    })
}

/// Replaces the value at `path`.
pub fn replace(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation {
        path: pointer(path),
        value,
    })
}

/// Removes the value at `path`.
pub fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation {
        path: pointer(path),
    })
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

/// Whether a test failed, because the object changed or is another one. An object that fails validation as a whole, as
/// one stored before a validation rule existed, also gets 422, but with the invalid fields as causes.
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
    fn rejected_object_is_not_mistaken_for_a_failed_test() {
        for (details, changed) in [
            (json!({}), true),
            (
                json!({"causes": [{"reason": "FieldValueInvalid", "field": ".spec.workload.replicas"}]}),
                false,
            ),
        ] {
            let status =
                json!({"status": "Failure", "code": 422, "reason": "Invalid", "details": details});
            let status = serde_json::from_value(status).unwrap();
            assert_eq!(is_failed_test(&status), changed, "{details}");
        }
    }
}
