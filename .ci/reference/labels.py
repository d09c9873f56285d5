"""Labels, annotations, field managers and reserved names."""

from . import markdown, rust, source

NAMES = "shared/src/names.rs"


def page():
    text = source.text(NAMES)
    return markdown.page(
        "Labels, annotations and reserved names",
        [NAMES],
        "## Annotations to set on an AsyncActor",
        listed([it for it in rust.strings(text, "annotation") if is_for_users(it)]),
        "## Other annotations",
        listed([it for it in rust.strings(text, "annotation") if not is_for_users(it)]),
        "## Labels",
        listed(rust.strings(text, "label")),
        "## Field managers",
        "What `kubectl get --show-managed-fields` shows as owners of fields.",
        listed(rust.strings(text, "manager")),
        "## Reserved names",
        "Of the operator's own objects, and of containers, volumes and paths in actors' pods.",
        listed(rust.strings(text)),
    )


def is_for_users(item):
    return item.description.startswith("On an actor: ")


def listed(items):
    rows = []
    for item in sorted(items, key=lambda it: it.value):
        description = source.require(item.description, NAMES, item.name)
        if is_for_users(item):
            description = description[len("On an actor: ") :]
        rows.append([markdown.code(item.value), markdown.escaped(description[0].upper() + description[1:])])
    return markdown.table(["Name", "Meaning"], rows)
