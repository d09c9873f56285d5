"""What the chart installs, and with which rights."""

import unittest

from chart import RABBITMQ, SQS, ChartCase
from helm import CHART, NAME, TESTS, helm

WITHOUT_WEBHOOK = {"webhook": {"enabled": False}}


# Keys whose values name something, in whatever object.
NAMES = {"name", "namespace", "serviceAccountName", "app.kubernetes.io/name", "app.kubernetes.io/instance"}


def names_in(value):
    """The values of all these keys, whatever their depth."""
    if isinstance(value, list):
        for each in value:
            yield from names_in(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key in NAMES:
                yield each
            yield from names_in(each)


class Objects(ChartCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.alone = cls.helm.objects(WITHOUT_WEBHOOK)

    def test_default_installation_is_controller_and_webhook_with_their_accounts_rights_and_services(self):
        """OPS-10, CFG-1"""
        kinds = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"]
        wanted = {(kind, NAME) for kind in kinds} | {("Service", NAME + "-metrics"), ("ConfigMap", NAME + "-config"), ("Pod", NAME + "-ready"), ("Job", NAME + "-uninstall")}
        wanted |= {("ClusterRole", NAME + "-view"), ("ClusterRole", NAME + "-edit")}
        wanted |= {("ValidatingAdmissionPolicy", NAME + "-guard"), ("ValidatingAdmissionPolicyBinding", NAME + "-guard")}
        self.assertEqual(set(self.alone), wanted)
        webhook = NAME + "-webhook"
        wanted |= {(kind, webhook) for kind in [*kinds, "Service", "PodDisruptionBudget"]} | {("ClusterRole", webhook + "-anchor")}
        self.assertEqual(set(self.default), wanted)

    def test_controller_is_container_manager_with_its_arguments_and_environment(self):
        """FW-5 (a), ROLL-2 (e), OPS-1, OPS-2, OPS-10"""
        pod = self.default["Deployment", NAME]["spec"]["template"]["spec"]
        self.assertEqual([each["name"] for each in pod["containers"]], ["manager"])
        manager = pod["containers"][0]
        self.assertEqual(manager["command"], ["/asya-controller"])
        self.assertEqual(manager["args"], [
            "--metrics-bind-address=:8080", "--health-probe-bind-address=:8081", "--leader-elect=true", "--log-level=info",
            "--manage-crds=true", "--max-reconcile-interval=10h", "--min-reconcile-interval=1s", "--unready-deadline=5m", "--hpa-metrics-deadline=2m",
            "--conflict-wait=5s",
            "--retry-initial=1s", "--retry-multiplier=2", "--retry-max=5m", "--retry-attempts=0", "--impersonate=false", "--max-workload-rollouts=10",
            "--max-rollouts=3", "--watch-namespaces-file=/etc/asya/watch-namespaces",
            "--webhook-service=asya-operator-webhook", "--webhook-rules=asya-operator", "--webhook-replicas=2",
            "--webhook-cert-manager=false",
        ])
        self.assertEqual(manager["env"], [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "ASYA_TRANSPORT_CONFIG", "value": '{"transports":{}}'},
            {"name": "ASYA_OWN_SIDECAR_IMAGE", "value": "asya-sidecar:0.1.0"},
            {"name": "ASYA_SIDECAR_DEFAULT_RESOURCES", "value":
                '{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"64Mi"}}'},
            {"name": "ASYA_MAX_CONCURRENT_RECONCILES", "value": "50"},
            {"name": "ASYA_QUEUE_HEALTH_CHECK_INTERVAL", "value": "5m"},
            {"name": "ASYA_QUEUE_METRICS_INTERVAL", "value": "30s"},
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
            self.assertEqual(each["metadata"]["labels"]["app.kubernetes.io/instance"], NAME)

    def test_probes_and_metrics_service_reach_their_ports(self):
        """OPS-6, OPS-10"""
        objects = self.helm.objects({"metrics": {"port": 9090}, "health": {"port": 9091}})
        manager = objects["Deployment", NAME]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual({each["name"]: each["containerPort"] for each in manager["ports"]}, {"metrics": 9090, "health": 9091})
        self.assertEqual(manager["livenessProbe"]["httpGet"], {"path": "/healthz", "port": "health"})
        self.assertEqual(manager["readinessProbe"]["httpGet"], {"path": "/readyz", "port": "health"})
        ports = objects["Service", NAME + "-metrics"]["spec"]["ports"]
        self.assertEqual(ports, [{"name": "metrics", "port": 9090, "targetPort": "metrics"}, {"name": "health", "port": 9091, "targetPort": "health"}])

    def test_uninstall_first_checks_for_remaining_actors(self):
        """QUE-49, CFG-11"""
        values = {"controller": {"watchNamespaces": ["a", "b"]}}
        job = self.helm.objects(values)["Job", NAME + "-uninstall"]
        self.assertEqual(job["metadata"]["annotations"]["helm.sh/hook"], "pre-delete")
        self.assertEqual(job["spec"]["backoffLimit"], 0)
        pod = job["spec"]["template"]["spec"]
        self.assertEqual(pod["serviceAccountName"], NAME)
        (container,) = pod["containers"]
        rollback = "--helm-rollback=helm rollback asya-operator 1 --namespace asya-system"
        self.assertEqual(container["command"] + container["args"], ["/asya-controller", "--check-uninstall", rollback, "--watch-namespaces=a,b"])
        self.assertNotIn(("Job", NAME + "-uninstall"), self.helm.objects({"uninstallCheck": False}))
        # With rights in all namespaces, actors of those that were taken off the list are found, too.
        job = self.helm.objects({**values, "rbac": {"clusterWide": True}})["Job", NAME + "-uninstall"]
        (container,) = job["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["args"], ["--check-uninstall", rollback])

    def test_helm_test_asks_each_service_whether_what_is_behind_it_is_ready(self):
        """CFG-11"""
        pod = lambda values: self.helm.objects({"health": {"port": 9091}, **values}).get(("Pod", NAME + "-ready"))
        urls = lambda values: pod(values)["spec"]["containers"][0]["args"][0].split("=")[1].split(",")
        controller, webhook = ("http://%s.asya-system.svc:9091/readyz" % name for name in (NAME + "-metrics", NAME + "-webhook"))
        self.assertEqual(urls({}), [controller, webhook])
        self.assertEqual(urls(WITHOUT_WEBHOOK), [controller])
        self.assertEqual(urls({"metrics": {"enabled": False}}), [webhook])
        self.assertIsNone(pod({**WITHOUT_WEBHOOK, "metrics": {"enabled": False}}))
        manager, test = (each["spec"] for each in (self.default["Deployment", NAME]["spec"]["template"], pod({})))
        for key in ("image", "command", "securityContext"):
            self.assertEqual(test["containers"][0][key], manager["containers"][0][key])
        self.assertEqual(test["securityContext"], manager["securityContext"])
        self.assertEqual((test["restartPolicy"], test["automountServiceAccountToken"]), ("Never", False))
        self.assertEqual(pod({})["metadata"]["annotations"]["helm.sh/hook"], "test")
        # No Deployment, Service or budget takes it for a pod of its own.
        for (kind, name), each in self.default.items():
            selector = each.get("spec", {}).get("selector", {})
            selector = selector.get("matchLabels", selector)
            self.assertFalse(selector and selector.items() <= pod({})["metadata"]["labels"].items(), (kind, name))

    def test_pods_of_hooks_have_the_labels_and_annotations_of_pods_and_keep_their_own(self):
        """CFG-11: policies concern these pods, too."""
        own = self.helm.objects()
        labels = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/version": "other", "team": "platform"}
        annotations = {"sidecar.istio.io/inject": "false", "helm.sh/hook": "other"}
        objects = self.helm.objects({"podLabels": labels, "podAnnotations": annotations, "networkPolicy": {"enabled": True}})
        test = lambda objects: objects["Pod", NAME + "-ready"]["metadata"]
        job = lambda objects: objects["Job", NAME + "-uninstall"]["spec"]["template"]["metadata"]
        self.assertEqual(test(objects)["labels"], {**labels, **test(own)["labels"]})
        self.assertEqual(test(objects)["annotations"], {**annotations, **test(own)["annotations"]})
        self.assertEqual(job(objects)["labels"], {**labels, **job(own)["labels"]})
        self.assertEqual(job(objects)["annotations"], annotations)
        selected = 0
        for (kind, name), each in objects.items():
            spec = each.get("spec", {})
            selector = spec.get("selector") or spec.get("podSelector") or {}
            selector = selector.get("matchLabels", selector)
            selected += bool(selector)
            for pod in (test(objects), job(objects)):
                self.assertFalse(selector and selector.items() <= pod["labels"].items(), (kind, name))
        self.assertEqual(selected, 7)  # Deployments, Services, NetworkPolicies and the webhook's budget

    def test_pod_meets_the_restricted_pod_security_standard(self):
        pod = self.default["Deployment", NAME]["spec"]["template"]["spec"]
        self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
        self.assertNotEqual(pod["securityContext"]["runAsUser"], 0)
        self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        for container in pod["containers"]:
            self.assertEqual(container["securityContext"], {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            })
        self.assertFalse({"hostNetwork", "hostPID", "hostIPC"} & set(pod))
        self.assertEqual([set(volume) - {"name"} for volume in pod["volumes"]], [{"configMap"}])

    def test_chart_brings_no_crd_and_no_webhook_configuration(self):
        """OPS-10; the controller applies the CRD, and an upgrade by helm would not."""
        self.assertFalse((CHART / "crds").exists())
        kinds = {kind for kind, _ in self.helm.objects(TESTS / "compat-values.yaml")}
        self.assertFalse(kinds & {"CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})

    def test_notes_say_that_no_transport_is_enabled_by_default(self):
        """OPS-11"""
        self.assertIn("No transport is enabled", self.helm.notes())
        self.assertIn("No transport is enabled", self.helm.notes({"transports": {"mq": {**RABBITMQ, "enabled": False}}}))

    def test_notes_have_a_complete_command_that_enables_a_transport(self):
        """OPS-11"""
        self.assertIn("`helm upgrade asya-operator CHART --namespace asya-system ", self.helm.notes())
        self.assertIn("CHART is the chart, as `helm install` got it", self.helm.notes())

    def test_notes_name_the_enabled_transports(self):
        notes = self.helm.notes({"transports": {"mq": RABBITMQ, "queue": {**SQS, "enabled": False}}})
        self.assertIn("Enabled transports: mq.", notes)

    def test_notes_say_what_becomes_of_bindings(self):
        """OPS-11"""
        self.assertIn("Deployment asya-operator-webhook validates", self.helm.notes())
        self.assertIn("webhook.enabled is off", self.helm.notes(WITHOUT_WEBHOOK))

    def test_names_follow_the_release(self):
        self.assertIn(("Deployment", "mine-asya-operator"), self.helm.objects(release="mine"))
        self.assertIn(("Deployment", "my-asya-operator"), self.helm.objects(release="my-asya-operator"))

    def test_names_of_digits_stay_texts(self):
        """OPS-10: a label, a name or a namespace that is a number is refused by the API server."""
        everything = {
            "nameOverride": "123", "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]}, "podDisruptionBudget": {"enabled": True},
            "metrics": {kind: {"enabled": True} for kind in ("serviceMonitor", "prometheusRule", "dashboard")},
            "webhook": {"certManager": {"enabled": True}}, "priorityClassName": "123", "runtime": {"namespace": "7"},
            "controller": {"watchNamespaces": ["8"]}, "transports": {"mq": {**RABBITMQ, "config": {"host": "a", "passwordSecretRef": {"name": "9", "key": "b"}}}},
        }
        for release, name in (("1", "1-123"), ("123", "123")):
            objects = self.helm.parse(self.helm.text(everything, release, "123"))
            self.assertEqual([each for each in names_in(objects) if not isinstance(each, (str, dict))], [], release)
            deployment = next(each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Deployment", name))
            self.assertEqual(deployment["metadata"]["namespace"], "123")
            labels = {"app.kubernetes.io/name": "123", "app.kubernetes.io/instance": release}
            self.assertEqual(deployment["spec"]["selector"]["matchLabels"], labels)
            self.assertEqual(deployment["spec"]["template"]["spec"]["priorityClassName"], "123")
            (rule,) = [rule for each in objects if each["kind"] == "Role" and each["metadata"]["namespace"] == "8" for rule in each["rules"] if rule["resources"] == ["secrets"]]
            self.assertEqual(rule["resourceNames"], ["9"])

    def test_lint_finds_nothing(self):
        self.helm.lint()
        self.helm.lint(TESTS / "compat-values.yaml")

    # Rights

    def rules(self, objects, kind="ClusterRole", name=NAME):
        found = set()
        for rule in objects[kind, name]["rules"]:
            names = tuple(rule.get("resourceNames", ()))
            found |= {(group, resource, verb, names) for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}
        return found

    def test_rights_are_exactly_those_that_the_controller_uses(self):
        """OPS-9, SEC-2: Secrets are read by name and never listed."""
        wanted = {
            ("asya.sh", "asyncactors"): "get list watch patch",
            ("asya.sh", "asyncactors/status"): "patch",
            ("asya.sh", "asyncactors/finalizers"): "update",
            ("apps", "deployments"): "get list watch create patch delete",
            ("apps", "statefulsets"): "get list watch create patch delete",
            ("apps", "deployments/scale"): "get patch",
            ("apps", "statefulsets/scale"): "get patch",
            ("", "configmaps"): "get list watch create patch delete",
            ("", "serviceaccounts"): "get list watch",
            ("keda.sh", "scaledobjects"): "get list watch create patch delete",
            ("keda.sh", "triggerauthentications"): "get list watch create patch delete",
            ("autoscaling", "horizontalpodautoscalers"): "get list watch",
            ("", "pods"): "get list watch",
            ("", "namespaces"): "get list watch",
            ("", "events"): "list watch",
            ("events.k8s.io", "events"): "create patch",
            ("apiextensions.k8s.io", "customresourcedefinitions"): "get list watch",
        }
        expected = {(group, resource, verb, ()) for (group, resource), verbs in wanted.items() for verb in verbs.split()}
        own = {("apiextensions.k8s.io", "customresourcedefinitions", verb, ("asyncactors.asya.sh",)) for verb in ("create", "patch")}
        unbound = {"binding": {"kinds": {kind: False for kind in self.KINDS}}}
        unbound.update(WITHOUT_WEBHOOK)
        self.assertEqual(self.rules(self.helm.objects(unbound)), expected | own)
        self.assertEqual(self.rules(self.helm.objects({**unbound, "crds": {"manage": False}})), expected)

    # What each key of binding.kinds lets be done beside get, list and watch, which is done with all of it.
    KINDS = {
        "workspaces": {("kaito.sh", "workspaces"): ""},
        "inferenceSets": {("kaito.sh", "inferencesets"): "", ("kaito.sh", "workspaces"): "", ("kaito.sh", "inferencesets/scale"): "get patch"},
        "inferenceServices": {
            ("serving.kserve.io", "inferenceservices"): "patch", ("serving.knative.dev", "services"): "",
            ("serving.knative.dev", "configurations"): "", ("serving.knative.dev", "revisions"): "",
        },
        "llmInferenceServices": {
            ("serving.kserve.io", "llminferenceservices"): "patch",
            ("leaderworkerset.x-k8s.io", "leaderworkersets"): "", ("leaderworkerset.x-k8s.io", "leaderworkersets/scale"): "get patch",
        },
        "rayClusters": {("ray.io", "rayclusters"): ""},
        "rayServices": {("ray.io", "rayservices"): "", ("ray.io", "rayclusters"): ""},
        "knativeServices": {
            ("serving.knative.dev", "services"): "patch", ("serving.knative.dev", "configurations"): "", ("serving.knative.dev", "revisions"): "",
        },
        "seldonDeployments": {("machinelearning.seldon.io", "seldondeployments"): ""},
        "seldonServers": {("mlops.seldon.io", "servers"): "", ("mlops.seldon.io", "models"): "", ("mlops.seldon.io", "servers/scale"): "get patch"},
        "bentoDeployments": {("serving.yatai.ai", "bentodeployments"): "patch"},
        "leaderWorkerSets": {("leaderworkerset.x-k8s.io", "leaderworkersets"): "", ("leaderworkerset.x-k8s.io", "leaderworkersets/scale"): "get patch"},
        "others": {("apps", "daemonsets"): "", ("apps", "replicasets"): ""},
    }

    def test_each_kind_that_is_bound_has_a_switch_for_its_rights(self):
        """BIND-63"""
        off = {kind: False for kind in self.KINDS}
        without = self.rules(self.helm.objects({"binding": {"kinds": off}}))
        all_of_them = set()
        for kind, resources in self.KINDS.items():
            wanted = set()
            for (group, resource), also in resources.items():
                verbs = also.split() if "/" in resource else ["get", "list", "watch"] + also.split()
                wanted |= {(group, resource, verb, ()) for verb in verbs}
            found = self.rules(self.helm.objects({"binding": {"kinds": {**off, kind: True}}}))
            self.assertEqual(found - without, wanted, kind)
            all_of_them |= wanted
        self.assertEqual(self.rules(self.default) - without, all_of_them)

    def test_webhook_configurations_are_written_by_name_and_go_with_the_owner_role(self):
        """CFG-1, CFG-10, AVL-5, CERT-8: the chart renders no configuration, only what the controller needs to make them.

        `delete` on what gets an owner: admission plugin OwnerReferencesPermissionEnforcement asks for it.
        """
        configurations = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        group, role = "admissionregistration.k8s.io", NAME + "-webhook-anchor"
        expected = {(group, kind, verb, ()) for kind in configurations for verb in ("get", "list", "watch")}
        injectors = tuple([NAME + "-injector"] + [NAME + "-injector-" + str(number) for number in range(2, 11)])
        for verb in ("create", "patch", "delete"):
            expected |= {(group, configurations[0], verb, injectors), (group, configurations[1], verb, (NAME + "-validator",))}
        expected |= {("rbac.authorization.k8s.io", "clusterroles", verb, (role,)) for verb in ("get", "list", "watch", "patch", "delete")}
        expected |= {("", "pods", "create", ()), ("", "pods/eviction", "create", ())}
        # SAFE-4, SAFE-6
        expected |= {("", kind, verb, ()) for kind in ("resourcequotas", "limitranges") for verb in ("list", "watch")}
        expected |= {("policy", "poddisruptionbudgets", verb, ()) for verb in ("get", "list", "watch")}
        self.assertEqual(self.rules(self.default) - self.rules(self.alone), expected)
        names = (NAME + "-webhook-tls", NAME + "-webhook-tls-authority")
        secret = {("", "secrets", verb, names) for verb in ("get", "list", "watch", "update", "delete")}
        secret.add(("", "secrets", "create", ()))
        dry_run = {("asya.sh", "asyncactors", "create", ())}
        self.assertEqual(self.rules(self.default, "Role") - self.rules(self.alone, "Role"), secret | dry_run)
        self.assertFalse(self.default["ClusterRole", role]["rules"])
        self.assertEqual(self.look(self.deployment(), "--webhook-rules"), NAME)
        self.assertEqual(self.look(self.deployment({"ha": {"enabled": True}}), "--webhook-replicas"), "3")

    def test_secrets_are_read_by_the_names_that_transports_give(self):
        """SEC-10: no other Secret can be read, and none at all without a transport that names one."""
        rabbitmq = {**RABBITMQ, "config": {"host": "rabbitmq", "passwordSecretRef": {"name": "login", "key": "password"}}}
        reference = lambda key: {"name": "aws", "key": key}
        credentials = {"accessKeyIdSecretRef": reference("id"), "secretAccessKeySecretRef": reference("secret")}
        sqs = {**SQS, "config": {"region": "eu-west-1", "credentials": credentials}}
        transports = {"transports": {"rabbitmq": rabbitmq}, "operator": {"transports": {"sqs": sqs}}}
        secrets = {rule for rule in self.rules(self.helm.objects(transports)) if rule[1] == "secrets"}
        self.assertEqual(secrets, {("", "secrets", "get", ("aws", "login"))})
        self.assertNotIn("secrets", {rule[1] for rule in self.rules(self.default)})

    def test_secrets_that_only_sidecars_read_are_out_of_reach(self):
        """SEC-10"""
        reference = lambda name: {"name": name, "key": "k"}
        config = {"host": "rabbitmq", "passwordSecretRef": reference("password"), "urlSecretRef": reference("url"), "caSecretRef": reference("amqp-ca"),
                  "management": {"caSecretRef": reference("management-ca")}}
        transports = {"mq": {**RABBITMQ, "config": config}, "sqs": {**SQS, "config": {"region": "eu-west-1", "caSecretRef": reference("sqs-ca")}}}
        secrets = {rule for rule in self.rules(self.helm.objects({"transports": transports})) if rule[1] == "secrets"}
        self.assertEqual(secrets, {("", "secrets", "get", ("management-ca", "password", "sqs-ca"))})
        config = {"host": "rabbitmq", "urlSecretRef": reference("url")}
        rules = self.rules(self.helm.objects({"transports": {"mq": {**RABBITMQ, "config": config}}}))
        self.assertNotIn("secrets", {rule[1] for rule in rules})

    def test_service_accounts_are_written_only_where_a_transport_can_have_roles(self):
        """SEC-11"""
        with_sqs = self.rules(self.helm.objects({"transports": {"sqs": SQS}}))
        self.assertEqual(with_sqs - self.rules(self.default), {("", "serviceaccounts", verb, ()) for verb in ("create", "patch", "delete")})
        self.assertEqual(self.rules(self.helm.objects({"transports": {"rabbitmq": RABBITMQ}})), self.rules(self.default))

    def test_rights_stay_in_the_watched_namespaces(self):
        """SEC-12: outside, the controller may read what belongs to no namespace, and write Events, the CRD and the webhook configurations."""
        rabbitmq = {**RABBITMQ, "config": {"host": "rabbitmq", "passwordSecretRef": {"name": "login", "key": "password"}}}
        values = {"controller": {"watchNamespaces": ["one", "two"]}, "runtime": {"namespace": "scripts"}, "transports": {"rabbitmq": rabbitmq}}
        objects = self.helm.parse(self.helm.text(values))
        roles = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in objects}
        everywhere = self.helm.objects({**values, "rbac": {"clusterWide": True}})
        for namespace in ("one", "two"):
            role = roles["Role", namespace, NAME + "-actors"]
            inside = self.rules({("Role", NAME): role}, "Role")
            outside = self.rules({("ClusterRole", NAME): roles["ClusterRole", None, NAME]})
            self.assertEqual(inside | outside, self.rules(everywhere))
            self.assertFalse(inside & outside)
            binding = roles["RoleBinding", namespace, NAME + "-actors"]
            self.assertEqual(binding["roleRef"]["name"], NAME + "-actors")
            self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", "name": NAME, "namespace": "asya-system"}])
        written = {rule[:2] for rule in outside if rule[2] not in ("get", "list", "watch")}
        self.assertEqual({resource for _, resource in written}, {
            "events", "customresourcedefinitions", "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "clusterroles",
        })
        self.assertEqual({resource for _, resource, *_ in outside} - {resource for _, resource in written}, {"namespaces"})
        for namespace in ("asya-system", "scripts"):
            home = self.rules({("Role", NAME): roles["Role", namespace, NAME + "-home"]}, "Role")
            self.assertEqual({rule[1] for rule in home}, {"configmaps", "secrets"})
        self.assertFalse([name for kind, name in everywhere if name in (NAME + "-actors", NAME + "-home")])

    def test_system_namespaces_and_real_pods_are_out_of_the_controllers_reach(self):
        """SEC-13"""
        policy = self.default["ValidatingAdmissionPolicy", NAME + "-guard"]["spec"]
        (condition,) = policy["matchConditions"]
        self.assertEqual(condition["expression"], "request.userInfo.username == 'system:serviceaccount:asya-system:asya-operator'")
        namespaces, pods = (each["expression"] for each in policy["validations"])
        self.assertIn("!request.namespace.startsWith('kube-')", namespaces)
        self.assertIn("request.dryRun", pods)
        self.assertEqual(self.default["ValidatingAdmissionPolicyBinding", NAME + "-guard"]["spec"]["policyName"], NAME + "-guard")
        off = self.helm.objects({"rbac": {"guard": False}})
        self.assertFalse([kind for kind, _ in off if kind.startswith("ValidatingAdmissionPolicy")])

    def test_roles_of_the_cluster_cover_asyncactors(self):
        """SEC-14"""
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        label = lambda name: {key[len(prefix):] for key in self.default["ClusterRole", NAME + name]["metadata"]["labels"] if key.startswith(prefix)}
        self.assertEqual(label("-view"), {"view", "edit", "admin"})
        self.assertEqual(label("-edit"), {"edit", "admin"})
        verbs = lambda name: {rule[2] for rule in self.rules(self.default, name=NAME + name)}
        self.assertEqual(verbs("-view"), {"get", "list", "watch"})
        self.assertEqual(verbs("-edit"), {"create", "update", "patch", "delete", "deletecollection"})
        off = self.helm.objects({"rbac": {"aggregate": False}})
        self.assertNotIn(("ClusterRole", NAME + "-edit"), off)

    def test_impersonation_is_allowed_only_where_it_is_switched_on(self):
        """FW-27, SAFE-34: what writes to targets of bindings is then a right of each namespace's account alone."""
        on = self.rules(self.helm.objects({"controller": {"impersonate": True}}))
        self.assertEqual(on - self.rules(self.default), {("", "serviceaccounts", "impersonate", ("asya-applier",))})
        off = self.rules(self.default) - on
        self.assertIn(("", "pods/eviction", "create", ()), off)
        self.assertEqual({verb for _, _, verb, _ in off}, {"patch", "create"})
        self.assertTrue(all("/" in resource or "." in group for group, resource, _, _ in off), off)

    def test_only_the_own_lease_is_written(self):
        """OPS-9"""
        lease = {("coordination.k8s.io", "leases", verb, ("asya-operator.asya.sh",)) for verb in ("get", "update")}
        lease.add(("coordination.k8s.io", "leases", "create", ()))
        self.assertEqual(self.rules(self.alone, "Role"), lease)
        self.assertEqual(self.default["Role", NAME]["metadata"]["namespace"], "asya-system")
        self.assertNotIn(("Role", NAME), self.helm.objects({**WITHOUT_WEBHOOK, "leaderElection": {"enabled": False}}))

    def test_rights_are_bound_to_the_service_account(self):
        objects = self.helm.objects({"serviceAccount": {"name": "other"}})
        for kind in ("ClusterRole", "Role"):
            binding = objects[kind + "Binding", NAME]
            self.assertEqual(binding["roleRef"], {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NAME})
            self.assertEqual(binding["subjects"], [{"kind": "ServiceAccount", "name": "other", "namespace": "asya-system"}])

    def test_rbac_can_be_left_to_the_user(self):
        """OPS-10: rbac.create"""
        kinds = {kind for kind, _ in self.helm.objects({"rbac": {"create": False}})}
        self.assertEqual(kinds, {"ServiceAccount", "Deployment", "Service", "ConfigMap", "PodDisruptionBudget", "Pod", "Job"})


class WithHelm3(Objects, unittest.TestCase):
    major = 3


class WithHelm4(Objects, unittest.TestCase):
    major = 4


class WithBoth(unittest.TestCase):
    def test_helm_3_and_helm_4_render_the_same_objects(self):
        for values in (None, TESTS / "compat-values.yaml"):
            self.assertEqual(helm(3).objects(values), helm(4).objects(values))


if __name__ == "__main__":
    unittest.main()
