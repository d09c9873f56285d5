"""Alerts: when each fires, by Prometheus's own engine, and whether the names that they use exist in the source."""

import json
import pathlib
import re
import subprocess
import tempfile
import unittest

from helm import CHART, TESTS

ROOT = CHART.parent.parent
ALERTS = (CHART / "alerts.yaml").read_text()

# Statuses of actors that nobody has to look at. Any other must fire AsyaActorsFailing, one that is added later included.
WELL = {"Creating", "Running", "Napping", "Updating", "ScalingUp", "ScalingDown", "Terminating"}
# Labels whose values other software chooses.
NOT_OURS = {"name", "error_type"}
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
# Two humps at least: InjectionNotProved, but not Prometheus.
NAME = re.compile(r"\b[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]+)+\b")
# Names of Kubernetes and Prometheus in summaries and descriptions.
OTHERS = {"AsyncActors"}


def source(path):
    return (ROOT / path).read_text()


def names(words):
    """The names of words that users see, as `asya-crds` writes them to docs/reference/."""
    return {word["name"] for word in words}


def reference(file):
    return json.loads(source("docs/reference/" + file))


def texts(path, function):
    """The texts that a function of the Rust source answers or writes."""
    body = re.search(r"fn %s\b.*?\n    \}\n" % function, source(path), re.DOTALL).group(0)
    return set(re.findall(r'"([\w ]+)"', body))


STATES = names(reference("states.json"))
REASONS = names(reference("reasons.json"))
EVENTS = names(reference("events.json")["controller"])

# Every label that an expression may select by, and the values that it has.
VALUES = {
    "status": STATES,
    "reason": REASONS | names(reference("reviews.json")["others"]),
    "state": texts("controller/src/telemetry/metrics.rs", "bound_pods"),
    "result": texts("webhook/src/outcome.rs", "as_str"),
    "controller": {re.search(r'const CONTROLLER: &str = "(\w+)"', source("controller/src/telemetry/metrics.rs")).group(1)},
}


def alternatives(operator, value):
    """What a matcher names: a regular expression's alternatives, each by itself."""
    if operator in ("=", "!="):
        return [re.escape(value)]
    if "(" in value:
        raise AssertionError("%r: write alternatives without groups, so that each can be looked up" % value)
    return value.split("|")


def unknown(expression, values):
    """What an expression selects by and does not exist."""
    for label, operator, value in MATCHER.findall(expression):
        if label in NOT_OURS:
            continue
        if label not in values:
            yield "label %s: say in VALUES where its values are in the source" % label
            continue
        for each in alternatives(operator, value):
            if not any(re.fullmatch(each, known) for known in values[label]):
                yield "%s=%r" % (label, each)


def run_cases(*cases):
    """What Prometheus's engine says of cases.yaml and these."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "cases.json")
        file.write_text(json.dumps(cases))
        program = ["go", "run", ".", str(CHART / "alerts.yaml"), "cases.yaml", str(file)]
        return subprocess.run(program, cwd=TESTS / "alerts", capture_output=True, text=True, stdin=subprocess.DEVNULL)


def of_status(status, fires):
    series = {'asya_operator_actors{transport="sqs",status="%s"}' % status: "1x20"}
    return {"alert": "AsyaActorsFailing", "series": series, "at": "15m", "fires": [{"status": status}] if fires else []}


def of_pods(state):
    series = {'asya_operator_bound_pods{namespace="a",actor="b",state="%s"}' % state: "1x40"}
    fires = [{"namespace": "a", "actor": "b"}] if state == "not_injected" else []
    return {"alert": "AsyaPodsNotInjected", "series": series, "at": "30m", "fires": fires}


class Alerts(unittest.TestCase):
    def test_each_alert_fires_when_it_should_and_only_then(self):
        """OBS-3, OPS-20"""
        self.assertLessEqual(WELL, STATES)
        cases = [of_status(status, status not in WELL) for status in sorted(STATES)]
        cases += [of_pods(state) for state in sorted(VALUES["state"])]
        answer = run_cases(*cases)
        self.assertEqual((answer.returncode, answer.stdout), (0, ""), answer.stdout + answer.stderr)

    def test_expressions_select_only_by_values_that_exist(self):
        """OPS-20"""
        for label, known in VALUES.items():
            self.assertTrue(known, label)
        expressions = re.findall(r"^ +expr: (.*)$", ALERTS, re.MULTILINE)
        self.assertEqual(len(expressions), ALERTS.count("- alert: "))
        self.assertEqual([wrong for each in expressions for wrong in unknown(each, VALUES)], [])

    def test_texts_name_only_what_exists(self):
        """OPS-20"""
        shown = re.findall(r"^ +(?:summary|description): (.*)$", ALERTS, re.MULTILINE)
        named = set(NAME.findall(" ".join(shown)))
        self.assertEqual(named - STATES - REASONS - EVENTS - OTHERS, set())

    def test_value_that_does_not_exist_is_noticed(self):
        values = {"status": {"Running", "ConfigError"}}
        for expression, wrong in (
            ('actors{status=~".*Error|Running"} > 0', []),
            ('actors{status=~".*Error|LackOfResources"} > 0', ["status='LackOfResources'"]),
            ('actors{status="Lost"} > 0', ["status='Lost'"]),
            ('actors{colour="red"} > 0', ["label colour: say in VALUES where its values are in the source"]),
            ('actors{error_type!="no_error"} > 0', []),
        ):
            self.assertEqual(list(unknown(expression, values)), wrong, expression)


if __name__ == "__main__":
    unittest.main()
