//! The meaning of a 409 from the API server, and of the 422 that it returns if another object has taken the name. Every
//! write of a reconcile that can conflict is classified here.

use kube::core::Status;

/// The cause that the API server reports for each field on which an apply without force conflicts.
const FIELD_MANAGER_CONFLICT: &str = "FieldManagerConflict";

/// The field that the API server calls invalid if an update or apply names the uid of an object that was replaced.
const UID: &str = "metadata.uid";

/// Why the API server rejected a write that conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another field manager owns a field of an apply without force. The conflict is recorded in status, and the field
    /// is applied again with backoff (`reconcile/contention.rs`, CONF-7). Exceptions: while an actor is deleted, the
    /// conflict blocks unbinding and is tried again after 10 s (`reconcile/apply/unbind.rs`); an informational
    /// annotation is not written (`annotate_with_actor` in `reconcile/apply/foreign_fields.rs`, BIND-47); and where a
    /// write only gives up fields, it means stale data, as [`Self::Stale`].
    FieldManager(ConflictingField),
    /// The object was changed or replaced after it was read: reconcile again.
    Stale,
    /// The object to create exists: reconcile again.
    AlreadyExists,
}

/// A field on which an apply conflicts, because another field manager owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingField {
    pub field: String,
    /// The manager that owns it.
    pub manager: String,
}

impl Conflict {
    /// Classifies an error; `None` if it is not a conflict.
    pub fn of(error: &kube::Error) -> Option<Self> {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            _ => None,
        }
    }

    /// Classifies a response; `None` if it is not a conflict.
    pub fn of_status(status: &Status) -> Option<Self> {
        if status.is_already_exists() {
            return Some(Self::AlreadyExists);
        }
        if targets_replaced_object(status) {
            return Some(Self::Stale);
        }
        let owned = || conflicting_field(status).map_or(Self::Stale, Self::FieldManager);
        status.is_conflict().then(owned)
    }
}

/// Whether the write names the uid of a replaced object: a 422, although nothing is wrong with the write itself.
fn targets_replaced_object(status: &Status) -> bool {
    let details = status.details.as_ref();
    let mut causes = details.into_iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.any(|cause| cause.field == UID)
}

/// The first field on which an apply conflicts; `None` if the response names none.
fn conflicting_field(status: &Status) -> Option<ConflictingField> {
    let causes = &status.details.as_ref()?.causes;
    let cause = causes
        .iter()
        .find(|cause| cause.reason == FIELD_MANAGER_CONFLICT)?;
    // conflict with "kubectl-edit" using apps/v1: …; "kubectl" with subresource "scale" using …
    let manager = cause.message.split('"').nth(1).unwrap_or("unknown");
    // Show list items as `[name]`, as in the paths that are read from `managedFields`.
    let field = cause.field.replace("[name=\"", "[").replace("\"]", "]");
    Some(ConflictingField {
        field: field.trim_start_matches('.').to_owned(),
        manager: manager.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::{Value, json};

    use super::{Conflict, ConflictingField};

    fn status(reason: &str, causes: &Value) -> Status {
        serde_json::from_value(json!({
            "status": "Failure", "code": 409, "reason": reason, "message": "Apply failed with 1 conflict",
            "details": {"causes": causes},
        }))
        .unwrap()
    }

    /// CONF-7
    #[test]
    fn conflict_names_the_first_field_and_its_manager() {
        let annotation = json!({
            "reason": "FieldManagerConflict",
            "message": "conflict with \"kubectl-annotate\" using apps/v1",
            "field": ".spec.template.metadata.annotations.asya.sh/roll",
        });
        let image = json!({
            "reason": "FieldManagerConflict",
            "message": "conflict with \"images\" using apps/v1",
            "field": ".spec.template.spec.containers[name=\"asya-sidecar\"].image",
        });
        let invalid = json!({"reason": "FieldValueInvalid", "message": "x", "field": "y"});
        let annotation_owned = (
            "spec.template.metadata.annotations.asya.sh/roll",
            "kubectl-annotate",
        );
        let image_owned = (
            "spec.template.spec.containers[asya-sidecar].image",
            "images",
        );
        for (causes, expected) in [
            (json!([annotation, image]), annotation_owned),
            (json!([invalid, image]), image_owned),
        ] {
            let expected = ConflictingField {
                field: expected.0.to_owned(),
                manager: expected.1.to_owned(),
            };
            let conflict = Conflict::of_status(&status("Conflict", &causes));
            assert_eq!(conflict, Some(Conflict::FieldManager(expected)));
        }
        for causes in [json!([]), json!([invalid])] {
            let conflict = Conflict::of_status(&status("Conflict", &causes));
            assert_eq!(conflict, Some(Conflict::Stale), "{causes}");
        }
    }

    /// FW-31
    #[test]
    fn only_a_409_is_a_conflict() {
        let exists = status("AlreadyExists", &json!([]));
        assert_eq!(Conflict::of_status(&exists), Some(Conflict::AlreadyExists));
        let invalid = Status::failure("invalid", "Invalid").with_code(422);
        assert_eq!(Conflict::of_status(&invalid), None);
        assert_eq!(
            Conflict::of(&kube::Error::Service("connection refused".into())),
            None
        );
    }

    /// A real API server's answer to an update that names the uid of a replaced object.
    #[test]
    fn write_to_a_replaced_object_is_stale() {
        let cause = |field: &str| {
            let cause =
                json!({"reason": "FieldValueInvalid", "message": "Invalid value", "field": field});
            let mut status = status("Invalid", &json!([cause]));
            status.code = 422;
            status
        };
        let stale = Conflict::of_status(&cause("metadata.uid"));
        assert_eq!(stale, Some(Conflict::Stale));
        assert_eq!(Conflict::of_status(&cause("spec.replicas")), None);
    }
}
