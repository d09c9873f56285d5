"""Alerts, dashboard and scraping."""

import json
import re
import unittest

from chart import ChartCase, at
from helm import CHART, NAME

ROOT = CHART.parent.parent
RUNBOOKS = ROOT / "docs" / "runbooks.md"


class Monitoring(ChartCase):
    def rules(self, values=None, **rule):
        values = {"webhook": {"enabled": True}, **(values or {}), **at("metrics.prometheusRule", {"enabled": True, **rule})}
        groups = self.helm.objects(values)["PrometheusRule", NAME]["spec"]["groups"]
        return {rule["alert"]: rule for group in groups for rule in group["rules"]}

    def test_each_alert_says_what_is_wrong_and_has_a_runbook(self):
        """OBS-3"""
        sections = set(re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE))
        rules = self.rules(runbooks="https://wiki/asya")
        self.assertEqual(set(rules), sections)
        for name, rule in rules.items():
            self.assertEqual(rule["annotations"]["runbook_url"], "https://wiki/asya#" + name.lower())
            self.assertTrue(rule["annotations"]["summary"] and rule["annotations"]["description"], name)
            self.assertIn(rule["labels"]["severity"], ("warning", "critical"))

    def test_alerts_are_the_tested_ones(self):
        written = self.helm.parse((CHART / "alerts.yaml").read_text())[0]
        wanted = {rule["alert"]: (rule["expr"], rule.get("for")) for group in written["groups"] for rule in group["rules"]}
        self.assertEqual({name: (rule["expr"], rule.get("for")) for name, rule in self.rules().items()}, wanted)

    def test_labels_can_be_given(self):
        """OPS-11"""
        values = {"enabled": True, "labels": {"release": "prometheus"}}
        rule = self.helm.objects(at("metrics.prometheusRule", values))["PrometheusRule", NAME]
        self.assertEqual(rule["metadata"]["labels"]["release"], "prometheus")

    def test_no_alert_links_to_a_page_that_a_browser_cannot_open(self):
        """OPS-21"""
        for runbooks in ({}, {"runbooks": ""}, {"runbooks": "docs/runbooks.md"}):
            for name, rule in self.rules(**runbooks).items():
                self.assertNotIn("runbook_url", rule["annotations"], name)

    def test_alerts_about_the_webhook_come_with_it(self):
        self.assertFalse([name for name in self.rules({"webhook": {"enabled": False}}) if "Webhook" in name])

    def test_nothing_of_prometheus_or_grafana_is_made_unasked(self):
        self.assertFalse({kind for kind, _ in self.default} & {"PrometheusRule", "ServiceMonitor"})
        self.assertNotIn(("ConfigMap", NAME + "-dashboard"), self.default)

    def test_dashboard_is_found_by_its_label_and_asks_the_chosen_data_source(self):
        """OBS-3"""
        values = {"enabled": True, "labels": {"grafana_dashboard": "yes"}}
        found = self.helm.objects(at("metrics.dashboard", values))["ConfigMap", NAME + "-dashboard"]
        self.assertEqual(found["metadata"]["labels"]["grafana_dashboard"], "yes")
        dashboard = json.loads(found["data"]["asya-operator.json"])
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        self.assertEqual(len({panel["id"] for panel in dashboard["panels"]}), len(dashboard["panels"]))
        for panel in panels:
            self.assertEqual(panel["datasource"]["uid"], "${datasource}")
            self.assertTrue(all(target["expr"] for target in panel["targets"]), panel["title"])

    def test_webhook_is_scraped_by_its_own_service(self):
        objects = self.helm.objects({"webhook": {"enabled": True}, **at("metrics.serviceMonitor.enabled", True)})
        monitor, service = (objects[kind, NAME + "-webhook"] for kind in ("ServiceMonitor", "Service"))
        self.assertTrue(monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items())
        (endpoint,) = monitor["spec"]["endpoints"]
        self.assertIn(endpoint["port"], {port["name"] for port in service["spec"]["ports"]})

    def test_series_of_an_actor_keep_the_actors_namespace(self):
        """OBS-3: alerts and dashboard group by label `namespace`, which Prometheus would replace by the operator's."""
        monitor = self.helm.objects(at("metrics.serviceMonitor.enabled", True))["ServiceMonitor", NAME + "-metrics"]
        self.assertEqual([endpoint["honorLabels"] for endpoint in monitor["spec"]["endpoints"]], [True])


class WithHelm3(Monitoring, unittest.TestCase):
    major = 3


class WithHelm4(Monitoring, unittest.TestCase):
    major = 4


if __name__ == "__main__":
    unittest.main()
