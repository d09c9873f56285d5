"""Tests of the chart: it is rendered by helm 3 and by helm 4, and needs no cluster."""

import json
import unittest

from helm import CHART, TESTS, Helm, Refused

NAME = "asya-operator"
RABBITMQ = {"type": "rabbitmq", "enabled": True, "config": {"host": "rabbitmq"}}
SQS = {"type": "sqs", "enabled": True, "config": {"region": "eu-west-1"}}


def at(path, value):
    """{"a": {"b": value}} for the path a.b."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def leaves(values, path=""):
    """Paths of all values that are not objects with keys of their own."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from leaves(value, path + "." + key if path else key)
    else:
        yield path


# Another value for each value of the chart, where in the Deployment it must arrive, and as what (default: itself).
# A value that goes elsewhere has None here and a test of its own below.
SPEC = "spec.template.spec"
MANAGER = SPEC + ".containers.0"
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
    "podAnnotations": ({"a": "b"}, "spec.template.metadata.annotations.a", "b"),
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
    "logLevel": ("debug", "--log-level"),
    "leaderElection.enabled": (False, "--leader-elect", "false"),
    "controller.maxConcurrentReconciles": (7, "$ASYA_MAX_CONCURRENT_RECONCILES", "7"),
    "controller.queueHealthCheckInterval": ("90s", "$ASYA_QUEUE_HEALTH_CHECK_INTERVAL"),
    "controller.disableQueueManagement": (True, "$ASYA_DISABLE_QUEUE_MANAGEMENT", "true"),
    "controller.watchNamespaces": (["a", "b"], "--watch-namespaces", "a,b"),
    "metrics.enabled": (False, "--metrics-bind-address", "0"),
    "metrics.port": (9090, "--metrics-bind-address", ":9090"),
    "health.port": (9091, "--health-probe-bind-address", ":9091"),
    "terminationGracePeriodSeconds": (60, SPEC + ".terminationGracePeriodSeconds"),
    "sidecar.image": ("sidecar:7", "$ASYA_SIDECAR_IMAGE"),
    "sidecar.defaultResources.requests.cpu": ("7m", None),
    "sidecar.defaultResources.requests.memory": ("7Mi", None),
    "sidecar.defaultResources.limits.cpu": (7, None),
    "sidecar.defaultResources.limits.memory": ("7Gi", None),
    "runtime.source": None,  # has one valid value
    "runtime.localPath": ("/extra/asya_runtime.py", "$ASYA_RUNTIME_LOCAL_PATH"),
    "runtime.scriptPath": ("/extra/asya_runtime.py", "$ASYA_RUNTIME_SCRIPT_PATH"),
    "runtime.namespace": ("other", "$ASYA_RUNTIME_NAMESPACE"),
    "volumes": ([{"name": "extra", "emptyDir": {}}], SPEC + ".volumes"),
    "volumeMounts": ([{"name": "extra", "mountPath": "/extra"}], MANAGER + ".volumeMounts"),
    "gatewayURL": ("http://gateway", "$ASYA_GATEWAY_URL"),
    "transports": ({"sqs": SQS}, "$ASYA_TRANSPORT_CONFIG", '{"transports":{"sqs":%s}}' % json.dumps(SQS, sort_keys=True, separators=(",", ":"))),
    "operator.gatewayURL": ("http://gateway", "$ASYA_GATEWAY_URL"),
    "operator.transports": ({"mq": RABBITMQ}, "$ASYA_TRANSPORT_CONFIG", '{"transports":{"mq":%s}}' % json.dumps(RABBITMQ, sort_keys=True, separators=(",", ":"))),
    "crds.manage": (False, "--manage-crds", "false"),
}

