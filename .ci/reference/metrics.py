"""Metrics of the controller, the webhook and the sidecar."""

import re
from typing import NamedTuple

from . import markdown, rust, source

CONTROLLER = ["controller/src/telemetry/metrics.rs", "controller/src/telemetry/metrics/reconcile.rs"]
WEBHOOK = ["webhook/src/metrics.rs"]
SIDECAR = "sidecar/src/metrics.rs"
LABELS = "sidecar/src/metrics/labels.rs"
CODES = "wire/src/envelope.rs"
# Where messages to error-end get their `error`.
DECISIONS = "sidecar/src/decide/intermediate_actor.rs"
TYPES = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram", "Histograms": "histogram", "Info": "info"}
SUFFIXES = {"counter": "_total", "info": "_info"}
SCRAPING = (
    "The chart scrapes no sidecars. Their pods have the label `asya.sh/actor`. Standalone pods name the port, `asya-metrics`: 8080, "
    "or another one if one of their containers declares that. Bound pods name none, because other controllers read the ports of their pods: the sidecar listens on 18080 or, if the pod uses that port, on the next free one, which "
    "`ASYA_METRICS_ADDR` in its container says. With the Prometheus Operator (no test has tried this one; its second endpoint finds sidecars on 18080 "
    "only, by IPv4):"
)
PODMONITOR = """\
```yaml
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: asya-sidecars, namespace: asya-system}
spec:
  namespaceSelector: {any: true}
  selector:
    matchExpressions: [{key: asya.sh/actor, operator: Exists}]
  podMetricsEndpoints:
    - port: asya-metrics
    - relabelings:
        - action: keep
          sourceLabels: [__meta_kubernetes_pod_container_name, __meta_kubernetes_pod_container_port_number]
          regex: asya-sidecar;
        - action: replace
          sourceLabels: [__meta_kubernetes_pod_ip]
          targetLabel: __address__
          replacement: "$1:18080"
```"""
CALL = re.compile(r"(?:(\w+)(?:: |\s*=\s*))?\b(add|register|all\.register)\(")


class Metric(NamedTuple):
    name: str
    type: str
    labels: str
    help: str


def page():
    return markdown.page(
        "Metrics",
        [*CONTROLLER, *WEBHOOK, SIDECAR, LABELS, CODES, DECISIONS],
        markdown.prose("In the OpenMetrics text format at `/metrics`. [Runbooks](../runbooks.md) say what to do about the chart's alerts on them."),
        "## Of asya-controller",
        markdown.prose(
            "Port `metrics.port`; every replica has its own, and only the leader reconciles. Those named `controller_runtime_` and `workqueue_`, as in "
            'other controllers, have the label `controller="asyncactor"`.'
        ),
        listed(metric for path in CONTROLLER for metric in of_operator(path)),
        "## Of asya-webhook",
        "Port `health.port` of the webhook's pods.",
        listed(metric for path in WEBHOOK for metric in of_operator(path)),
        "## Of asya-sidecar",
        markdown.prose("Address `ASYA_METRICS_ADDR`; the prefix `asya_actor` is `ASYA_METRICS_NAMESPACE`. Label `queue` is the actor's name, as in the former sidecar."),
        markdown.prose(SCRAPING),
        PODMONITOR,
        listed(of_sidecar()),
        "### Codes of errors",
        markdown.prose(
            "Values of label `reason` of `asya_actor_messages_failed_total`. In messages to error-end, `error` is the code only where the table says so. Otherwise it is "
            "a sentence, such as `Runtime timeout exceeded after 5m0s` or `Failed to parse message: …`, as in the former sidecar, or what the runtime answered, such as "
            "`processing_error` for an exception of the handler."
        ),
        markdown.table(["Code", "Also `error`", "Meaning"], codes()),
    )


def codes():
    errors = set(re.findall(r"(?:\bcoded\(\w+, |\btext: )code::(\w+)", source.text(DECISIONS)))
    for item in rust.strings(source.text(CODES), "code"):
        meaning = markdown.escaped(source.require(item.description, CODES, item.name))
        yield [markdown.code(item.value), "yes" if item.name in errors else "", meaning]


def listed(metrics):
    rows = ([markdown.code(it.name), it.type, markdown.escaped(meaning(it))] for it in sorted(metrics))
    return markdown.table(["Metric", "Type", "Meaning and labels"], rows)


