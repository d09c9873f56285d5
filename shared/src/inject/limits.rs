//! Limits that quotas of a namespace require (SAFE-6).

use std::collections::BTreeSet;

use serde_json::Value;

/// Resources that every container of a model must set a limit for, because of the spec of a `ResourceQuota`. A quota
/// for pods with a deadline, such as those of Jobs, does not count models.
#[must_use]
pub fn required_limits(quota: &Value) -> BTreeSet<Box<str>> {
    if is_for_terminating(quota) {
        return BTreeSet::new();
    }
    let hard = quota.get("hard").and_then(Value::as_object);
    let names = hard.into_iter().flat_map(|hard| hard.keys());
    let limits = names.filter_map(|name| name.strip_prefix("limits."));
    limits.map(Box::from).collect()
}

fn is_for_terminating(quota: &Value) -> bool {
    let scopes = quota.get("scopes").and_then(Value::as_array);
    let expressions = quota.pointer("/scopeSelector/matchExpressions");
    let expressions = expressions.and_then(Value::as_array).into_iter().flatten();
    let mut names = expressions
        .map(|it| &it["scopeName"])
        .chain(scopes.into_iter().flatten());
    names.any(|name| name == "Terminating")
}

/// Resources for which the spec of a `LimitRange` has a default limit for containers. A maximum counts as well, because
/// it is the default if no other is set.
#[must_use]
pub fn default_limits(range: &Value) -> BTreeSet<Box<str>> {
    let items = range.get("limits").and_then(Value::as_array);
    let items = items.into_iter().flatten();
    let of_containers = items.filter(|item| item["type"] == "Container");
    let quantities = of_containers.flat_map(|item| [&item["default"], &item["max"]]);
    let names = quantities.filter_map(Value::as_object);
    let names = names.flat_map(|quantities| quantities.keys());
    names.map(|name| name.as_str().into()).collect()
}

/// Resources for which quotas of a namespace require limits that no `LimitRange` defaults.
#[must_use]
pub fn limits_to_set(
    required: impl IntoIterator<Item = BTreeSet<Box<str>>>,
    defaulted: impl IntoIterator<Item = BTreeSet<Box<str>>>,
) -> BTreeSet<Box<str>> {
    let defaulted: BTreeSet<_> = defaulted.into_iter().flatten().collect();
    let required = required.into_iter().flatten();
    required.filter(|name| !defaulted.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// SAFE-6
    #[test]
    fn limits_that_no_range_defaults_have_to_be_set() {
        let quota = json!({"hard": {"limits.memory": "4Gi", "limits.cpu": "8", "pods": "10"}});
        let scoped = |key: &str, value: serde_json::Value| {
            let mut quota = quota.clone();
            quota[key] = value;
            required_limits(&quota).len()
        };
        let selector =
            |name: &str| json!({"matchExpressions": [{"scopeName": name, "operator": "Exists"}]});
        assert_eq!(scoped("scopes", json!(["Terminating"])), 0);
        assert_eq!(scoped("scopes", json!(["NotTerminating"])), 2);
        assert_eq!(scoped("scopeSelector", selector("Terminating")), 0);
        assert_eq!(scoped("scopeSelector", selector("PriorityClass")), 2);
        let range = json!({"limits": [{"type": "Container", "default": {"memory": "1Gi"}}]});
        for (ranges, expected) in [
            (Vec::new(), vec!["cpu", "memory"]),
            (vec![&range], vec!["cpu"]),
        ] {
            let ranges = ranges.into_iter().map(default_limits);
            let found = limits_to_set([required_limits(&quota)], ranges);
            assert_eq!(found.iter().map(|it| &**it).collect::<Vec<_>>(), expected);
        }
    }
}
