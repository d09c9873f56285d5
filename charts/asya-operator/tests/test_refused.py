"""Bad values are refused before anything is installed, by their path."""

import unittest

from chart import RABBITMQ, SQS, ChartCase, at
from helm import Refused

# A value that the schema refuses, by the path that the refusal must name.
REFUSED = [
    ("replicaCount", -1),
    ("replicaCount", "two"),
    ("image.pullPolicy", "Sometimes"),
    ("image.repository", ""),
    ("imagePullSecrets", ["pull"]),
    ("nodeSelector", {"gpu": True}),
    ("nameOverride", "Asya Operator"),
    ("nameOverride", 123),
    ("fullnameOverride", "asya_operator"),
    ("fullnameOverride", "1-asya"),
    ("podLabels", {"team": 7}),
    ("podLabels", {"team": "a b"}),
    ("env", [{"value": "a"}]),
    ("env", [{"name": "A", "value": 1}]),
    ("logLevel", "verbose"),
    ("leaderElection.enabled", "yes"),
    ("controller.maxConcurrentReconciles", 0),
    ("controller.maxReconcileInterval", "10 hours"),
    ("controller.minReconcileInterval", "0x"),
    ("controller.unreadyDeadline", "long"),
    ("controller.hpaMetricsDeadline", "long"),
    ("controller.conflictWait", "long"),
    ("controller.retry.initial", "soon"),
    ("controller.retry.multiplier", 0.5),
    ("controller.retry.attempts", -1),
    ("controller.impersonate", "yes"),
    ("binding.maxRollouts", 0),
    ("controller.maxRollouts", 0),
    ("controller.queueHealthCheckInterval", "5 minutes"),
    ("controller.queueHealthCheckInterval", -1),
    ("controller.disableQueueManagement", "no"),
    ("controller.watchNamespaces", ["Not a namespace"]),
    ("podDisruptionBudget.enabled", "yes"),
    ("podDisruptionBudget.minAvailable", 0),
    ("podDisruptionBudget.minAvailable", "101%"),
    ("podDisruptionBudget.minAvailable", "1"),
    ("priorityClassName", "Very High"),
    ("webhook.enabled", "yes"),
    ("webhook.replicaCount", -1),
    ("webhook.port", 0),
    ("webhook.validation.mode", "Maybe"),
    ("webhook.certManager.enabled", "yes"),
    ("webhook.certManager.issuerRef", {"kind": "ClusterIssuer"}),
    ("webhook.resources.limits.memory", "1GB"),
    ("webhook.podDisruptionBudget.maxUnavailable", 0),
    ("ha.enabled", "yes"),
    ("networkPolicy.enabled", "yes"),
    ("networkPolicy.reviewsFrom", [{"cidr": "10.0.0.0/28"}]),
    ("networkPolicy.metricsFrom", [{}]),
    ("webhook.clientCA", "ca.crt"),
    ("metrics.port", 0),
    ("metrics.serviceMonitor.enabled", "yes"),
    ("metrics.serviceMonitor.interval", "0.5m"),
    ("metrics.serviceMonitor.interval", 30),
    ("metrics.serviceMonitor.labels", {"release": 7}),
    ("metrics.prometheusRule.enabled", "yes"),
    ("metrics.prometheusRule.runbooks", 7),
    ("metrics.dashboard.labels", {"grafana_dashboard": 1}),
    ("health.port", 65536),
    ("terminationGracePeriodSeconds", 0),
    ("resources.limits.memory", "1GB"),
    ("sidecar.defaultResources.limits.memory", "1GB"),
    ("runtime.source", "github"),
    ("runtime.localPath", "asya_runtime.py"),
    ("gatewayURL", "gateway:80"),
    ("transports.mq.type", "kafka"),
    ("transports.mq.enabled", "true"),
    ("operator.transports.mq.type", "kafka"),
]
REFUSED_RABBITMQ = [
    ("host", "amqp://rabbitmq"),
    ("host", "rabbitmq:5672"),
    ("port", 0),
    ("vhost", 1),
    ("tls", "true"),
    ("username", False),
    ("keda.protocol", "stomp"),
    ("passwordSecretRef", {"name": "rabbitmq-secret"}),
    ("urlSecretRef.name", "Not A Name"),
    ("management.scheme", "amqp"),
    ("management.port", 70000),
    ("management.caSecretRef", {"key": "ca.crt"}),
    ("queues.autoCreate", "no"),
    ("queues.type", "stream"),
    ("queues.nameTemplate", "{actor}"),
    ("queues.nameTemplate", "asya-{namespace}"),
    ("queues.dlq.enabled", 1),
    ("queues.nameTemplate", "asya-{actor}-{team}"),
    ("queues.dlq.maxRetryCount", -1),
    ("queues.dlq.retentionDays", 50),
    ("queues.dlq.name", "{actor}-dlq"),
]
REFUSED_SQS = [
    ("accountId", 0),
    ("accountId", "123"),
    ("endpoint", "localstack:4566"),
    ("caSecretRef", {"key": "ca.crt"}),
    ("actorRoleArn", "role"),
    ("visibilityTimeout", 43201),
    ("waitTimeSeconds", 21),
    ("credentials", {"accessKeyIdSecretRef": {"name": "sqs", "key": "id"}}),
    ("tags.cost", 7),
    ("keda.identityOwner", "pod"),
    ("keda.roleArn", "role"),
    ("queues.dlq.retentionDays", 15),
    ("queues.dlq.name", "dead letters"),
]
UNKNOWN = [
    "crd", "image.digest", "controller.workers", "sidecar.tag", "runtime.githubRelease", "operator.image", "metrics.path",
    "podDisruptionBudget.maxUnavailable", "metrics.serviceMonitor.port",
    "transports.mq.url", "transports.mq.config.hots", "transports.mq.config.region", "transports.mq.config.queues.dlq.count",
    "transports.mq.config.passwordSecretRef.namespace", "transports.mq.config.management.url",
]