def meaning(metric):
    return "%s Labels: %s" % (metric.help, sentence(metric.labels)) if metric.labels else metric.help


def calls(text):
    """Each registration: the field or variable on its left, and its arguments; variables are replaced by their texts."""
    for match in CALL.finditer(text):
        # The last one before the call, because a name may be used several times.
        variables = dict(re.findall(r'let (\w+) =\s*"([^"]*)";', text[: match.start()]))
        given = arguments(text, match.end())
        yield match.group(1), [variables.get(each, each.strip('"')) for each in given]


def arguments(text, start):
    """The arguments of a call, from behind its opening parenthesis."""
    depth, at, found, quoted = 0, start, [""], False
    while depth >= 0:
        char = text[at]
        quoted ^= char == '"' and text[at - 1] != "\\"
        if not quoted:
            depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth and not quoted:
            found.append("")
        elif depth >= 0:
            found[-1] += char
        at += 1
    return [re.sub(r"\\\n\s*", "", each.strip()) for each in found if each.strip()]


def fields(text, struct):
    """Type and doc comment of each field of a structure."""
    pattern = re.compile(r"(?:pub )?(\w+): (.*),$")
    lines = rust.body(text, r"(?:pub(?:\(super\))? )?struct %s " % struct).splitlines()
    return {match.group(1): (match.group(2), comment) for match, comment in rust.declarations(lines, pattern)}


def type_of(declared):
    """`counter` of `Family<Labels<1>, Counter>`."""
    return next(TYPES[word] for word in re.findall(r"\w+", declared) if word in TYPES)


def of_operator(path):
    """Metrics that `add` and `register` of asya-process register; labels are in the fields' doc comments."""
    text = source.text(path)
    known = {}
    for struct in re.findall(r"struct (\w*Metrics) \{", text):
        known.update(fields(text, struct))
    for left, given in calls(text):
        if len(given) < 3 or not re.fullmatch(r"[a-z_]+", given[1]):
            continue
        field = left if left in known else given[-1]
        declared, comment = known[field]
        kind = type_of(declared)
        name = prefix(text, given[0]) + given[1] + SUFFIXES.get(kind, "")
        labels = " ".join(each[len("Labels: ") :] for each in comment if each.startswith("Labels: "))
        if "Family" in declared:
            source.require(labels, path, "field %s without a paragraph `Labels: `, whose labels" % field)
        yield Metric(name, kind, labels, sentence(source.require(given[2], path, name)))


def prefix(text, registry):
    """The prefix of a registry, which is a variable or made on the spot."""
    made = re.search(r'let %s = (.*?);' % re.escape(registry), text) if re.fullmatch(r"\w+", registry) else None
    found = re.search(r'sub_registry_with_prefix\("(\w+)"\)', made.group(1) if made else registry)
    return found.group(1) + "_" if found else ""


def of_sidecar():
    text, labels = source.text(SIDECAR), source.text(LABELS)
    known = {**fields(text, "Metrics"), **fields(text, "BrokerMetrics")}
    for _, given in calls(text):
        if len(given) < 3:
            continue
        field = re.sub(r"^(self|broker|self\.broker)\.|\.clone\(\)$", "", given[2]).rpartition(".")[2]
        declared = known[field][0] if field in known else "Info"
        kind = type_of(declared)
        name = "asya_actor_" + given[0] + SUFFIXES.get(kind, "")
        struct = re.search(r"<(\w+)[,>]", declared)
        described = of_labels(labels, struct.group(1)) if struct and struct.group(1) not in ("f64",) else ""
        yield Metric(name, kind, described or ("`version`" if kind == "info" else ""), sentence(source.require(given[1], SIDECAR, name)))


def of_labels(text, struct):
    """The labels of a structure that derives EncodeLabelSet, with their meanings."""
    found = []
    for name, (_, comment) in fields(text, struct).items():
        meaning = source.require(comment[0] if comment else "", LABELS, "%s.%s" % (struct, name)).rstrip(".")
        found.append("`%s`: %s" % (name, meaning[0].lower() + meaning[1:]))
    return "; ".join(found)


def sentence(text):
    return text if text.endswith(".") else text + "."
