"""Conditions and their reasons, the values of STATUS, and the reasons why a pod has no sidecar or a review its result."""

from . import markdown, rust, source

REASONS = "docs/reference/reasons.json"
REASONS_SOURCE = "shared/src/reason.rs"
STATES = "docs/reference/states.json"
STATES_SOURCE = "shared/src/api/status.rs"
REVIEWS = "docs/reference/reviews.json"
REVIEWS_SOURCES = ["shared/src/reason/injection.rs", "shared/src/reason/review.rs"]
TYPES = "controller/src/reconcile/model/condition_types.rs"

INTRODUCTION = """\
`kubectl describe asya NAME` shows an actor's conditions. The message of a condition names the object concerned and the
way out; this page explains the reasons in general. `Ready` is True if all other conditions except `Conflict` are True;
otherwise it has the reason and message of the first that is not."""


def page():
    reviews = source.schema(REVIEWS)
    return markdown.page(
        "Conditions, reasons and status",
        [REASONS_SOURCE, TYPES, STATES_SOURCE, *REVIEWS_SOURCES],
        INTRODUCTION,
        "## Values of STATUS",
        explained("STATUS", source.schema(STATES)),
        "## Condition types",
        markdown.table(["Type", "Meaning"], types()),
        *reasons(),
        "## Pods without the sidecar",
        markdown.prose(
            "Reasons in `status.pods.reasons` of a binding that only the controller reports; the others are those of the reviews below. "
            "`StartedBeforeBinding` also stands for pods with the sidecar of another actor."
        ),
        explained("Reason", reviews["missing"]),
        "## Reviews of pods",
        "Label `reason` of `asya_webhook_reviews_total`, and the value of annotation `asya.sh/not-injected`.",
        explained("Reason", reviews["pods"]),
        "## Other reviews",
        "Label `reason` of `asya_webhook_reviews_total` for reviews that do not reach a decision about a pod.",
        markdown.table(["Reason", "Meaning"], meanings(reviews["others"])),
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
        yield markdown.prose(markdown.escaped(reason["meaning"]))
        if reason["remedy"]:
            yield markdown.prose("**Remedy:** " + markdown.escaped(reason["remedy"]))


def types():
    for item in rust.strings(source.text(TYPES)):
        yield [markdown.code(item.value), markdown.escaped(source.require(item.description, TYPES, item.name))]


def meanings(words):
    for word in words:
        yield [markdown.code(word["name"]), markdown.escaped(word["meaning"])]


def explained(title, words):
    """A table of words that users see, each with its meaning and what to do about it."""
    rows = ([*row, markdown.escaped(word["remedy"] or "")] for word, row in zip(words, meanings(words)))
    return markdown.table([title, "Meaning", "Remedy"], rows)
