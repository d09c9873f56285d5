"""What the documents show and name exists: manifests fit the CRD and the chart, commands, values, labels and files are there."""

import json
import re
import shlex
import unittest

import documents
from documents import TOP, Block, Schema, anchored_links, anchors, asya_names, blocks, commands, long_lines, make_targets, paths, set_paths

try:
    import yaml
except ImportError:
    yaml = None

DOCUMENTS = documents.documents()
WITH_README = {**DOCUMENTS, "README.md": (TOP / "README.md").read_text(encoding="utf-8")}
# Documents whose code spans may name fields of other systems' objects, or files below controller/src.
FOREIGN = ("docs/spec/", "docs/integrations/", "docs/adr/", "docs/reference/", "docs/architecture.md", "docs/kubernetes-facts.md", "docs/testing.md")
OWN = {name: text for name, text in DOCUMENTS.items() if not name.startswith(FOREIGN)}
FILE = re.compile(r"\.(rs|py|ya?ml|json|md)$")
# Lines of a shell.
COMMAND = re.compile(r"^(kubectl|helm|make|docker|kind|skopeo|cargo|rustup|apt-get|sha256sum|git) ", re.MULTILINE)
# The version in the name of an image, a chart or an archive of ours.
OWN_VERSION = re.compile(r"(?:\b(?:asya-operator|asya-sidecar|kubectl-asya)[:-]|\bimage\.tag=)(\d+\.\d+\.\d+)")
# Fields of Deployments and of other objects, by their full path.
OF_OTHERS = {"spec.replicas", "spec.template", "spec.selector", "spec.paused", "status.readyReplicas"}


