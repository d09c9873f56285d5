"""Events."""

from . import markdown, source

EVENTS = "docs/reference/events.json"
SOURCE = "shared/src/reason/event.rs"

INTRODUCTION = """\
Events are best effort: writing one never delays a reconcile or a review, and repetitions within six minutes only raise
the count of the first. `kubectl get events --field-selector involvedObject.kind=AsyncActor` lists those of actors."""


def page():
    events = source.schema(EVENTS)
    return markdown.page(
        "Events",
        [SOURCE],
        INTRODUCTION,
        "## Of asya-controller",
        markdown.table(["Reason", "Type", "Action", "Meaning"], map(of_controller, events["controller"])),
        "## Of asya-webhook",
        markdown.prose(
            "On the actor, and on the ReplicaSet, StatefulSet or other controller that creates the pod. The action is `Inject`; there is at most one per "
            "object, reason and minute."
        ),
        markdown.table(["Reason", "Type", "Meaning"], map(of_webhook, events["webhook"])),
    )


def of_controller(event):
    return [markdown.code(event["name"]), event["type"], markdown.code(event["action"]), markdown.escaped(event["meaning"])]


def of_webhook(event):
    return [markdown.code(event["name"]), event["type"], markdown.escaped(event["meaning"])]
