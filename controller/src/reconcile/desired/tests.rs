use serde_json::json;

use crate::fault::{Reason, Requeue};
use crate::reconcile::tests::fixtures::{actor, observed, spec};

/// FW-21: admission rejects such an annotation, but an object may have it already.
#[test]
fn unknown_annotation_value_is_a_fault_of_the_actor() {
    let metadata = json!({"annotations": {"asya.sh/reconcile": "paused"}});
    let observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
    let fault = observed.desired.unwrap_err();
    assert_eq!(fault.reason, Reason::ValidationError);
    assert_eq!(fault.retry, Requeue::AwaitChange);
    for text in ["asya.sh/reconcile", "paused"] {
        assert!(fault.message.contains(text), "{}", fault.message);
    }
}
