//! Finds status fields written by the Go operator: an apply leaves fields that it does not name to their owner, and
//! that operator no longer runs (WRK-7).

use serde_json::{Map, Value};

/// Returns the merge patch that turns `stored` into `sent`; `None` if they are equal.
pub(super) fn removal_patch(sent: &Value, stored: &Value) -> Option<Value> {
    let (Value::Object(sent_fields), Value::Object(stored_fields)) = (sent, stored) else {
        return (sent != stored).then(|| sent.clone());
    };
    let changes = stored_fields.iter().filter_map(|(key, stored)| {
        let change = match sent_fields.get(key) {
            None => Some(Value::Null),
            Some(sent) => removal_patch(sent, stored),
        };
        Some((key.clone(), change?))
    });
    let changes: Map<String, Value> = changes.collect();
    (!changes.is_empty()).then_some(Value::Object(changes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::removal_patch;

    /// WRK-7
    #[test]
    fn only_fields_that_were_not_sent_are_removed() {
        let sent =
            json!({"status": "Running", "queue": {"name": "q"}, "conditions": [{"type": "Ready"}]});
        assert_eq!(removal_patch(&sent, &sent), None);
        let stored = json!({
            "status": "Running",
            "scaledObjectRef": {"name": "a"},
            "queue": {"name": "q", "url": "u"},
            "conditions": [{"type": "Ready"}, {"type": "ScalingReady"}],
        });
        assert_eq!(
            removal_patch(&sent, &stored),
            Some(json!({
                "scaledObjectRef": null,
                "queue": {"url": null},
                "conditions": [{"type": "Ready"}],
            }))
        );
    }
}
