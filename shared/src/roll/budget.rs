//! Disruption budgets.

use serde_json::Value;

use crate::resolve::Selector;

/// Name of a `PodDisruptionBudget` that allows no disruption of this pod, both as JSON. A budget without a selector
/// selects no pods; one with an empty selector selects all pods of the namespace (policy/v1).
#[must_use]
pub fn exhausted_budget<'a>(
    budgets: impl IntoIterator<Item = &'a Value>,
    pod: &Value,
) -> Option<&'a str> {
    let label = |key: &str| pod["metadata"]["labels"][key].as_str();
    let selects_pod = |budget: &Value| {
        let selector = budget.pointer("/spec/selector").filter(|it| !it.is_null());
        let selector = selector.and_then(|it| Selector::from_json(it).ok());
        selector.is_some_and(|it| it.matches(&label))
    };
    let exhausted = budgets
        .into_iter()
        .find(|it| it["status"]["disruptionsAllowed"] == 0 && selects_pod(it));
    exhausted?["metadata"]["name"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// SAFE-17
    #[test]
    fn budget_holds_up_only_pods_that_it_selects() {
        let phi = json!({"matchLabels": {"app": "phi"}});
        let other = json!({"matchLabels": {"app": "other"}});
        let pod = json!({"metadata": {"labels": {"app": "phi"}}});
        for (case, selector, allowed, is_exhausted) in [
            ("no disruption", &phi, json!(0), true),
            ("one disruption", &phi, json!(1), false),
            ("other pods", &other, json!(0), false),
            ("empty selector", &json!({}), json!(0), true),
            ("no selector", &Value::Null, json!(0), false),
            ("not computed yet", &phi, Value::Null, false),
        ] {
            let budget = json!({
                "metadata": {"name": "budget"}, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed},
            });
            let found = exhausted_budget([&budget], &pod);
            assert_eq!(found.is_some(), is_exhausted, "{case}");
        }
    }
}
