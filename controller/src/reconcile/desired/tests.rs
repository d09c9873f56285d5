use serde_json::json;

use crate::fault::{Reason, Requeue};
use crate::reconcile::tests::fixtures::{actor, observed, spec};

/// FW-21: admission refuses such an annotation, but an object may have it already.
#[test]
fn unknown_annotation_value_is_a_fault_of_the_actor() {
    let metadata = json!({"annotations": {"asya.sh/reconcile": "paused"}});
    let seen = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
    let fault = seen.desired.unwrap_err();
    assert_eq!(fault.reason, Reason::ValidationError);
    assert_eq!(fault.retry, Requeue::AwaitChange);
    for part in ["asya.sh/reconcile", "paused"] {
        assert!(fault.message.contains(part), "{}", fault.message);
    }
}
