"""The dashboard, as Grafana reads it: fields and types of its schema, places of the panels, and metrics that exist."""

import json
import re
import unittest

from helm import CHART

DASHBOARD = json.loads((CHART / "dashboard.json").read_text())
ALERTS = (CHART / "alerts.yaml").read_text()
METRICS = (CHART.parent.parent / "docs/reference/metrics.md").read_text()

# The part of @grafana/schema 13 (Dashboard, Panel, RowPanel, GraphFieldConfig) that the dashboard uses: a list stands for its items' type, a set for the
# values that are allowed.
TARGET = {"refId": str, "expr": str, "legendFormat": str}
FIELDS = {"defaults": {"unit": str, "custom": {"stacking": {"mode": {"none", "normal", "percent"}}, "fillOpacity": int}}, "overrides": [dict]}
GRID = {"h": int, "w": int, "x": int, "y": int}
COMMON = {"id": int, "type": {"row", "stat", "timeseries"}, "title": str, "gridPos": GRID}
ROW = {**COMMON, "collapsed": bool, "panels": [dict]}
PANEL = {**COMMON, "description": str, "datasource": {"type": str, "uid": str}, "fieldConfig": FIELDS, "targets": [TARGET]}
SCHEMA = {
    "uid": str,
    "title": str,
    "tags": [str],
    "schemaVersion": int,
    "editable": bool,
    "refresh": str,
    "time": {"from": str, "to": str},
    "templating": {"list": [{"name": str, "type": {"datasource"}, "query": str, "label": str}]},
    "panels": [dict],
}
COLUMNS = 24
UNITS = {"short", "s", "bytes", "bool_yes_no", "percentunit", "ops", "reqps", "wps"}


def wrong(value, schema, path):
    """What does not fit."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            yield "%s is no object" % path
            return
        for key in value:
            if key not in schema:
                yield "%s.%s is not known" % (path, key)
            else:
                yield from wrong(value[key], schema[key], "%s.%s" % (path, key))
    elif isinstance(schema, list):
        if not isinstance(value, list):
            yield "%s is no list" % path
            return
        for number, item in enumerate(value):
            yield from wrong(item, schema[0], "%s[%d]" % (path, number))
    elif isinstance(schema, set):
        if value not in schema:
            yield "%s is %r" % (path, value)
    elif type(value) is not schema:
        yield "%s is %r" % (path, value)


def cells(panel):
    at = panel["gridPos"]
    return {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}


class Dashboard(unittest.TestCase):
    def test_fields_and_types_are_those_of_the_schema(self):
        found = list(wrong(DASHBOARD, SCHEMA, "dashboard"))
        for number, panel in enumerate(DASHBOARD["panels"]):
            found += wrong(panel, ROW if panel["type"] == "row" else PANEL, "panels[%d]" % number)
        self.assertEqual(found, [])

    def test_misspelt_and_mistyped_fields_are_noticed(self):
        panel = {"id": "1", "type": "graph", "title": "a", "gridPos": {"h": 1, "z": 2}, "targets": {}}
        wanted = ["p.id is '1'", "p.type is 'graph'", "p.gridPos.z is not known", "p.targets is no list"]
        self.assertEqual(list(wrong(panel, PANEL, "p")), wanted)

    def test_panels_lie_side_by_side_within_the_grid(self):
        taken = set()
        for panel in DASHBOARD["panels"]:
            place = cells(panel)
            self.assertFalse(place & taken, panel["title"])
            self.assertLess(max(x for x, _ in place), COLUMNS, panel["title"])
            taken |= place

    def test_each_query_of_a_panel_has_a_name_of_its_own(self):
        for panel in DASHBOARD["panels"]:
            names = [target["refId"] for target in panel.get("targets", [])]
            self.assertEqual(len(set(names)), len(names), panel["title"])

    def test_units_are_those_of_grafana(self):
        units = {panel["fieldConfig"]["defaults"].get("unit", "short") for panel in DASHBOARD["panels"] if "fieldConfig" in panel}
        self.assertLessEqual(units, UNITS)

    def test_what_every_replica_reports_is_not_added_up(self):
        """OPS-29"""
        expressions = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
        expressions += re.findall(r"^ +expr: (.*)$", ALERTS, re.MULTILINE)
        names = "actors|bound_pods|conflicts_total|queue_messages|rollout_halted|undecodable_objects|unproved_bindings"
        uses, added = 0, []
        for expression in expressions:
            for use in re.finditer(r"asya_operator_(?:%s)\b" % names, expression):
                uses += 1
                before = re.sub(r"increase\($", "", expression[: use.start()])
                if not re.search(r"\bmax(?: by \([\w, ]+\))? ?\($", before):
                    added.append(expression)
        self.assertGreater(uses, 10)
        self.assertEqual(added, [])

    def test_queries_ask_for_metrics_that_exist(self):
        queries = " ".join(target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", []))
        names = set(re.findall(r"\b(?:asya|controller_runtime|workqueue)_\w+", queries))
        self.assertGreater(len(names), 15)
        unknown = [name for name in sorted(names) if "| `%s` |" % re.sub("_(bucket|sum|count)$", "", name) not in METRICS]
        self.assertEqual(unknown, [])


if __name__ == "__main__":
    unittest.main()
