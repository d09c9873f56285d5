//! Checks an object against the structural schema of the CRD, as the API server does before it evaluates rules. Unknown
//! fields are violations, as with `kubectl apply`.

use asya_shared::quantity::Quantity;
use serde_json::Value;

/// Names less similar than this do not count as misspellings of each other.
const ALIKE: f64 = 0.75;

/// A field that violates the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaViolation {
    pub path: String,
    pub problem: String,
}

/// All violations in `value`.
pub fn violations(schema: &Value, value: &Value, path: &str) -> Vec<SchemaViolation> {
    let mut found = Vec::new();
    check(schema, value, path, &mut found);
    found
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<SchemaViolation>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let problem = type_problem(schema, value).or_else(|| limit_problem(schema, value));
    if let Some(problem) = problem {
        found.push(SchemaViolation {
            path: path.to_owned(),
            problem,
        });
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                check_field(schema, name, field, path, found);
            }
            check_required(schema, value, path, found);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn check_field(
    schema: &Value,
    name: &str,
    field: &Value,
    path: &str,
    found: &mut Vec<SchemaViolation>,
) {
    let at = child(path, name);
    if let Some(known) = schema["properties"].get(name) {
        check(known, field, &at, found);
    } else if schema["additionalProperties"].is_object() {
        check(&schema["additionalProperties"], field, &at, found);
    } else if is_closed(schema) {
        found.push(SchemaViolation {
            problem: unknown_field(schema, name),
            path: at,
        });
    }
}

/// Whether the API server drops fields that the schema does not name.
fn is_closed(schema: &Value) -> bool {
    let keeps_unknown = schema["x-kubernetes-preserve-unknown-fields"] == true;
    schema["properties"].is_object() && !keeps_unknown && schema["additionalProperties"] != true
}

fn check_required(schema: &Value, value: &Value, path: &str, found: &mut Vec<SchemaViolation>) {
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required.filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(SchemaViolation {
                path: child(path, name),
                problem: "is required".to_owned(),
            });
        }
    }
}

fn unknown_field(schema: &Value, name: &str) -> String {
    let known = schema["properties"].as_object().into_iter().flatten();
    let alike = known.map(|(known, _)| (strsim::jaro_winkler(known, name), known));
    let best = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
    match best.filter(|(likeness, _)| *likeness >= ALIKE) {
        Some((_, known)) => format!("unknown field; did you mean {known}?"),
        None => "unknown field".to_owned(),
    }
}

fn type_problem(schema: &Value, value: &Value) -> Option<String> {
    if schema["x-kubernetes-int-or-string"] == true {
        let fits = value.is_i64() || value.is_string();
        return (!fits).then(|| format!("must be an integer or a string, not {}", kind_of(value)));
    }
    let expected = schema["type"].as_str()?;
    let fits = match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    };
    (!fits).then(|| format!("must be of type {expected}, not {}", kind_of(value)))
}

fn limit_problem(schema: &Value, value: &Value) -> Option<String> {
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<String> = allowed
            .iter()
            .filter(|it| !it.is_null())
            .map(plain)
            .collect();
        return Some(format!(
            "unknown value {}; use {}",
            plain(value),
            allowed.join(", ")
        ));
    }
    // The only patterns in the CRD are those of quantities.
    if let (Some(text), true) = (value.as_str(), schema["pattern"].is_string())
        && Quantity::parse(text).is_none()
    {
        return Some(format!(
            "{text} is not a quantity; use a value such as 100m or 64Mi"
        ));
    }
    let length = value.as_str().map(|it| it.chars().count());
    let length = length.or_else(|| value.as_array().map(Vec::len));
    for (limit, unit) in [("maxLength", "characters"), ("maxItems", "items")] {
        if let (Some(length), Some(most)) = (length, schema[limit].as_u64())
            && length as u64 > most
        {
            return Some(format!("may have at most {most} {unit}, has {length}"));
        }
    }
    let is_int32 = schema["format"] == "int32";
    let fits = value
        .as_i64()
        .is_none_or(|number| i32::try_from(number).is_ok());
    (is_int32 && !fits).then(|| "does not fit into 32 bits".to_owned())
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_spec(spec: &Value) -> Vec<String> {
        let schema = asya_crds::evaluable_schema().unwrap();
        let found = violations(&schema["properties"]["spec"], spec, "spec");
        found
            .into_iter()
            .map(|it| format!("{}: {}", it.path, it.problem))
            .collect()
    }

    #[test]
    fn misspelled_and_mistyped_fields_are_found() {
        let found = of_spec(&json!({
            "transport": 5,
            "scalling": {"enabled": true},
            "scaling": {"minReplicas": "1", "maxReplica": 2},
            "workload": {"kind": "DaemonSet", "template": {"anything": {"goes": []}}},
            "sidecar": {"resources": {"limits": {"cpu": "much", "memory": 1}}},
            "deletionPolicy": null,
        }));
        assert_eq!(
            found,
            [
                "spec.scaling.maxReplica: unknown field; did you mean maxReplicas?",
                "spec.scaling.minReplicas: must be of type integer, not string",
                "spec.scalling: unknown field; did you mean scaling?",
                "spec.sidecar.resources.limits.cpu: much is not a quantity; use a value such as 100m or 64Mi",
                "spec.transport: must be of type string, not number",
                "spec.workload.kind: unknown value DaemonSet; use Deployment, StatefulSet",
            ]
        );
    }

    /// A real API server accepts the objects of the corpus, or rejects them by a rule rather than the schema.
    #[test]
    fn every_accepted_object_of_the_corpus_fits() {
        let schema = asya_crds::evaluable_schema().unwrap();
        let cases = asya_crds::corpus::cases().unwrap();
        for case in cases.iter().filter(|it| it.refusal.is_none()) {
            let spec = &case.new["spec"];
            assert_eq!(
                violations(&schema["properties"]["spec"], spec, "spec"),
                [],
                "{spec}"
            );
        }
    }
}
