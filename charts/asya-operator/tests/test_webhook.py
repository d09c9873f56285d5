"""What the chart installs of the admission webhook."""

import unittest

from chart import SQS, ChartCase, at
from helm import NAME

WEBHOOK = NAME + "-webhook"
LABELS = {"app.kubernetes.io/name": WEBHOOK, "app.kubernetes.io/instance": NAME}
CONTAINER = "spec.template.spec.containers.0"

# Another value, where in the webhook's Deployment it must arrive, and as what (default: itself).
ARRIVES = {
    "webhook.replicaCount": (5, "spec.replicas"),
    "webhook.port": (10250, "--webhook-bind-address", ":10250"),
    "webhook.serviceAccountName": ("other", "spec.template.spec.serviceAccountName"),
    "webhook.validation.mode": ("Warn", "--validation"),
    "webhook.resources.requests.cpu": ("7m", CONTAINER + ".resources.requests.cpu"),
    "webhook.resources.requests.memory": ("7Mi", CONTAINER + ".resources.requests.memory"),
    "webhook.resources.limits.memory": ("7Gi", CONTAINER + ".resources.limits.memory"),
    "health.port": (9091, "--health-probe-bind-address", ":9091"),
    "logLevel": ("debug", "--log-level"),
    "image.tag": ("9", CONTAINER + ".image", "asya-operator:9"),
    "image.pullPolicy": ("Always", CONTAINER + ".imagePullPolicy"),
    "imagePullSecrets": ([{"name": "pull"}], "spec.template.spec.imagePullSecrets"),
    "nodeSelector": ({"a": "b"}, "spec.template.spec.nodeSelector"),
    "tolerations": ([{"key": "a", "operator": "Exists"}], "spec.template.spec.tolerations"),
    "affinity": ({"nodeAffinity": {}}, "spec.template.spec.affinity"),
    "priorityClassName": ("high", "spec.template.spec.priorityClassName"),
    "podAnnotations": ({"a": "b"}, "spec.template.metadata.annotations.a", "b"),
    "podLabels": ({"a": "b"}, "spec.template.metadata.labels.a", "b"),
    "env": ([{"name": "A", "value": "b"}], "$A", "b"),
    "webhook.clientCA": ("-----BEGIN CERTIFICATE-----\nabc", "$ASYA_WEBHOOK_CLIENT_CA"),
    "gatewayURL": ("http://gateway", "$ASYA_GATEWAY_URL"),
    "sidecar.image": ("sidecar:7", "$ASYA_SIDECAR_IMAGE"),
    "binding.runtimeImage": ("python:7", "$ASYA_BINDING_RUNTIME_IMAGE"),
    "binding.openshift": (True, "$ASYA_OPENSHIFT", "true"),
}


