//! Fields of a status that another wrote: an apply leaves what it does not name to its owner, and the former
//! operator, which owned all of it, is gone (WRK-7).

use serde_json::{Map, Value};

/// What a merge patch must say so that `stored` becomes `sent`; `None` when it is that already.
pub(super) fn removal(sent: &Value, stored: &Value) -> Option<Value> {
    let (Value::Object(wanted), Value::Object(found)) = (sent, stored) else {
        return (sent != stored).then(|| sent.clone());
    };
    let changes = found.iter().filter_map(|(key, found)| {
        let change = match wanted.get(key) {
            None => Some(Value::Null),
            Some(wanted) => removal(wanted, found),
        };
        Some((key.clone(), change?))
    });
    let changes: Map<String, Value> = changes.collect();
    (!changes.is_empty()).then_some(Value::Object(changes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::removal;

    /// WRK-7
    #[test]
    fn exactly_what_was_not_sent_is_removed() {
        let sent =
            json!({"status": "Running", "queue": {"name": "q"}, "conditions": [{"type": "Ready"}]});
        assert_eq!(removal(&sent, &sent), None);
        let stored = json!({
            "status": "Running",
            "scaledObjectRef": {"name": "a"},
            "queue": {"name": "q", "url": "u"},
            "conditions": [{"type": "Ready"}, {"type": "ScalingReady"}],
        });
        assert_eq!(
            removal(&sent, &stored),
            Some(json!({
                "scaledObjectRef": null,
                "queue": {"url": null},
                "conditions": [{"type": "Ready"}],
            }))
        );
    }
}