# A value that the schema refuses, by the path that the refusal must name.
REFUSED = [
    ("replicaCount", -1),
    ("replicaCount", "two"),
    ("image.pullPolicy", "Sometimes"),
    ("image.repository", ""),
    ("imagePullSecrets", ["pull"]),
    ("nodeSelector", {"gpu": True}),
    ("logLevel", "verbose"),
    ("leaderElection.enabled", "yes"),
    ("controller.maxConcurrentReconciles", 0),
    ("controller.queueHealthCheckInterval", "5 minutes"),
    ("controller.queueHealthCheckInterval", -1),
    ("controller.disableQueueManagement", "no"),
    ("controller.watchNamespaces", ["Not a namespace"]),
    ("metrics.port", 0),
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
    ("vhost", ""),
    ("tls", "true"),
    ("username", ""),
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
    ("queues.dlq.maxRetryCount", 0),
    ("queues.dlq.retentionDays", 0),
]
REFUSED_SQS = [
    ("accountId", 123),
    ("accountId", "123"),
    ("endpoint", "localstack:4566"),
    ("actorRoleArn", "role"),
    ("visibilityTimeout", 43201),
    ("waitTimeSeconds", 21),
    ("credentials", {"accessKeyIdSecretRef": {"name": "sqs", "key": "id"}}),
    ("tags.cost", 7),
    ("queues.dlq.retentionDays", 15),
    ("queues.dlq.name", "dead letters"),
]
UNKNOWN = [
    "crd", "image.digest", "controller.workers", "sidecar.tag", "runtime.githubRelease", "operator.image", "metrics.path",
    "transports.mq.url", "transports.mq.config.hots", "transports.mq.config.region", "transports.mq.config.queues.dlq.count",
    "transports.mq.config.passwordSecretRef.namespace", "transports.mq.config.management.url",
]


