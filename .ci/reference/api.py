"""The API, from the CustomResourceDefinition."""

from . import crd_yaml, markdown, source

CRD = "crds/asyncactors.yaml"

INTRODUCTION = """\
`kubectl explain asya.spec` shows the same texts. A field without a default is optional unless it is marked as required;
defaults are applied by the operator and do not appear in the stored object."""


def page():
    crd = crd_yaml.parse(source.text(CRD))
    (version,) = crd["spec"]["versions"]
    root = version["schema"]["openAPIV3Schema"]
    names = crd["spec"]["names"]
    return markdown.page(
        "API: %s %s/%s" % (names["kind"], crd["spec"]["group"], version["name"]),
        [CRD],
        markdown.prose(markdown.escaped(root["description"])),
        "Short names: %s." % ", ".join(map(markdown.code, names["shortNames"])),
        INTRODUCTION,
        *objects("spec", root["properties"]["spec"], 2),
        *objects("status", root["properties"]["status"], 2),
        "## Printed columns",
        "`kubectl get asya` prints the first ones, `--output=wide` all of them.",
        markdown.table(["Column", "Field", "Output"], columns(version)),
    )


def columns(version):
    for each in version["additionalPrinterColumns"]:
        yield [each["name"], markdown.code(each["jsonPath"].lstrip(".")), "wide" if each.get("priority") else "always"]


def objects(path, schema, level):
    """A section for this object, and one for each object within it."""
    yield "#" * level + " " + path
    yield markdown.prose(markdown.escaped(described(schema, path)))
    rows, inner = [], []
    required = schema.get("required", [])
    for name, field in sorted(schema["properties"].items()):
        text = markdown.escaped(described(field, path + "." + name))
        rows.append([markdown.code(name), type_of(field), ("Required. " if name in required else "") + text])
        within = field.get("items", field) if field["type"] == "array" else field
        if has_fields(path + "." + name, within):
            suffix = "[]" if field["type"] == "array" else ""
            inner.append((path + "." + name + suffix, {"description": field.get("description"), **within}))
    yield markdown.table(["Field", "Type", "Description"], rows)
    rules = [markdown.bullet(markdown.escaped(rule["message"])) for rule in schema.get("x-kubernetes-validations", []) if rule.get("message")]
    if rules:
        yield "Rules:"
        yield "\n".join(rules)
    for deeper, field in inner:
        yield from objects(deeper, field, 3)


def has_fields(path, schema):
    """Whether a section of its own describes this. Kubernetes documents what a claim of a container is."""
    return bool(schema.get("properties")) and not path.endswith(".claims")


def described(schema, path):
    return source.require(schema.get("description"), CRD, path)


def type_of(field):
    if "enum" in field:
        return " \\| ".join(markdown.code(value) for value in field["enum"] if value is not None).replace("\\|", "or")
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field["type"] == "array":
        return "[]" + (field.get("items", {}).get("type") or "object")
    if field["type"] == "object" and isinstance(field.get("additionalProperties"), dict):
        return "map of %s" % field["additionalProperties"].get("type", "any")
    return field.get("format") if field.get("format") in ("date-time",) else field["type"]
