"""The chart's values."""

from . import markdown, source, values_yaml

VALUES = "charts/asya-operator/values.yaml"
SCHEMA = "charts/asya-operator/values.schema.json"

INTRODUCTION = """\
The chart rejects unknown keys and values out of range, and names their path. Durations have a unit, such as 30s, 5m or
10h. What a transport's `config` contains is in [transports](transports.md)."""


def page():
    schema = source.schema(SCHEMA)
    top = values_yaml.parse(source.text(VALUES))
    single = [value for value in top if is_single(value)]
    blocks = [] if not single else ["## General", listed(single, schema)]
    for group in top:
        if not is_single(group):
            blocks += ["## " + group.path, listed(group.children, schema)]
    return markdown.page("Chart values", [VALUES, SCHEMA], INTRODUCTION, *blocks)


def is_single(value):
    return bool(value.description) or not value.children


def listed(values, schema):
    rows = []
    for value in values_yaml.rows(values, lambda each: bool(in_schema(schema, each.path))):
        description = value.description or in_schema(schema, value.path)
        source.require(description, VALUES, value.path)
        rows.append([markdown.code(value.path), markdown.code(value.default), markdown.escaped(description)])
    return markdown.table(["Value", "Default", "Meaning"], rows)


def in_schema(schema, path):
    """The description in the schema, for a value whose name says the rest."""
    at = schema
    for key in path.split("."):
        at = resolved(schema, at.get("properties", {}).get(key, {}))
    return at.get("description", "")


def resolved(schema, at):
    if "$ref" not in at:
        return at
    return {**schema["definitions"][at["$ref"].rpartition("/")[2]], **{key: value for key, value in at.items() if key != "$ref"}}
