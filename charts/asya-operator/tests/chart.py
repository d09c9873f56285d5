"""The base of the chart's tests."""

import json

from helm import NAME, helm

RABBITMQ = {"type": "rabbitmq", "enabled": True, "config": {"host": "rabbitmq"}}
SQS = {"type": "sqs", "enabled": True, "config": {"region": "eu-west-1"}}


def at(path, value):
    """{"a": {"b": value}} for the path a.b."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


class ChartCase:
    """What tests of the chart share; each file runs its tests with helm 3 and with helm 4."""

    major = None

    @classmethod
    def setUpClass(cls):
        cls.helm = helm(cls.major)
        cls.default = cls.helm.objects()

    def deployment(self, values=None, release=NAME, name=NAME):
        return self.helm.objects(values, release)["Deployment", name]

    def look(self, deployment, place):
        """A place of a Deployment: --flag, $ENV, or a path with dots."""
        manager = deployment["spec"]["template"]["spec"]["containers"][0]
        if place.startswith("--"):
            return dict(each.split("=", 1) for each in manager["args"]).get(place)
        if place.startswith("$"):
            return {each["name"]: each.get("value") for each in manager["env"]}.get(place[1:])
        found = deployment
        for key in place.replace("\\.", "\0").split("."):
            found = found[int(key)] if isinstance(found, list) else (found or {}).get(key.replace("\0", "."))
        return found

    def transports(self, values):
        return json.loads(self.look(self.deployment(values), "$ASYA_TRANSPORT_CONFIG"))["transports"]
