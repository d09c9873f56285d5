"""Transports: their keys, and the rights that their credentials need."""

import json
import re

from . import markdown, source
from .values import resolved

SCHEMA = "charts/asya-operator/values.schema.json"
OPERATOR = ["controller/src/broker/sqs.rs", "controller/src/broker/sqs/removal.rs"]
SIDECAR = ["sidecar/src/broker/sqs/%s.rs" % name for name in ("client", "poll", "send", "delete", "leases", "mod")]
CALL = re.compile(r"\.((?:create|get|set|list|tag|delete|receive|send|change|purge|untag|start)_\w+)\(\)")
# What KEDA's trigger aws-sqs-queue calls.
KEDA = {"sqs:GetQueueAttributes"}

INTRODUCTION = """\
A transport is an entry of the chart's value `transports`: the name that actors set in `spec.transport`, with `type`,
`enabled` and `config`. The chart and the operator reject unknown keys, and name their path."""

RABBITMQ = """\
The operator manages queues by the management API; sidecars consume and publish by AMQP, as the same user unless
`urlSecretRef` names another; KEDA reads the queue by the management API (`keda.protocol: http`), as that user, too. The
user needs the tag `management`, and these permissions in the virtual host:"""

RABBITMQ_ROWS = [
    ["operator", "`^asya`", r"`^(asya.*|amq\.default)$`", "`^asya`", "declares the exchange, the queues and their bindings, and deletes queues; `amq.default` only for dead letter queues"],
    ["sidecars", "`^$`", r"`^(asya.*|amq\.default)$`", "`^asya-`", "consume their queue and publish to the next one"],
    ["KEDA", "`^$`", "`^$`", "`^$`", "reads counts: access to the virtual host and the tag `management` suffice"],
]

RABBITMQ_NOTE = """\
For one user, combine them: `rabbitmqctl set_permissions --vhost / asya '^asya' '^(asya.*|amq\\.default)$' '^asya'`. An
`exchange` whose name does not begin with `asya`, or a `dlq.name` that does not, has to be added. Without the right to
publish to `amq.default`, sidecars publish to `exchange` instead."""

SQS = """\
The operator, the sidecars and KEDA may share one access key (`credentials`), or use one IAM role each: that of the
operator's ServiceAccount (`serviceAccount.annotations`), `actorRoleArn`, and `keda.roleArn`. Replace REGION and
ACCOUNT; a `dlq.name` that does not begin with `asya-` has to be added."""


def page():
    schema = source.schema(SCHEMA)
    definitions = schema["definitions"]
    return markdown.page(
        "Transports",
        [SCHEMA, *OPERATOR, *SIDECAR],
        INTRODUCTION,
        keys(schema, definitions["transport"]["properties"], ""),
        "References to Secrets (`…SecretRef`) contain:",
        keys(schema, definitions["secretKeyRef"]["properties"], ""),
        "## RabbitMQ",
        keys(schema, definitions["rabbitmq"]["properties"], "config."),
        "### Permissions of the RabbitMQ user",
        RABBITMQ,
        markdown.table(["Who", "Configure", "Write", "Read", "For"], RABBITMQ_ROWS),
        RABBITMQ_NOTE,
        "## SQS",
        keys(schema, definitions["sqs"]["properties"], "config."),
        "### IAM policies",
        SQS,
        "Of the operator:",
        policy(actions(OPERATOR)),
        "Of the sidecars:",
        policy(actions(SIDECAR)),
        "Of KEDA:",
        policy(KEDA),
    )


def keys(schema, properties, prefix):
    return markdown.table(["Key", "Default", "Meaning"], rows(schema, properties, prefix))


def rows(schema, properties, prefix):
    for name, declared in properties.items():
        path, found = prefix + name, resolved(schema, declared)
        description = source.require(found.get("description"), SCHEMA, path)
        yield [markdown.code(path), default(found), markdown.escaped(description)]
        if "$ref" not in declared or "Dlq" in declared["$ref"]:
            yield from rows(schema, found.get("properties", {}), path + ".")


def default(found):
    if "default" not in found:
        return ""
    value = found["default"]
    return markdown.code(value if isinstance(value, str) else json.dumps(value))


def actions(paths):
    """IAM actions of the calls in these files; the batch form of a call needs no action of its own."""
    called = {name for path in paths for name in CALL.findall(source.text(path).partition("#[cfg(test)]")[0])}
    names = {re.sub("Batch$", "", "".join(word.title() for word in name.split("_"))) for name in called}
    return {"sqs:" + name for name in names}


def policy(allowed):
    statement = {"Effect": "Allow", "Action": sorted(allowed), "Resource": "arn:aws:sqs:REGION:ACCOUNT:asya-*"}
    return "```json\n%s\n```" % json.dumps({"Version": "2012-10-17", "Statement": [statement]}, indent=2)
