"""Every value of the chart does something, and values of earlier releases still do it."""

import json
import unittest

from chart import RABBITMQ, SQS, ChartCase, at
from helm import CHART, NAME, TESTS

EXAMPLES = CHART.parent.parent / "examples"


def as_environment(transports):
    return json.dumps({"transports": transports}, sort_keys=True, separators=(",", ":"))


def leaves(values, path=""):
    """Paths of all values that are not objects with keys of their own."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, path + "." + key if path else key)
    else:
        yield path


# Another value for each value of the chart, where in the Deployment it must arrive, and as what (default: itself).
# A value that goes elsewhere, or needs another one, has None here and a test of its own below.
SPEC = "spec.template.spec"
MANAGER = SPEC + ".containers.0"
EXTRA_VOLUME = {"name": "extra", "emptyDir": {}}
EXTRA_MOUNT = {"name": "extra", "mountPath": "/extra"}
CONFIG_VOLUME = {"name": "config", "configMap": {"name": NAME + "-config"}}
CONFIG_MOUNT = {"name": "config", "mountPath": "/etc/asya", "readOnly": True}

OTHER = {
    "replicaCount": (2, "spec.replicas"),
    "image.repository": ("other", MANAGER + ".image", "other:0.1.0"),
    "image.pullPolicy": ("Always", MANAGER + ".imagePullPolicy"),
    "image.tag": ("9", MANAGER + ".image", "asya-operator:9"),
    "imagePullSecrets": ([{"name": "pull"}], SPEC + ".imagePullSecrets"),
    "nameOverride": ("asya", "spec.selector.matchLabels.app\\.kubernetes\\.io/name"),
    "fullnameOverride": ("other", "metadata.name"),
    "serviceAccount.create": (False, SPEC + ".serviceAccountName", "default"),
    "serviceAccount.annotations": ({"a": "b"}, None),
    "serviceAccount.name": ("other", SPEC + ".serviceAccountName"),
    "rbac.create": (False, None),
    "rbac.clusterWide": None,  # counts only with controller.watchNamespaces; test_objects.py has it
    "rbac.guard": (False, None),
    "rbac.aggregate": (False, None),
    "podAnnotations": ({"a": "b"}, "spec.template.metadata.annotations.a", "b"),
    "podLabels": ({"a": "b"}, "spec.template.metadata.labels.a", "b"),
    "env": ([{"name": "A", "value": "b"}], "$A", "b"),
    "podSecurityContext.runAsNonRoot": (False, SPEC + ".securityContext.runAsNonRoot"),
    "podSecurityContext.runAsUser": (7, SPEC + ".securityContext.runAsUser"),
    "podSecurityContext.runAsGroup": (7, SPEC + ".securityContext.runAsGroup"),
    "podSecurityContext.fsGroup": (7, SPEC + ".securityContext.fsGroup"),
    "podSecurityContext.seccompProfile.type": ("Unconfined", SPEC + ".securityContext.seccompProfile.type"),
    "securityContext.allowPrivilegeEscalation": (True, MANAGER + ".securityContext.allowPrivilegeEscalation"),
    "securityContext.readOnlyRootFilesystem": (False, MANAGER + ".securityContext.readOnlyRootFilesystem"),
    "securityContext.capabilities.drop": (["NET_RAW"], MANAGER + ".securityContext.capabilities.drop"),
    "resources.requests.cpu": ("7m", MANAGER + ".resources.requests.cpu"),
    "resources.requests.memory": ("7Mi", MANAGER + ".resources.requests.memory"),
    "resources.limits.memory": ("7Gi", MANAGER + ".resources.limits.memory"),
    "nodeSelector": ({"a": "b"}, SPEC + ".nodeSelector"),
    "tolerations": ([{"key": "a", "operator": "Exists"}], SPEC + ".tolerations"),
    "affinity": ({"nodeAffinity": {}}, SPEC + ".affinity"),
    "priorityClassName": ("high", SPEC + ".priorityClassName"),
    "podDisruptionBudget.enabled": (True, None),
    "podDisruptionBudget.minAvailable": None,  # counts only with enabled
    "logLevel": ("debug", "--log-level"),
    "leaderElection.enabled": (False, "--leader-elect", "false"),
    "controller.maxConcurrentReconciles": (7, "$ASYA_MAX_CONCURRENT_RECONCILES", "7"),
    "controller.queueHealthCheckInterval": ("90s", "$ASYA_QUEUE_HEALTH_CHECK_INTERVAL"),
    "controller.queueMetricsInterval": ("7s", "$ASYA_QUEUE_METRICS_INTERVAL"),
    "controller.disableQueueManagement": (True, "$ASYA_DISABLE_QUEUE_MANAGEMENT", "true"),
    "controller.maxReconcileInterval": ("1h", "--max-reconcile-interval"),
    "controller.minReconcileInterval": ("2s", "--min-reconcile-interval"),
    "controller.unreadyDeadline": ("15m", "--unready-deadline"),
    "controller.hpaMetricsDeadline": ("7m", "--hpa-metrics-deadline"),
    "controller.conflictWait": ("8s", "--conflict-wait"),
    "controller.retry.initial": ("3s", "--retry-initial"),
    "controller.retry.multiplier": (3, "--retry-multiplier", "3"),
    "controller.retry.max": ("1m", "--retry-max"),
    "controller.retry.attempts": (5, "--retry-attempts", "5"),
    "controller.impersonate": (True, "--impersonate", "true"),
    "controller.maxRollouts": (7, "--max-workload-rollouts", "7"),
    "controller.watchNamespaces": (["a", "b"], None),  # goes to a ConfigMap
    "metrics.enabled": (False, "--metrics-bind-address", "0"),
    "metrics.port": (9090, "--metrics-bind-address", ":9090"),
    "metrics.serviceMonitor.enabled": (True, None),
    "metrics.serviceMonitor.interval": None,  # like labels, counts only with enabled
    "metrics.serviceMonitor.labels": None,
    "metrics.prometheusRule.enabled": (True, None),  # test_monitoring.py has these
    "metrics.prometheusRule.runbooks": None,
    "metrics.prometheusRule.labels": None,
    "metrics.dashboard.enabled": (True, None),
    "metrics.dashboard.labels.grafana_dashboard": None,
    "health.port": (9091, "--health-probe-bind-address", ":9091"),
    "terminationGracePeriodSeconds": (60, SPEC + ".terminationGracePeriodSeconds"),
    "webhook.enabled": (False, "--webhook-service", None),
    "webhook.replicaCount": (5, None),  # test_webhook.py says where these arrive
    "webhook.port": (10250, None),
    "webhook.serviceAccountName": ("other", None),
    "webhook.validation.mode": ("Warn", None),
    "webhook.certManager.enabled": (True, None),
    "webhook.certManager.issuerRef": None,  # counts only with enabled
    "webhook.clientCA": ("-----BEGIN CERTIFICATE-----", None),
    "webhook.resources.requests.cpu": ("7m", None),
    "webhook.resources.requests.memory": ("7Mi", None),
    "webhook.resources.limits.memory": ("7Gi", None),
    "webhook.podDisruptionBudget.enabled": (False, None),
    "webhook.podDisruptionBudget.maxUnavailable": (2, None),
    "ha.enabled": (True, None),
    "binding.runtimeImage": ("python:7", "$ASYA_BINDING_RUNTIME_IMAGE"),
    "binding.openshift": (True, "$ASYA_OPENSHIFT", "true"),
    "binding.maxRollouts": (7, "--max-rollouts", "7"),
    "binding.kinds.workspaces": (False, None),
    "binding.kinds.inferenceSets": (False, None),
    "binding.kinds.inferenceServices": (False, None),
    "binding.kinds.llmInferenceServices": (False, None),
    "binding.kinds.rayClusters": (False, None),
    "binding.kinds.rayServices": (False, None),
    "binding.kinds.knativeServices": (False, None),
    "binding.kinds.seldonDeployments": (False, None),
    "binding.kinds.seldonServers": (False, None),
    "binding.kinds.bentoDeployments": (False, None),
    "binding.kinds.leaderWorkerSets": (False, None),
    "binding.kinds.others": (False, None),
    "networkPolicy.enabled": (True, None),
    "networkPolicy.reviewsFrom": None,  # like metricsFrom, counts only with enabled
    "networkPolicy.metricsFrom": None,
    "sidecar.image": ("sidecar:7", "$ASYA_SIDECAR_IMAGE"),
    "sidecar.allowPrivileged": (True, "$ASYA_PRIVILEGED_SIDECARS", "true"),
    "sidecar.defaultResources.requests.cpu": ("7m", None),
    "sidecar.defaultResources.requests.memory": ("7Mi", None),
    "sidecar.defaultResources.limits.cpu": (7, None),
    "sidecar.defaultResources.limits.memory": ("7Gi", None),
    "runtime.source": None,  # has one valid value
    "runtime.localPath": ("/extra/asya_runtime.py", "$ASYA_RUNTIME_LOCAL_PATH"),
    "runtime.scriptPath": ("/extra/asya_runtime.py", "$ASYA_RUNTIME_SCRIPT_PATH"),
    "runtime.namespace": ("other", "$ASYA_RUNTIME_NAMESPACE"),
    "volumes": ([EXTRA_VOLUME], SPEC + ".volumes", [CONFIG_VOLUME, EXTRA_VOLUME]),
    "volumeMounts": ([EXTRA_MOUNT], MANAGER + ".volumeMounts", [CONFIG_MOUNT, EXTRA_MOUNT]),
    "gatewayURL": ("http://gateway", "$ASYA_GATEWAY_URL"),
    "transports": ({"sqs": SQS}, "$ASYA_TRANSPORT_CONFIG", as_environment({"sqs": SQS})),
    "operator.gatewayURL": ("http://gateway", "$ASYA_GATEWAY_URL"),
    "operator.transports": ({"mq": RABBITMQ}, "$ASYA_TRANSPORT_CONFIG", as_environment({"mq": RABBITMQ})),
    "crds.manage": (False, "--manage-crds", "false"),
    "uninstallCheck": (False, None),
}


class Values(ChartCase):
    def test_every_value_arrives_where_it_belongs(self):
        """OPS-10, OPS-11: a dead value is a defect."""
        for path, row in OTHER.items():
            if row is None or row[1] is None:
                continue
            value, place, *rest = row
            with self.subTest(path):
                name = {"nameOverride": "asya-operator", "fullnameOverride": "other"}.get(path, NAME)
                deployment = self.deployment(at(path, value), name=name)
                self.assertEqual(self.look(deployment, place), rest[0] if rest else value)
                self.assertNotEqual(self.look(self.default["Deployment", NAME], place), rest[0] if rest else value)

    def test_every_value_changes_what_is_rendered(self):
        """OPS-11"""
        default = self.helm.text()
        for path, row in OTHER.items():
            if row is not None:
                with self.subTest(path):
                    self.assertNotEqual(self.helm.text(at(path, row[0])), default)

    def test_every_value_is_in_the_tests_and_in_the_schema(self):
        """OPS-11: values.yaml, the schema and this table name the same values."""
        values = self.helm.parse((CHART / "values.yaml").read_text())[0]
        self.assertEqual(set(leaves(values)), set(OTHER))
        schema = json.loads((CHART / "values.schema.json").read_text())
        self.assertEqual(set(schema["properties"]) - {"global"}, set(values))
        for key, value in values.items():
            known = schema["properties"][key].get("properties")
            if known and value:
                self.assertEqual(set(known), set(value), key)

    def test_watched_namespaces_are_in_a_file_that_the_controller_rereads(self):
        """FW-13"""
        objects = self.helm.objects({"controller": {"watchNamespaces": ["a", "b"]}})
        self.assertEqual(objects["ConfigMap", NAME + "-config"]["data"], {"watch-namespaces": "a\nb"})
        self.assertEqual(self.default["ConfigMap", NAME + "-config"]["data"], {"watch-namespaces": ""})
        same = objects["Deployment", NAME] == self.default["Deployment", NAME]
        self.assertTrue(same, "a change of the namespaces restarts the controller")

    def test_sidecar_resources_reach_the_controller_as_json(self):
        """POD-1"""
        resources = {"requests": {"cpu": "7m"}, "limits": {"cpu": 7, "memory": "7Gi"}}
        given = json.loads(self.look(self.deployment({"sidecar": {"defaultResources": resources}}), "$ASYA_SIDECAR_DEFAULT_RESOURCES"))
        self.assertEqual(given, {"requests": {"cpu": "7m", "memory": "64Mi"}, "limits": {"cpu": 7, "memory": "7Gi"}})

    def test_service_account_can_be_annotated_or_left_to_the_user(self):
        annotated = self.helm.objects({"serviceAccount": {"annotations": {"a": "b"}}})
        self.assertEqual(annotated["ServiceAccount", NAME]["metadata"]["annotations"], {"a": "b"})
        self.assertNotIn("ServiceAccount", {kind for kind, _ in self.helm.objects({"serviceAccount": {"create": False}})})

    def test_default_sidecar_has_the_tag_without_the_operators_digest(self):
        """OPS-10: under that digest there is no sidecar."""
        digest = "@sha256:" + "0" * 64
        for tag, wanted in (("9" + digest, "9"), (digest, "0.1.0"), ("9", "9"), ("", "0.1.0")):
            deployment = self.deployment({"image": {"repository": "a.b/asya-operator", "tag": tag}})
            self.assertEqual(self.look(deployment, "$ASYA_OWN_SIDECAR_IMAGE"), "a.b/asya-sidecar:" + wanted)
            self.assertEqual(self.look(deployment, MANAGER + ".image"), "a.b/asya-operator:" + (tag or "0.1.0"))

    def test_labels_of_pods_leave_what_selects_them(self):
        for name in (NAME, NAME + "-webhook"):
            given = {"app.kubernetes.io/name": "other", "team": "platform"}
            deployment = self.deployment({"podLabels": given}, name=name)
            self.assertEqual(deployment["spec"]["template"]["metadata"]["labels"], {**deployment["spec"]["selector"]["matchLabels"], "team": "platform"})

    def test_variables_follow_those_of_the_chart(self):
        variable = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
        for name in (NAME, NAME + "-webhook"):
            env = lambda values: self.deployment(values, name=name)["spec"]["template"]["spec"]["containers"][0]["env"]
            self.assertEqual(env({"env": [variable]}), env({}) + [variable])

    def test_replicas_of_the_controller_are_spread_over_nodes_where_possible(self):
        """OPS-9: one replica keeps its pod template."""
        place = SPEC + ".topologySpreadConstraints"
        self.assertIsNone(self.look(self.default["Deployment", NAME], place))
        deployment = self.deployment({"replicaCount": 2})
        self.assertEqual(self.look(deployment, place), [{
            "topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "nodeTaintsPolicy": "Honor",
            "matchLabelKeys": ["pod-template-hash"], "labelSelector": deployment["spec"]["selector"],
        }])

    def test_metrics_can_be_switched_off(self):
        """OPS-10: metrics.enabled"""
        objects = self.helm.objects({"metrics": {"enabled": False}})
        self.assertNotIn(("Service", NAME + "-metrics"), objects)
        ports = objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"][0]["ports"]
        self.assertEqual([each["name"] for each in ports], ["health"])

    def test_disruption_budget_covers_the_pods_of_the_controller(self):
        """OPS-10"""
        self.assertNotIn(("PodDisruptionBudget", NAME), self.default)
        for given, least in (({}, 1), ({"minAvailable": 2}, 2), ({"minAvailable": "50%"}, "50%")):
            objects = self.helm.objects({"podDisruptionBudget": {"enabled": True, **given}})
            budget = objects["PodDisruptionBudget", NAME]
            self.assertEqual(budget["apiVersion"], "policy/v1")
            self.assertEqual(budget["metadata"]["namespace"], "asya-system")
            self.assertEqual(budget["spec"], {
                "minAvailable": least, "selector": objects["Deployment", NAME]["spec"]["selector"],
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
            })

    def test_service_monitor_scrapes_the_metrics_service(self):
        """OPS-10"""
        self.assertNotIn("ServiceMonitor", {kind for kind, _ in self.default})
        objects = self.helm.objects({"metrics": {"serviceMonitor": {"enabled": True}}})
        service, monitor = (objects[kind, NAME + "-metrics"] for kind in ("Service", "ServiceMonitor"))
        self.assertEqual(monitor["apiVersion"], "monitoring.coreos.com/v1")
        self.assertEqual(monitor["metadata"], service["metadata"])
        selector = monitor["spec"]["selector"]["matchLabels"]
        self.assertTrue(selector and selector.items() <= service["metadata"]["labels"].items())
        endpoint = {"port": service["spec"]["ports"][0]["name"], "interval": "30s", "honorLabels": True}
        self.assertEqual(monitor["spec"]["endpoints"], [endpoint])

    def test_service_monitor_takes_its_interval_and_the_labels_that_a_prometheus_selects(self):
        """OPS-10"""
        labels = {"release": "prometheus", "app.kubernetes.io/instance": "monitoring"}
        endpoint = {"port": "metrics", "honorLabels": True}
        for interval, endpoint in (("1m30s", {**endpoint, "interval": "1m30s"}), ("", endpoint)):
            values = {"enabled": True, "interval": interval, "labels": labels}
            objects = self.helm.objects({"metrics": {"serviceMonitor": values}})
            service, monitor = (objects[kind, NAME + "-metrics"] for kind in ("Service", "ServiceMonitor"))
            self.assertEqual(monitor["spec"]["endpoints"], [endpoint])
            self.assertEqual(monitor["metadata"]["labels"], {**service["metadata"]["labels"], **labels})
            self.assertEqual(monitor["spec"]["selector"]["matchLabels"], service["spec"]["selector"])

    def test_an_upgrade_without_leader_election_never_runs_two_controllers(self):
        """OPS-10: the release owns the fields that the other strategy forbids, or helm 4 could not remove them."""
        deployment = self.deployment({"leaderElection": {"enabled": False}})
        self.assertEqual(deployment["spec"]["strategy"], {"type": "Recreate"})
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
        self.assertEqual(self.default["Deployment", NAME]["spec"]["strategy"], rolling)

    def test_health_check_can_be_switched_off_by_a_number_too(self):
        """QUE-21 (d)"""
        values = {"controller": {"queueHealthCheckInterval": 0}}
        self.assertEqual(self.look(self.deployment(values), "$ASYA_QUEUE_HEALTH_CHECK_INTERVAL"), "0")

    def test_default_path_of_the_controller_is_not_required(self):
        """RUN-1: a named file must exist, and earlier releases named this one by default."""
        values = {"runtime": {"source": "local", "localPath": "/runtime/asya_runtime.py"}}
        self.assertIsNone(self.look(self.deployment(values), "$ASYA_RUNTIME_LOCAL_PATH"))

    # Transports and compatibility

    def test_values_of_earlier_releases_are_accepted_and_arrive_unchanged(self):
        """OPS-10, OPS-11"""
        values = self.helm.parse((TESTS / "compat-values.yaml").read_text())[0]
        deployment = self.helm.objects(TESTS / "compat-values.yaml")["Deployment", NAME]
        self.assertEqual(json.loads(self.look(deployment, "$ASYA_TRANSPORT_CONFIG")), {"transports": values["transports"]})
        self.assertEqual(self.look(deployment, "$ASYA_GATEWAY_URL"), values["gatewayURL"])
        self.assertEqual(self.look(deployment, "$ASYA_SIDECAR_IMAGE"), values["sidecar"]["image"])
        self.assertEqual(self.look(deployment, MANAGER + ".image"), values["image"]["repository"] + ":0.1.0")

    def test_values_of_earlier_releases_may_be_set_under_operator(self):
        """OPS-11"""
        values = self.helm.parse((TESTS / "compat-values.yaml").read_text())[0]
        moved = {**values, "operator": {key: values.pop(key) for key in ("gatewayURL", "transports")}}
        deployment = self.deployment(moved)
        self.assertEqual(json.loads(self.look(deployment, "$ASYA_TRANSPORT_CONFIG"))["transports"], moved["operator"]["transports"])
        self.assertEqual(self.look(deployment, "$ASYA_GATEWAY_URL"), moved["operator"]["gatewayURL"])

    def test_top_level_wins_over_operator(self):
        """OPS-11: name by name, each entry as a whole"""
        values = {
            "gatewayURL": "http://top",
            "transports": {"mq": RABBITMQ},
            "operator": {"gatewayURL": "http://under", "transports": {"mq": {**SQS, "enabled": False}, "queue": SQS}},
        }
        self.assertEqual(self.transports(values), {"mq": RABBITMQ, "queue": SQS})
        self.assertEqual(self.look(self.deployment(values), "$ASYA_GATEWAY_URL"), "http://top")

    def test_null_transport_is_absent(self):
        """OPS-3"""
        self.assertEqual(self.transports({"transports": {"mq": None}}), {})
        self.assertEqual(self.transports({"transports": None}), {})
        self.assertEqual(self.transports({"operator": {"transports": None}}), {})

    def test_transport_names_are_free(self):
        """VAL-20"""
        self.assertEqual(self.transports({"transports": {"sqs-eu": SQS, "sqs": RABBITMQ}}), {"sqs-eu": SQS, "sqs": RABBITMQ})

    def test_all_settings_of_a_rabbitmq_transport_are_accepted(self):
        """RMQ-1, QUE-1, QUE-7, QUE-14"""
        secret = {"name": "rabbitmq-secret", "key": "password"}
        transport = {"type": "rabbitmq", "enabled": True, "config": {
            "host": "rabbitmq.default.svc", "port": 5671, "tls": True, "vhost": "/", "username": "a:b@c",
            "passwordSecretRef": secret, "urlSecretRef": {**secret, "optional": True}, "exchange": "asya", "keda": {"protocol": "amqp"},
            "management": {"scheme": "https", "host": "mgmt", "port": 15671, "caSecretRef": secret, "insecureSkipVerify": True},
            "queues": {"autoCreate": False, "forceRecreate": False, "nameTemplate": "asya-{namespace}-{actor}", "type": "quorum",
                       "dlq": {"enabled": True, "maxRetryCount": 5, "retentionDays": 30, "name": "{queue}.dead"}},
        }}
        self.assertEqual(self.transports({"transports": {"mq": transport}}), {"mq": transport})

    def test_hosts_may_be_addresses(self):
        """RMQ-1"""
        for host in ("10.0.0.7", "::1", "[2001:db8::7]", "rabbitmq.default.svc.cluster.local"):
            with self.subTest(host):
                self.helm.text({"transports": {"mq": {**RABBITMQ, "config": {"host": host}}}})

    def test_empty_settings_of_earlier_releases_are_accepted(self):
        """SQS-1, QUE-14: their chart had empty texts for what was not set."""
        empty = {"accountId": "", "actorRoleArn": "", "endpoint": "", "region": "eu-west-1", "visibilityTimeout": 0, "queues": {
            "autoCreate": True, "forceRecreate": False, "dlq": {"enabled": True, "maxRetryCount": 0, "retentionDays": 0, "name": ""}}}
        self.helm.text({"operator": {"transports": {"sqs": {**SQS, "config": empty}}}})
        self.helm.text({"transports": {"sqs": {**SQS, "config": {"accountId": 12345678}}}})

    def test_all_settings_of_an_sqs_transport_are_accepted(self):
        """SQS-1, QUE-1, QUE-7, QUE-14"""
        secret = {"name": "sqs-secret", "key": "id"}
        transport = {"type": "sqs", "enabled": True, "config": {
            "region": "cn-north-1", "accountId": "000000000000", "endpoint": "http://localstack:4566",
            "caSecretRef": {"name": "sqs-ca", "key": "ca.crt"}, "actorRoleArn": "arn:aws:iam::000000000000:role/actor", "visibilityTimeout": 300, "waitTimeSeconds": 20,
            "credentials": {"accessKeyIdSecretRef": secret, "secretAccessKeySecretRef": secret}, "tags": {"env": "test"},
            "keda": {"identityOwner": "keda", "roleArn": "arn:aws:iam::000000000000:role/keda"},
            "queues": {"autoCreate": True, "forceRecreate": True, "nameTemplate": "asya-{actor}",
                       "dlq": {"enabled": True, "maxRetryCount": 3, "retentionDays": 14, "name": "asya-dlq"}},
        }}
        self.assertEqual(self.transports({"transports": {"eu": transport}}), {"eu": transport})

    def test_values_of_the_examples_are_accepted_and_enable_a_transport(self):
        files = sorted({*EXAMPLES.rglob("*values.yaml")} - {EXAMPLES / "production/values.yaml"})
        self.assertGreater(len(files), 5)
        for file in files:
            with self.subTest(file.name):
                self.assertEqual([each["enabled"] for each in self.transports(file).values()], [True])

    def test_values_for_production_have_standbys_and_monitoring(self):
        """OPS-11"""
        objects = self.helm.objects(EXAMPLES / "production/values.yaml")
        self.assertEqual([objects["Deployment", name]["spec"]["replicas"] for name in (NAME, NAME + "-webhook")], [2, 3])
        kinds = [kind for kind, _ in objects]
        self.assertEqual([kinds.count(kind) for kind in ("PodDisruptionBudget", "ServiceMonitor", "PrometheusRule")], [2, 2, 1])
        self.assertIn(("ConfigMap", NAME + "-dashboard"), objects)
        arguments = objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"][0]
        self.assertNotIn("500m", str(arguments), "the limit of CPU is removed")


class WithHelm3(Values, unittest.TestCase):
    major = 3


class WithHelm4(Values, unittest.TestCase):
    major = 4


if __name__ == "__main__":
    unittest.main()