class Chart:
    """The tests, run with each helm."""

    major = None

    @classmethod
    def setUpClass(cls):
        cls.helm = Helm(cls.major)
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

    def refusal(self, values):
        with self.assertRaises(Refused) as caught:
            self.helm.text(values)
        return str(caught.exception)

    def assert_refused_at(self, path, values):
        # Helm says `at '/a/b/0': …`; the place of an array item counts as the array's.
        text = self.refusal(values)
        self.assertIn("at '/%s" % path.replace(".", "/"), text)

    # The default installation

    def test_default_installation_is_a_controller_with_its_account_rights_and_metrics(self):
        """OPS-10"""
        kinds = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"]
        self.assertEqual(set(self.default), {(kind, NAME) for kind in kinds} | {("Service", NAME + "-metrics")})

    def test_controller_is_container_manager_with_its_arguments_and_environment(self):
        """OPS-1, OPS-2, OPS-10"""
        pod = self.default["Deployment", NAME]["spec"]["template"]["spec"]
        self.assertEqual([each["name"] for each in pod["containers"]], ["manager"])
        manager = pod["containers"][0]
        self.assertEqual(manager["command"], ["/asya-controller"])
        self.assertEqual(manager["args"], [
            "--metrics-bind-address=:8080", "--health-probe-bind-address=:8081", "--leader-elect=true", "--log-level=info",
            "--manage-crds=true",
        ])
        self.assertEqual(manager["env"], [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "ASYA_TRANSPORT_CONFIG", "value": '{"transports":{}}'},
            {"name": "ASYA_SIDECAR_DEFAULT_RESOURCES", "value":
                '{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"64Mi"}}'},
            {"name": "ASYA_MAX_CONCURRENT_RECONCILES", "value": "50"},
            {"name": "ASYA_QUEUE_HEALTH_CHECK_INTERVAL", "value": "5m"},
            {"name": "ASYA_DISABLE_QUEUE_MANAGEMENT", "value": "false"},
        ])

    def test_pods_of_the_controller_carry_the_selected_labels(self):
        """OPS-10: an upgrade in place needs the selector of earlier releases."""
        labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
        spec = self.default["Deployment", NAME]["spec"]
        self.assertEqual(spec["selector"], {"matchLabels": labels})
        self.assertEqual(spec["template"]["metadata"]["labels"], labels)
        self.assertEqual(self.default["Service", NAME + "-metrics"]["spec"]["selector"], labels)
        for each in self.default.values():
            self.assertEqual(each["metadata"]["labels"]["app.kubernetes.io/name"], NAME)

    def test_probes_and_metrics_service_reach_their_ports(self):
        """OPS-6, OPS-10"""
        objects = self.helm.objects({"metrics": {"port": 9090}, "health": {"port": 9091}})
        manager = objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual({each["name"]: each["containerPort"] for each in manager["ports"]}, {"metrics": 9090, "health": 9091})
        self.assertEqual(manager["livenessProbe"]["httpGet"], {"path": "/healthz", "port": "health"})
        self.assertEqual(manager["readinessProbe"]["httpGet"], {"path": "/readyz", "port": "health"})
        ports = objects["Service", NAME + "-metrics"]["spec"]["ports"]
        self.assertEqual(ports, [{"name": "metrics", "port": 9090, "targetPort": "metrics"}])

    def test_pod_meets_the_restricted_pod_security_standard(self):
        pod = self.default["Deployment", NAME]["spec"]["template"]["spec"]
        self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
        self.assertNotEqual(pod["securityContext"]["runAsUser"], 0)
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        for container in pod["containers"]:
            self.assertEqual(container["securityContext"], {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            })
        self.assertFalse({"hostNetwork", "hostPID", "hostIPC", "volumes"} & set(pod))

    def test_chart_brings_no_crd_and_no_webhook_configuration(self):
        """OPS-10; the controller applies the CRD, and an upgrade by helm would not."""
        self.assertFalse((CHART / "crds").exists())
        kinds = {kind for kind, _ in self.helm.objects(TESTS / "compat-values.yaml")}
        self.assertFalse(kinds & {"CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})

    def test_notes_say_that_no_transport_is_enabled_by_default(self):
        """OPS-11"""
        self.assertIn("No transport is enabled", self.helm.notes())
        self.assertIn("No transport is enabled", self.helm.notes({"transports": {"mq": {**RABBITMQ, "enabled": False}}}))

    def test_notes_name_the_enabled_transports(self):
        notes = self.helm.notes({"transports": {"mq": RABBITMQ, "queue": {**SQS, "enabled": False}}})
        self.assertIn("Enabled transports: mq.", notes)

    def test_names_follow_the_release(self):
        self.assertIn(("Deployment", "mine-asya-operator"), self.helm.objects(release="mine"))
        self.assertIn(("Deployment", "my-asya-operator"), self.helm.objects(release="my-asya-operator"))

    def test_lint_finds_nothing(self):
        self.helm.run("lint", "--strict", str(CHART))
        self.helm.run("lint", "--strict", str(CHART), "--values", str(TESTS / "compat-values.yaml"))

    # Rights

    def rules(self, objects, kind="ClusterRole"):
        found = set()
        for rule in objects[kind, NAME]["rules"]:
            names = tuple(rule.get("resourceNames", ()))
            found |= {(group, resource, verb, names) for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}
        return found

    def test_rights_are_exactly_those_that_the_controller_uses(self):
        """OPS-9, SEC-2: Secrets are read by name and never listed."""
        wanted = {
            ("asya.sh", "asyncactors"): "get list watch patch",
            ("asya.sh", "asyncactors/status"): "patch update",
            ("asya.sh", "asyncactors/finalizers"): "patch update",
            ("apps", "deployments"): "get list watch create patch delete",
            ("", "configmaps"): "get list watch create patch delete",
            ("", "pods"): "get list watch",
            ("", "namespaces"): "get list watch",
            ("", "secrets"): "get",
            ("", "events"): "create patch",
            ("events.k8s.io", "events"): "create patch",
            ("apiextensions.k8s.io", "customresourcedefinitions"): "get list watch",
        }
        expected = {(group, resource, verb, ()) for (group, resource), verbs in wanted.items() for verb in verbs.split()}
        own = {("apiextensions.k8s.io", "customresourcedefinitions", verb, ("asyncactors.asya.sh",)) for verb in ("create", "patch")}
        self.assertEqual(self.rules(self.default), expected | own)
        self.assertEqual(self.rules(self.helm.objects({"crds": {"manage": False}})), expected)

    def test_leases_are_written_in_the_own_namespace_only(self):
        """OPS-9"""
        lease = {("coordination.k8s.io", "leases", verb, ()) for verb in ("get", "create", "update")}
        self.assertEqual(self.rules(self.default, "Role"), lease)
        self.assertEqual(self.default["Role", NAME]["metadata"]["namespace"], "asya-system")
        self.assertNotIn(("Role", NAME), self.helm.objects({"leaderElection": {"enabled": False}}))

    def test_rights_are_bound_to_the_service_account(self):
        objects = self.helm.objects({"serviceAccount": {"name": "other"}})
        for kind in ("ClusterRole", "Role"):
            binding = objects[kind + "Binding", NAME]
            self.assertEqual(binding["roleRef"], {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME})
            self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", "name": "other", "namespace": "asya-system"}])

    def test_rbac_can_be_left_to_the_user(self):
        """OPS-10: rbac.create"""
        kinds = {kind for kind, _ in self.helm.objects({"rbac": {"create": False}})}
        self.assertEqual(kinds, {"ServiceAccount", "Deployment", "Service"})

    # Values

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

    def test_sidecar_resources_reach_the_controller_as_json(self):
        """POD-1"""
        resources = {"requests": {"cpu": "7m"}, "limits": {"cpu": 7, "memory": "7Gi"}}
        given = json.loads(self.look(self.deployment({"sidecar": {"defaultResources": resources}}), "$ASYA_SIDECAR_DEFAULT_RESOURCES"))
        self.assertEqual(given, {"requests": {"cpu": "7m", "memory": "64Mi"}, "limits": {"cpu": 7, "memory": "7Gi"}})

    def test_service_account_can_be_annotated_or_left_to_the_user(self):
        annotated = self.helm.objects({"serviceAccount": {"annotations": {"a": "b"}}})
        self.assertEqual(annotated["ServiceAccount", NAME]["metadata"]["annotations"], {"a": "b"})
        self.assertNotIn("ServiceAccount", {kind for kind, _ in self.helm.objects({"serviceAccount": {"create": False}})})

    def test_metrics_can_be_switched_off(self):
        """OPS-10: metrics.enabled"""
        objects = self.helm.objects({"metrics": {"enabled": False}})
        self.assertNotIn("Service", {kind for kind, _ in objects})
        ports = objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"][0]["ports"]
        self.assertEqual([each["name"] for each in ports], ["health"])

    def test_an_upgrade_without_leader_election_never_runs_two_controllers(self):
        deployment = self.deployment({"leaderElection": {"enabled": False}})
        self.assertEqual(deployment["spec"]["strategy"], {"type": "Recreate"})
        self.assertNotIn("strategy", self.default["Deployment", NAME]["spec"])
        self.assert_refused_at("replicaCount", {"leaderElection": {"enabled": False}, "replicaCount": 2})

    def test_health_check_can_be_switched_off_by_a_number_too(self):
        """QUE-21"""
        values = {"controller": {"queueHealthCheckInterval": 0}}
        self.assertEqual(self.look(self.deployment(values), "$ASYA_QUEUE_HEALTH_CHECK_INTERVAL"), "0")

    def test_path_at_which_the_controller_looks_anyway_is_not_demanded(self):
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

    def test_values_of_earlier_releases_may_stand_under_operator(self):
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
            "passwordSecretRef": secret, "urlSecretRef": secret, "exchange": "asya",
            "management": {"scheme": "https", "host": "mgmt", "port": 15671, "caSecretRef": secret, "insecureSkipVerify": True},
            "queues": {"autoCreate": False, "forceRecreate": False, "nameTemplate": "asya-{namespace}-{actor}", "type": "quorum",
                       "dlq": {"enabled": True, "maxRetryCount": 5, "retentionDays": 30, "name": "asya-dead"}},
        }}
        self.assertEqual(self.transports({"transports": {"mq": transport}}), {"mq": transport})

    def test_all_settings_of_an_sqs_transport_are_accepted(self):
        """SQS-1, QUE-1, QUE-7, QUE-14"""
        secret = {"name": "sqs-secret", "key": "id"}
        transport = {"type": "sqs", "enabled": True, "config": {
            "region": "cn-north-1", "accountId": "000000000000", "endpoint": "http://localstack:4566",
            "actorRoleArn": "arn:aws:iam::000000000000:role/actor", "visibilityTimeout": 300, "waitTimeSeconds": 20,
            "credentials": {"accessKeyIdSecretRef": secret, "secretAccessKeySecretRef": secret}, "tags": {"env": "test"},
            "queues": {"autoCreate": True, "forceRecreate": True, "nameTemplate": "asya-{actor}",
                       "dlq": {"enabled": True, "maxRetryCount": 3, "retentionDays": 14, "name": "asya-dlq"}},
        }}
        self.assertEqual(self.transports({"transports": {"eu": transport}}), {"eu": transport})

    # Bad values

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
        self.assert_refused_at("transports/mq", {"transports": {"mq": {"enabled": True}}})
        self.assert_refused_at("transports/mq", {"transports": {"mq": {"type": "rabbitmq", "enabled": True}}})
        self.assert_refused_at("transports/mq/config", {"transports": {"mq": {**RABBITMQ, "config": {"port": 5672}}}})

    def test_removed_value_is_refused_not_a_template_error(self):
        for key in ("metrics", "image", "controller", "runtime", "crds"):
            with self.subTest(key):
                self.assertIn(key, self.refusal({key: None}))
                self.assertNotIn("nil pointer", self.refusal({key: None}))


class WithHelm3(Chart, unittest.TestCase):
    major = 3


class WithHelm4(Chart, unittest.TestCase):
    major = 4


class WithBoth(unittest.TestCase):
    def test_helm_3_and_helm_4_render_the_same_objects(self):
        for values in (None, TESTS / "compat-values.yaml"):
            self.assertEqual(Helm(3).objects(values), Helm(4).objects(values))


if __name__ == "__main__":
    unittest.main()
