"""Conditions and their reasons, the values of STATUS, and the reasons why a pod has no sidecar or a review its result."""

import re

from . import markdown, rust, source

REASONS = "docs/reference/reasons.json"
REASONS_SOURCE = "shared/src/reason.rs"
TYPES = "controller/src/reconcile/model/condition_types.rs"
STATES = "shared/src/api/status.rs"
PODS = "shared/src/inject/bound/missing.rs"
INJECTION = "shared/src/inject/bound/decision.rs"
OUTCOME = "webhook/src/outcome.rs"

INTRODUCTION = """\
`kubectl describe asya NAME` shows an actor's conditions. The message of a condition names the object concerned and the
way out; this page explains the reasons in general. `Ready` is True if all other conditions except `Conflict` are True;
otherwise it has the reason and message of the first that is not."""


def page():
    return markdown.page(
        "Conditions, reasons and status",
        [REASONS_SOURCE, TYPES, STATES, PODS, INJECTION, OUTCOME],
        INTRODUCTION,
        "## Values of STATUS",
        described(rust.variants(source.text(STATES), "State"), STATES, "STATUS"),
        "## Condition types",
        described([it._replace(name=it.value) for it in rust.strings(source.text(TYPES))], TYPES, "Type"),
        *reasons(),
        "## Pods without the sidecar",
        markdown.prose("Reasons in `status.pods.reasons` of a binding that only the controller reports; the others are those of the reviews below."),
        described(not_injected(), PODS, "Reason"),
        "## Reviews of pods",
        "Label `reason` of `asya_webhook_reviews_total`, and the value of annotation `asya.sh/not-injected`.",
        described(named(INJECTION, "InjectionReason", "as_str"), INJECTION, "Reason"),
        "## Other reviews",
        "Label `reason` of `asya_webhook_reviews_total` for reviews that do not reach a decision about a pod.",
        described(named(OUTCOME, "ReviewReason", "label"), OUTCOME, "Reason"),
    )


def reasons():
    """A heading for each type of condition, one for each of its reasons, and below it cause and remedy."""
    heading = None
    for reason in source.schema(REASONS):
        group = reason["condition"] or "any condition"
        if group != heading:
            heading = group
            yield "## Reasons of %s" % group
        yield "### " + reason["name"]
        yield markdown.prose(markdown.escaped(reason["cause"]))
        if reason["remedy"]:
            yield markdown.prose("**Remedy:** " + markdown.escaped(reason["remedy"]))


def not_injected():
    """Reasons that the webhook does not leave on pods."""
    return [it._replace(name=it.value) for it in rust.strings(source.text(PODS))]


def named(path, enum, function):
    """Variants by the names that users see; a variant without a name of its own stands for another enum."""
    text = source.text(path)
    names = rust.arms(rust.body(text, "impl %s " % enum), function)
    items = rust.variants(text, enum)
    return [it._replace(name=names[it.name]) for it in items if it.name in names]


def meaning(item, path):
    """Without the number of the row in the specification's table."""
    text = re.sub(r"^Row \d+: ", "", source.require(item.description, path, item.name))
    return text[0].upper() + text[1:]


def described(items, path, title):
    rows = ([markdown.code(it.name), markdown.escaped(meaning(it, path))] for it in items)
    return markdown.table([title, "Meaning"], rows)
