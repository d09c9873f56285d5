"""Events."""

from . import markdown, rust, source

ACTORS = "controller/src/telemetry/events.rs"
PODS = "webhook/src/events.rs"

INTRODUCTION = """\
Events are best effort: writing one never delays a reconcile or a review, and repetitions within six minutes only raise
the count of the first. `kubectl get events --field-selector involvedObject.kind=AsyncActor` lists those of actors."""


def page():
    return markdown.page(
        "Events",
        [ACTORS, PODS],
        INTRODUCTION,
        "## Of asya-controller",
        markdown.table(["Reason", "Type", "Action", "Meaning"], controller()),
        "## Of asya-webhook",
        markdown.prose(
            "On the actor, and on the ReplicaSet, StatefulSet or other controller that creates the pod. The action is `Inject`; there is at most one per "
            "object, reason and minute."
        ),
        markdown.table(["Reason", "Type", "Meaning"], webhook()),
    )


def controller():
    text = source.text(ACTORS)
    names, types, actions = (rust.arms(text, function) for function in ("as_str", "type_", "action"))
    for item in rust.variants(text, "EventReason"):
        yield [markdown.code(names[item.name]), types[item.name], markdown.code(actions[item.name]), meaning(item, ACTORS)]


def webhook():
    text = source.text(PODS)
    types = rust.arms(text, "type_")
    for item in rust.variants(text, "PodEventReason"):
        yield [markdown.code(item.name), types[item.name], meaning(item, PODS)]


def meaning(item, path):
    return markdown.escaped(source.require(item.description, path, item.name))
