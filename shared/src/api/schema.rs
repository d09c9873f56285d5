//! Schemas of what passes through unchanged: fields of a newer API server must not be pruned, and quantities may be
//! numbers or strings.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Pattern of a quantity in Kubernetes' own schemas.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Removes the description of an enum: in `kubectl explain` it would replace that of the field.
pub(super) fn without_description(schema: &mut Schema) {
    schema.remove("description");
}

/// An object that keeps every field.
pub(super) fn object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The same, where the field may be absent.
pub(super) fn optional_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of such objects, of which StatefulSets have few. The limit keeps the cost of comparing two lists in CEL
/// within the API server's budget.
pub(super) fn optional_objects(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 32,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
    })
}

/// An environment variable.
pub(super) fn env_var() -> Schema {
    json_schema!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {
                "type": "string",
                "maxLength": 1024,
                "description": "Name of the variable."
            },
            "value": {
                "type": "string",
                "nullable": true,
                "description": "Its value. `$(OTHER)` is replaced by an earlier variable of the container."
            },
            "valueFrom": {
                "type": "object",
                "nullable": true,
                "x-kubernetes-preserve-unknown-fields": true,
                "description": "Where its value comes from: secretKeyRef, configMapKeyRef, fieldRef or \
                                resourceFieldRef, as in a pod."
            }
        },
        "x-kubernetes-preserve-unknown-fields": true
    })
}

/// Resource requirements of a container.
pub(super) fn resources() -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "requests": {
                "type": "object",
                "nullable": true,
                "description": "What a node must have free for the container, for example cpu: 50m.",
                "additionalProperties": {"x-kubernetes-int-or-string": true, "pattern": QUANTITY}
            },
            "limits": {
                "type": "object",
                "nullable": true,
                "description": "What the container can use at most, for example memory: 256Mi.",
                "additionalProperties": {"x-kubernetes-int-or-string": true, "pattern": QUANTITY}
            },
            "claims": {
                "type": "array",
                "nullable": true,
                "description": "Names of the pod's resource claims that the container uses.",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"type": "string"}, "request": {"type": "string"}},
                    "x-kubernetes-preserve-unknown-fields": true
                }
            }
        },
        "x-kubernetes-preserve-unknown-fields": true
    })
}