class Names(unittest.TestCase):
    """Names in every document."""

    def test_labels_and_annotations_are_defined(self):
        defined = documents.defined_names()
        self.assertIn("asya.sh/roll-now", defined)
        for name, text in WITH_README.items():
            with self.subTest(name):
                self.assertEqual(sorted(asya_names(text) - defined), [])

    def test_targets_of_make_exist(self):
        rules = re.findall(r"^([^\t#=\n][^=:\n]*):(?!=)", (TOP / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        rules = " ".join(rules).split()
        self.assertIn("test-unit", rules)
        for name, text in WITH_README.items():
            with self.subTest(name):
                self.assertEqual(sorted(set(make_targets(text)) - set(rules)), [])

    def test_values_that_are_set_exist_in_the_chart(self):
        schema = documents.chart_schema()
        for name, text in WITH_README.items():
            with self.subTest(name):
                self.assertEqual([path for path in set_paths(text) if not schema.has(path)], [])

    def test_lines_wrap(self):
        for name, text in DOCUMENTS.items():
            with self.subTest(name):
                self.assertEqual(list(long_lines(text)), [], "lines of more than %d columns" % documents.WIDTH)

    def test_files_that_are_named_exist(self):
        for name, text in OWN.items():
            with self.subTest(name):
                self.assertEqual([path for path in sorted(paths(text)) if not (TOP / path).exists()], [])

    def test_headings_that_are_linked_exist(self):
        for name, text in WITH_README.items():
            with self.subTest(name):
                for file, heading in anchored_links(text):
                    path = (TOP / name).parent / file if file else TOP / name
                    if path.suffix == ".md" and path.exists():
                        self.assertIn(heading, anchors(path.read_text(encoding="utf-8")), file)

    def test_python_compiles(self):
        for name, text in WITH_README.items():
            for block in blocks(text):
                if block.language == "python":
                    compile(block.text, "%s:%d" % (name, block.line), "exec")

    def test_commands_that_no_test_runs_are_listed_as_such(self):
        """documents.py lists `sh` blocks; other blocks with commands are those of the pages that tests follow."""
        followed = {"docs/quickstart.md", "docs/install.md"}
        for name, text in DOCUMENTS.items():
            for block in blocks(text) if name not in followed else ():
                with self.subTest("%s:%d" % (name, block.line)):
                    self.assertFalse(block.language == "" and COMMAND.search(block.text), "an sh block")

    def test_versions_of_the_projects_files_are_the_charts(self):
        chart = (TOP / "charts/asya-operator/Chart.yaml").read_text(encoding="utf-8")
        version = re.search(r'^appVersion: "(.+)"$', chart, re.MULTILINE)[1]
        # Releasing shows the next version.
        for name, text in WITH_README.items():
            if name != "docs/releasing.md":
                with self.subTest(name):
                    self.assertEqual(set(OWN_VERSION.findall(text)) - {version}, set())

    def test_every_command_can_be_parsed_by_a_shell(self):
        for name, text in DOCUMENTS.items():
            for command in commands(text):
                with self.subTest("%s: %s" % (name, command)):
                    self.assertTrue(shlex.split(command))


class Pages(unittest.TestCase):
    """Pages that claim to cover everything of a kind."""

    def test_troubleshooting_names_every_reason_that_is_a_problem(self):
        reasons = {reason["name"] for reason in json.loads((TOP / "docs/reference/reasons.json").read_text(encoding="utf-8"))}
        page = DOCUMENTS["docs/troubleshooting.md"]
        missing = [reason for reason in sorted(reasons) if not re.search(r"\b%s\b" % reason, page)]
        self.assertGreater(len(reasons), 70)
        self.assertEqual(missing, [])

    def test_troubleshooting_names_every_reason_why_a_pod_has_no_sidecar(self):
        reviews = json.loads((TOP / "docs/reference/reviews.json").read_text(encoding="utf-8"))
        reasons = {reason["name"] for reason in reviews["pods"] + reviews["missing"]}
        # These leave no mark on a pod: it was not to get the sidecar, or it got it.
        unmarked = {"NotServed", "NoActor", "ActorDeleting", "NotBoundYet", "StrategyTemplate"}
        unmarked |= {"AlreadyInjected", "Replaced", "Restored", "Injected"}
        page = DOCUMENTS["docs/troubleshooting.md"]
        missing = [reason for reason in sorted(reasons - unmarked) if not re.search(r"\b%s\b" % reason, page)]
        self.assertGreater(len(reasons), 15)
        self.assertEqual(missing, [])

    def test_security_names_what_makes_the_operator_write_objects_of_names_that_the_author_chooses(self):
        table = DOCUMENTS["docs/security.md"].partition("## What rights on AsyncActors imply")[2].partition("\n## ")[0]
        through = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| "))
        for part in ("spec.workload`", "spec.workloadRef", "spec.adoptionPolicy", "eks.amazonaws.com/role-arn"):
            self.assertIn(part, through)

    def test_every_alert_has_a_runbook_and_every_runbook_an_alert(self):
        alerts = re.findall(r"- alert: (\w+)", (TOP / "charts/asya-operator/alerts.yaml").read_text(encoding="utf-8"))
        headings = re.findall(r"^## (Asya\w+)", DOCUMENTS["docs/runbooks.md"], re.MULTILINE)
        self.assertEqual(sorted(headings), sorted(alerts))


@unittest.skipIf(yaml is None, "manifests need PyYAML: pip install pyyaml")
class Manifests(unittest.TestCase):
    """Blocks of YAML in every document."""

    def setUp(self):
        crd = yaml.safe_load((TOP / "crds/asyncactors.yaml").read_text(encoding="utf-8"))
        version = crd["spec"]["versions"][0]
        properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
        properties.update(version["schema"]["openAPIV3Schema"]["properties"])
        self.actors = Schema({"type": "object", "properties": properties, "required": ["apiVersion", "kind", "metadata", "spec"]})
        self.values = documents.chart_schema()
        self.statuses = properties["status"]["properties"]["status"]["enum"]

    def documents_in(self, block):
        """The YAML documents of a block; an ellipsis stands for what is left out."""
        return [one for one in yaml.safe_load_all(block.text) if one is not None]

    def problems(self, document):
        """What is wrong with a manifest, or with a part of one or of the chart's values."""
        if not isinstance(document, dict):
            return []
        if document.get("kind") == "AsyncActor":
            # An ellipsis shows that fields of a status are left out.
            shown = {key: value for key, value in document.items() if key != "status"}
            return self.actors.errors(shown)
        if "kind" in document:
            return [name + " is missing" for name in ("apiVersion", "metadata") if name not in document]
        if set(document) == {"spec"}:
            return self.actors.errors(document, complete=False)
        if all(self.values.has(str(key)) for key in document):
            return self.values.errors(document, complete=False)
        return []

    def test_blocks_parse_and_fit_their_schemas(self):
        for name, text in WITH_README.items():
            for block in blocks(text):
                if block.language == "yaml":
                    with self.subTest("%s:%d" % (name, block.line)):
                        for document in self.documents_in(block):
                            self.assertEqual(self.problems(document), [])

    def test_guides_show_whole_manifests_or_values_of_the_chart(self):
        guides = {name: text for name, text in DOCUMENTS.items() if name.startswith("docs/guides/")}
        for name, text in guides.items():
            for block in blocks(text):
                for document in self.documents_in(block) if block.language == "yaml" else ():
                    with self.subTest("%s:%d" % (name, block.line)):
                        self.assertTrue({"apiVersion", "kind"} <= set(document) or all(self.values.has(key) for key in document))

    def test_fields_and_values_that_are_named_exist(self):
        first = {"spec", "status", *self.actors.names("spec"), *self.values.names("")}
        for name, text in OWN.items():
            with self.subTest(name):
                named = {re.split("[:=]", span)[0] for span in documents.spans(text)}
                fields = [it for it in named - OF_OTHERS if re.fullmatch(r"[a-z]\w*(\.[A-Za-z]\w*|\[\])+", it)]
                ours = [it for it in sorted(fields) if it.partition(".")[0] in first and not FILE.search(it)]
                self.assertEqual([it for it in ours if not self.exists(it)], [])

    def exists(self, path):
        return self.actors.has(path) or self.actors.has("spec." + path) or self.values.has(path)

    def test_troubleshooting_names_every_status(self):
        page = DOCUMENTS["docs/troubleshooting.md"]
        self.assertEqual([one for one in self.statuses if not re.search(r"\b%s\b" % one, page)], [])

    def test_unknown_fields_and_wrong_types_are_found(self):
        actor = {"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "metadata": {"name": "a"}}
        self.assertEqual(self.problems({**actor, "spec": {"transport": "t", "scaling": {"minReplica": 1}}}), ["spec.scaling.minReplica is not known"])
        self.assertEqual(self.problems({**actor, "spec": {"transport": 1}}), ["spec.transport must be string, not integer"])
        self.assertEqual(self.problems({**actor, "spec": {}}), ["spec.transport is missing"])
        self.assertEqual(self.problems({**actor, "spec": {"transport": "t", "queue": {"deletionPolicy": "Keep"}}})[0][:37], "spec.queue.deletionPolicy must be one")
        self.assertEqual(self.problems({"webhook": {"prt": 1}}), ["webhook.prt is not known"])


class Reading(unittest.TestCase):
    """The functions of documents.py, on invented texts."""

    def test_blocks_know_their_line_and_language(self):
        text = "a\n```sh\none\n```\n- b\n  ```yaml\n  c: 1\n  d:\n    e\n  ```\n"
        self.assertEqual(blocks(text), [Block(3, "sh", "one"), Block(7, "yaml", "c: 1\nd:\n  e")])

    def test_commands_are_joined_and_lose_their_comments(self):
        text = "```sh\n# first\nhelm install a \\\n  --set b=1   # why\n\nkubectl get c#d\n```\n```\nnot this\n```\n```sh\ncat <<'EOF'\nx\nEOF\nls\n```"
        self.assertEqual(list(commands(text)), ["helm install a --set b=1", "kubectl get c#d", "cat", "ls"])

    def test_targets_come_from_code_alone(self):
        text = "make sure that `make test-unit` works, as in `CI=1 make`.\n```sh\nmake image IMAGE=a/b:1 && make up\n```"
        self.assertEqual(list(make_targets(text)), ["test-unit", "image", "up"])

    def test_values_keep_their_path(self):
        self.assertEqual(list(set_paths("```sh\nhelm upgrade a --set x.y[0].z=1 --set-string=b=2\n```")), ["x.y[].z", "b"])

    def test_names_leave_out_versions_and_subresources(self):
        self.assertEqual(asya_names("asya.sh/v1alpha1 asyncactors.asya.sh/finalizers asya.sh/roll."), {"asya.sh/roll"})

    def test_tables_links_and_other_code_may_be_long(self):
        text = "\n".join(["x" * 11, "| " + "x" * 11, "[a](" + "x" * 11 + ")", "```rust", "x" * 11, "```", "```sh", "x" * 11, "```"])
        self.assertEqual(list(long_lines(text, 10)), [1, 8])

    def test_anchors_are_headings_without_punctuation(self):
        text = "# The API, at a glance\n## [A](b.md) `c`: d\n## Twice\n## Twice\n```sh\n# no heading\n```"
        self.assertEqual(anchors(text), {"the-api-at-a-glance", "a-c-d", "twice", "twice-1"})
        self.assertEqual(anchored_links("[a](b.md#c) [d](#e) [f](g.md)"), [("b.md", "c"), ("", "e")])

    def test_files_are_paths_with_a_known_ending(self):
        self.assertEqual(paths("`a/b.rs`, `a/b`, `b.rs`, `a/b.rs:1`, `c-d/e_f.yaml`"), {"a/b.rs", "c-d/e_f.yaml"})

    def test_schemas_follow_references_and_free_names(self):
        schema = Schema({"definitions": {"a": {"type": "object", "properties": {"b": {"type": ["string", "null"]}}, "additionalProperties": False}},
                         "properties": {"one": {"$ref": "#/definitions/a"}, "map": {"type": "object", "additionalProperties": {"type": "integer"}}}})
        self.assertEqual(schema.errors({"one": {"b": "x"}, "map": {"k": 1}}), [])
        self.assertEqual(schema.errors({"one": {"c": 1}, "map": {"k": "x"}}), ["one.c is not known", "map.k must be integer, not string"])
        self.assertTrue(schema.has("map.anything"))
        self.assertFalse(schema.has("one.c"))


if __name__ == "__main__":
    unittest.main()