class Refusals(ChartCase):
    def refusal(self, values, **options):
        with self.assertRaises(Refused) as caught:
            self.helm.text(values, **options)
        return str(caught.exception)

    def assert_refused_at(self, path, values):
        # Helm says `at '/a/b': …`; an item of an array or of a free map counts as the place of the whole.
        self.assertRegex(self.refusal(values), r"at '/%s(/\w+)*'" % path.replace(".", "/"))

    def test_bad_value_is_refused_by_its_path(self):
        """OPS-11, RUN-5: runtime.source github is refused."""
        for path, value in REFUSED:
            with self.subTest(path, value=value):
                self.assert_refused_at(path, at(path, value))

    def test_bad_transport_setting_is_refused_by_its_path(self):
        """OPS-3, RMQ-1, SQS-1: of a disabled transport, too"""
        for kind, good, rows in (("rabbitmq", RABBITMQ, REFUSED_RABBITMQ), ("sqs", SQS, REFUSED_SQS)):
            for path, value in rows:
                with self.subTest(path, value=value):
                    config = {**good["config"], **at(path, value)}
                    transport = {"type": kind, "enabled": False, "config": config}
                    self.assert_refused_at("transports/mq/config/" + path, {"transports": {"mq": transport}})

    def test_unknown_key_is_refused_by_its_path(self):
        """OPS-3, OPS-11"""
        for path in UNKNOWN:
            with self.subTest(path):
                parent, _, key = path.rpartition(".")
                values = at(path, "x")
                if path.startswith("transports.mq.config."):
                    values["transports"]["mq"]["type"] = "rabbitmq"
                    values["transports"]["mq"]["config"]["host"] = "rabbitmq"
                elif path.startswith("transports."):
                    values["transports"]["mq"]["type"] = "rabbitmq"
                text = self.refusal(values)
                self.assertIn("at '%s'" % ("/" + parent.replace(".", "/") if parent else ""), text)
                self.assertIn(key, text)

    def test_missing_transport_type_or_host_is_refused(self):
        """OPS-3, RMQ-1"""
        rows = [
            ({"enabled": True}, "at '/transports/mq': missing property 'type'"),
            ({"type": "rabbitmq", "enabled": True}, "at '/transports/mq': missing property 'config'"),
            ({**RABBITMQ, "config": {"port": 5672}}, "at '/transports/mq/config': missing property 'host'"),
            ({**RABBITMQ, "config": {"host": ""}}, "at '/transports/mq/config/host': minLength"),
        ]
        for transport, text in rows:
            with self.subTest(text):
                self.assertIn(text, self.refusal({"transports": {"mq": transport}}))

    def test_second_replica_needs_leader_election(self):
        self.assert_refused_at("replicaCount", {"leaderElection": {"enabled": False}, "replicaCount": 2})
        self.helm.text({"leaderElection": {"enabled": False}, "replicaCount": 1})

    def test_variables_of_the_chart_are_refused(self):
        for name in ("ASYA_GATEWAY_URL", "POD_NAME", "POD_NAMESPACE"):
            self.assertIn("env names %s, which the chart itself sets" % name, self.refusal({"env": [{"name": name, "value": "a"}]}))

    def test_one_port_for_two_purposes_is_refused(self):
        for path in ("metrics.port", "webhook.port"):
            self.assertIn("%s and health.port are both 8081" % path, self.refusal(at(path, 8081)))
        self.helm.text({"metrics": {"enabled": False, "port": 8081}})
        self.helm.text({"webhook": {"enabled": False, "port": 8081}})
        self.helm.text({"metrics": {"port": 9443}})

    def test_health_port_differs_from_that_of_the_webhooks_service(self):
        self.assertIn("health.port is 443, as is the port of the webhook's Service", self.refusal(at("health.port", 443)))
        self.helm.text({"webhook": {"enabled": False}, "health": {"port": 443}})

    def test_runtime_script_cannot_be_kept_where_the_guard_lets_nothing_be_written(self):
        """SEC-13, RUN-3"""
        values = at("runtime.namespace", "kube-public")
        self.assertIn("runtime.namespace is kube-public, where rbac.guard", self.refusal(values))
        for off in ({"guard": False}, {"create": False}):
            self.helm.text({**values, "rbac": off})
        self.helm.text(values, namespace="kube-public")

    def test_namespaces_of_kubernetes_are_not_watched(self):
        """SEC-13, SEC-12: the guard lets nothing be written there, and the webhook reviews nothing."""
        remedy = "; move its actors to a namespace of their own"
        guarded, unserved = ", where rbac.guard lets the operator write nothing" + remedy, ", which the webhook never serves" + remedy
        off = {"rbac": {"guard": False}}
        for name, values, text in (
            ("kube-system", {}, guarded),
            ("kube-flannel", {}, guarded),
            ("kube-system", off, unserved),
            ("kube-public", {"rbac": {"create": False}}, unserved),
            ("kube-node-lease", off, unserved),
            ("kube-flannel", off, None),
            ("kubeflow", {}, None),
            ("kube-system", {**off, "webhook": {"enabled": False}}, None),
        ):
            with self.subTest(name, values=values):
                values = {**values, **at("controller.watchNamespaces", ["team", name])}
                if text:
                    self.assertIn("controller.watchNamespaces names " + name + text, self.refusal(values))
                else:
                    self.helm.text(values)
        self.assertIn(unserved, self.refusal(at("controller.watchNamespaces", ["kube-system"]), namespace="kube-system"))

    def test_what_reads_metrics_needs_metrics(self):
        """OPS-10: there would be nothing to scrape, an empty dashboard, and an alert for ever."""
        for reader in ("serviceMonitor", "prometheusRule", "dashboard"):
            with self.subTest(reader):
                self.assert_refused_at("metrics.enabled", {"metrics": {"enabled": False, reader: {"enabled": True}}})
        self.helm.text({"metrics": {"enabled": False}})

    def test_disabled_rabbitmq_may_lack_its_host(self):
        """RMQ-1"""
        self.helm.text({"transports": {"mq": {"type": "rabbitmq", "enabled": False, "config": {"host": ""}}}})
        self.helm.text({"transports": {"mq": {"type": "rabbitmq"}}})

    def test_sqs_role_of_keda_excludes_the_identity_of_the_workload(self):
        """KEDA-5"""
        keda = {"identityOwner": "workload", "roleArn": "arn:aws:iam::000000000000:role/keda"}
        transport = {**SQS, "config": {"keda": keda}}
        self.assert_refused_at("transports/mq/config/keda/roleArn", {"transports": {"mq": transport}})

    def test_removed_value_is_refused_not_a_template_error(self):
        for key in ("metrics", "image", "controller", "runtime", "crds", "podDisruptionBudget"):
            with self.subTest(key):
                self.assertIn(key, self.refusal({key: None}))
                self.assertNotIn("nil pointer", self.refusal({key: None}))
        self.assertIn("at '/metrics': missing property 'serviceMonitor'", self.refusal({"metrics": {"serviceMonitor": None}}))


class WithHelm3(Refusals, unittest.TestCase):
    major = 3


class WithHelm4(Refusals, unittest.TestCase):
    major = 4


if __name__ == "__main__":
    unittest.main()