class Webhook(ChartCase):
    def webhook(self, values=None):
        return self.deployment(values, name=WEBHOOK)

    def test_every_value_of_the_webhook_arrives_where_it_belongs(self):
        """OPS-11, AVL-1"""
        default = self.webhook()
        for path, (value, place, *rest) in ARRIVES.items():
            with self.subTest(path):
                wanted = rest[0] if rest else value
                self.assertEqual(self.look(self.webhook(at(path, value)), place), wanted)
                self.assertNotEqual(self.look(default, place), wanted)

    def test_both_programs_know_the_same_transports_and_settings(self):
        """ADM-7: what one admits, the other must be able to run."""
        values = {"transports": {"sqs": SQS}, "gatewayURL": "http://gateway", "sidecar": {"image": "sidecar:7"}}
        read = lambda name: {
            each["name"]: each.get("value")
            for each in self.deployment(values, name=name)["spec"]["template"]["spec"]["containers"][0]["env"]
        }
        controller, webhook = read(NAME), read(WEBHOOK)
        for name in ("ASYA_TRANSPORT_CONFIG", "ASYA_GATEWAY_URL", "ASYA_SIDECAR_IMAGE", "ASYA_SIDECAR_DEFAULT_RESOURCES"):
            self.assertEqual(webhook[name], controller[name])

    def test_two_replicas_are_spread_where_possible_and_a_drain_takes_one(self):
        """AVL-1"""
        spec = self.webhook()["spec"]
        self.assertEqual(spec["replicas"], 2)
        spread = spec["template"]["spec"]["topologySpreadConstraints"]
        self.assertEqual({each["topologyKey"] for each in spread}, {"kubernetes.io/hostname", "topology.kubernetes.io/zone"})
        self.assertEqual({each["whenUnsatisfiable"] for each in spread}, {"ScheduleAnyway"})
        self.assertEqual({each["nodeTaintsPolicy"] for each in spread}, {"Honor"})
        self.assertEqual([each["labelSelector"]["matchLabels"] for each in spread], [LABELS, LABELS])
        budget = self.default["PodDisruptionBudget", WEBHOOK]["spec"]
        self.assertEqual(budget, {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}, "unhealthyPodEvictionPolicy": "AlwaysAllow"})
        share = self.helm.objects(at("webhook.podDisruptionBudget.maxUnavailable", "50%"))
        self.assertEqual(share["PodDisruptionBudget", WEBHOOK]["spec"]["maxUnavailable"], "50%")
        self.assertNotIn(("PodDisruptionBudget", WEBHOOK), self.helm.objects(at("webhook.podDisruptionBudget.enabled", False)))

    def test_high_availability_is_one_value(self):
        """AVL-1"""
        spec = self.webhook(at("ha.enabled", True))["spec"]
        self.assertEqual(spec["replicas"], 3)
        spread = spec["template"]["spec"]["topologySpreadConstraints"]
        # A hard rule takes no node without its label, and many clusters label no zones.
        rules = {each["topologyKey"]: each["whenUnsatisfiable"] for each in spread}
        self.assertEqual(rules, {"kubernetes.io/hostname": "DoNotSchedule", "topology.kubernetes.io/zone": "ScheduleAnyway"})
        self.assertEqual({each["nodeTaintsPolicy"] for each in spread}, {"Honor"})
        for count, replicas in ((1, 3), (5, 5)):
            values = {"ha": {"enabled": True}, "webhook": {"replicaCount": count}}
            self.assertEqual(self.webhook(values)["spec"]["replicas"], replicas)
            self.assertEqual(self.look(self.deployment(values), "--webhook-replicas"), str(replicas))

    def test_service_reaches_the_webhook_and_nothing_of_the_controllers_does(self):
        """ADM-1"""
        service = self.default["Service", WEBHOOK]["spec"]
        self.assertEqual(service["selector"], LABELS)
        ports = {each["name"]: (each["port"], each["targetPort"]) for each in service["ports"]}
        self.assertEqual(ports, {"webhook": (443, "webhook"), "metrics": (8081, "health")})
        pod = self.webhook()["spec"]["template"]
        self.assertEqual(pod["metadata"]["labels"], LABELS)
        self.assertEqual({each["name"]: each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]}, {"webhook": 9443, "health": 8081})
        controller = self.default["Deployment", NAME]["spec"]["selector"]["matchLabels"]
        self.assertFalse(controller.items() <= LABELS.items())

    def test_a_pod_ends_after_its_reviews(self):
        """AVL-3: 10 s until nobody sends any, 5 s for those under way."""
        self.assertGreater(self.webhook()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 15)
        self.assertEqual(self.webhook()["spec"]["strategy"], {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}})

    def test_pod_meets_the_restricted_pod_security_standard(self):
        controller, webhook = (self.default["Deployment", name]["spec"]["template"]["spec"] for name in (NAME, WEBHOOK))
        self.assertEqual(webhook["securityContext"], controller["securityContext"])
        self.assertEqual(webhook["containers"][0]["securityContext"], controller["containers"][0]["securityContext"])

    def test_webhook_may_read_actors_its_certificate_and_its_facts_and_write_events(self):
        """CFG-10, CERT-8, ADM-27: not the keys of its CAs"""
        rules = lambda kind: {
            (resource, verb, tuple(rule.get("resourceNames", ())))
            for rule in self.default[kind, WEBHOOK]["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        read = ("get", "list", "watch")
        events = {("events", "create", ())}
        clusters = {("rayclusters", "list", ()), ("rayclusters", "watch", ())}
        self.assertEqual(rules("ClusterRole"), {("asyncactors", verb, ()) for verb in read} | events | clusters)
        own = {(kind, verb, (name,)) for verb in read for kind, name in (("secrets", WEBHOOK + "-tls"), ("configmaps", WEBHOOK + "-facts"))}
        self.assertEqual(rules("Role"), own)
        for kind in ("ClusterRole", "Role"):
            (subject,) = self.default[kind + "Binding", WEBHOOK]["subjects"]
            self.assertEqual(subject["name"], WEBHOOK)

    def test_webhook_knows_its_certificate_and_what_that_must_name(self):
        """CERT-1"""
        names = "asya-operator-webhook.asya-system.svc,asya-operator-webhook.asya-system.svc.cluster.local"
        self.assertEqual(self.look(self.webhook(), "--tls-secret"), WEBHOOK + "-tls")
        self.assertEqual(self.look(self.webhook(), "--tls-names"), names)
        self.assertEqual(self.look(self.webhook(), "--facts-config-map"), WEBHOOK + "-facts")
        self.assertFalse({kind for kind, _ in self.default} & {"Certificate", "Issuer"})

    def test_cert_manager_makes_the_certificate_where_it_is_asked_to(self):
        """CERT-7"""
        objects = self.helm.objects(at("webhook.certManager.enabled", True))
        leaf, authority = objects["Certificate", WEBHOOK]["spec"], objects["Certificate", WEBHOOK + "-ca"]["spec"]
        self.assertEqual((leaf["secretName"], leaf["issuerRef"]), (WEBHOOK + "-tls", {"name": WEBHOOK + "-ca"}))
        self.assertEqual(",".join(leaf["dnsNames"]), self.look(self.webhook(), "--tls-names"))
        self.assertEqual(objects["Issuer", WEBHOOK + "-ca"]["spec"]["ca"]["secretName"], authority["secretName"])
        self.assertIs(authority["isCA"], True)
        given = {"name": "corporate", "kind": "ClusterIssuer"}
        objects = self.helm.objects(at("webhook.certManager", {"enabled": True, "issuerRef": given}))
        self.assertEqual(objects["Certificate", WEBHOOK]["spec"]["issuerRef"], given)
        self.assertEqual([key for key in objects if key[0] in ("Certificate", "Issuer")], [("Certificate", WEBHOOK)])

    def test_network_policy_lets_in_what_is_served(self):
        objects = self.helm.objects({"networkPolicy": {"enabled": True}, "metrics": {"enabled": False}})
        rules = lambda name: objects["NetworkPolicy", name]["spec"]["ingress"]
        ports = lambda name: [each["port"] for rule in rules(name) for each in rule["ports"]]
        self.assertEqual(ports(WEBHOOK), [9443, 8081])
        self.assertEqual(ports(NAME), [8081])
        self.assertFalse([rule for name in (WEBHOOK, NAME) for rule in rules(name) if "from" in rule])
        selected = objects["NetworkPolicy", WEBHOOK]["spec"]["podSelector"]["matchLabels"]
        self.assertEqual(selected, LABELS)
        self.assertFalse({kind for kind, _ in self.default} & {"NetworkPolicy"})

    def test_network_policy_admits_only_the_named_sources(self):
        """ADM-23"""
        servers, scrapers = [{"ipBlock": {"cidr": "10.0.0.0/28"}}], [{"podSelector": {"matchLabels": {"a": "b"}}}]
        values = {"networkPolicy": {"enabled": True, "reviewsFrom": servers, "metricsFrom": scrapers}}
        objects = self.helm.objects(values)
        reviews, health, tests = objects["NetworkPolicy", WEBHOOK]["spec"]["ingress"]
        self.assertEqual((reviews["from"], health["from"]), (servers, scrapers))
        metrics, tests_too = objects["NetworkPolicy", NAME]["spec"]["ingress"]
        self.assertEqual(metrics["from"], scrapers)
        self.assertEqual(tests, tests_too)

    def test_network_policy_admits_helm_test_to_readiness(self):
        """CFG-11"""
        values = {"networkPolicy": {"enabled": True, "metricsFrom": [{"ipBlock": {"cidr": "10.0.0.0/28"}}]}}
        objects = self.helm.objects(values)
        for name in (NAME, WEBHOOK):
            tests = objects["NetworkPolicy", name]["spec"]["ingress"][-1]
            self.assertEqual([each["port"] for each in tests["ports"]], [8081])
            ((_, selector),) = [(key, each) for peer in tests["from"] for key, each in peer.items()]
            labels = objects["Pod", NAME + "-ready"]["metadata"]["labels"]
            self.assertTrue(selector["matchLabels"] and selector["matchLabels"].items() <= labels.items())
        # Nothing of `helm test` asks the controller without its Service.
        without = self.helm.objects({**values, "metrics": {"enabled": False}})
        self.assertEqual(len(without["NetworkPolicy", NAME]["spec"]["ingress"]), 1)

    def test_without_the_webhook_nothing_of_it_is_left(self):
        objects = self.helm.objects({"webhook": {"enabled": False}, "networkPolicy": {"enabled": True}, "ha": {"enabled": True}})
        self.assertFalse([key for key in objects if "webhook" in key[1]])


class WithHelm3(Webhook, unittest.TestCase):
    major = 3


class WithHelm4(Webhook, unittest.TestCase):
    major = 4


if __name__ == "__main__":
    unittest.main()
