//! Comparisons of JSON values.

use serde_json::Value;

/// Decides for a desired value under this key (empty at the root and for items of lists) and the existing one, if any;
/// `None` leaves the decision to [`is_subset`].
pub type SubsetRule<'a> = &'a dyn Fn(&str, &Value, Option<&Value>) -> Option<bool>;

/// Whether `existing` contains everything in `desired`: objects may have other keys, lists have the same length. `rule`
/// says what may be absent, or written in another form.
#[must_use]
pub fn is_subset(desired: &Value, existing: &Value, rule: SubsetRule<'_>) -> bool {
    contains("", desired, Some(existing), rule)
}

fn contains(key: &str, desired: &Value, existing: Option<&Value>, rule: SubsetRule<'_>) -> bool {
    if let Some(decided) = rule(key, desired, existing) {
        return decided;
    }
    match (desired, existing) {
        (Value::Object(desired), Some(Value::Object(existing))) => desired
            .iter()
            .all(|(key, desired)| contains(key, desired, existing.get(key), rule)),
        (Value::Array(desired), Some(Value::Array(existing))) => {
            desired.len() == existing.len()
                && desired
                    .iter()
                    .zip(existing)
                    .all(|(desired, existing)| contains("", desired, Some(existing), rule))
        }
        (desired, existing) => existing == Some(desired),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn existing_value_may_have_more_keys_but_no_more_items() {
        let strict: SubsetRule<'_> = &|_, _, _| None;
        let lenient: SubsetRule<'_> = &|key, _, existing| match (key, existing) {
            ("any", _) | (_, None) => Some(true),
            _ => None,
        };
        for (desired, existing, expected) in [
            (json!({}), json!({"a": 1}), [true, true]),
            (json!({"a": 1}), json!({"a": 1, "b": 2}), [true, true]),
            (json!({"a": 1}), json!({"a": 2}), [false, false]),
            (json!({"a": 1}), json!({}), [false, true]),
            (json!({"a": null}), json!({}), [false, true]),
            (
                json!({"a": {"any": 1}}),
                json!({"a": {"any": 2}}),
                [false, true],
            ),
            (json!([{"a": 1}]), json!([{"a": 1, "b": 2}]), [true, true]),
            (json!([1]), json!([1, 2]), [false, false]),
            (json!({}), json!(null), [false, false]),
        ] {
            let actual = [strict, lenient].map(|rule| is_subset(&desired, &existing, rule));
            assert_eq!(actual, expected, "{desired} in {existing}");
        }
    }
}
