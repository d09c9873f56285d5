"""Tests of references.py and of the package that reads the source for it."""

import pathlib
import re
import tempfile
import unittest
from unittest import mock

import references
from reference import api, crd_yaml, markdown, metrics, rust, source, transports, values, values_yaml, variables


class Rust(unittest.TestCase):
    def test_constants_refer_to_each_other_by_their_values(self):
        text = 'pub mod a {\n    pub const IN: &str = "x/in";\n}\n/// The first.\npub const ONE: &str = "x/one";\n/// As [`ONE`].\nconst TWO: &str = "x/two";\n'
        self.assertEqual([(it.name, it.description, it.value) for it in rust.strings(text)], [("ONE", "The first.", "x/one"), ("TWO", "As `x/one`.", "x/two")])
        self.assertEqual([it.value for it in rust.strings(text, "a")], ["x/in"])

    def test_flags_have_variable_and_default(self):
        text = 'pub struct Args {\n    /// The `name`.\n    #[arg(\n        long,\n        env = "NAME",\n        default_value = "a, b"\n    )]\n    pub own_name: String,\n    #[arg(long, default_value_t = 3)]\n    pub count: u16,\n    #[command(flatten)]\n    more: More,\n}\n'
        wanted = [rust.Flag("--own-name", "NAME", "a, b", "The name."), rust.Flag("--count", "", "3", "")]
        self.assertEqual(rust.flags(text, "Args"), (wanted, ["More"]))


class Yaml(unittest.TestCase):
    def test_what_the_crd_contains_is_understood(self):
        text = '# comment\na:\n- b: 1\n  c: "x: y"\n- plain\nd:\n  e: >-\n    one\n    two\n  f: true\n  g: []\n"h": \'it\'\'s\'\n'
        self.assertEqual(crd_yaml.parse(text), {"a": [{"b": 1, "c": "x: y"}, "plain"], "d": {"e": "one two", "f": True, "g": []}, "h": "it's"})

    def test_anything_else_is_an_error(self):
        for text in ("a: [1, 2]", "a: &b 1", "a: 1\n    b: 2", "a:\n- b\n c"):
            with self.assertRaises(ValueError, msg=text):
                crd_yaml.parse(text)

    def test_values_have_their_comments_and_defaults(self):
        text = '# About a.\na:\n  # -- The b\n  # of a. Example:\n  #   b: 2\n  b: 1\n  # -- All of c.\n  c:\n    d: {}\n    e: [x]\nf: ""\n'
        found = list(values_yaml.rows(values_yaml.parse(text), lambda _: False))
        wanted = [("a.b", "The b of a.", "1"), ("a.c", "All of c.", "{d: {}, e: [x]}"), ("f", "", '""')]
        self.assertEqual([(it.path, it.description, it.default) for it in found], wanted)

    def test_keys_that_the_schema_describes_have_rows_of_their_own(self):
        text = "# -- Kinds.\nkinds:\n  a: true\n  b: false\n"
        found = list(values_yaml.rows(values_yaml.parse(text), lambda _: True))
        self.assertEqual([(it.path, it.default) for it in found], [("kinds", ""), ("kinds.a", "true"), ("kinds.b", "false")])


class Descriptions(unittest.TestCase):
    """Whatever has no description fails, so that lint does."""

    def refused(self, page, path, old, new):
        """The page fails if this is changed in a file."""
        real = source.text
        changed = real(path).replace(old, new)
        self.assertFalse(changed == real(path), "%s is not in %s" % (old, path))
        with mock.patch.object(source, "text", lambda it: changed if it == path else real(it)):
            with self.assertRaises(source.Undescribed) as found:
                page()
        return str(found.exception)

    def test_missing_ones_are_named(self):
        names = "shared/src/names.rs"
        for page, path, old, new, named in (
            (references.PAGES["labels"].page, names, "    /// The actor's name on its pods; part of the selector.\n", "", "APP"),
            (references.PAGES["labels"].page, names, "    /// On an actor: the IAM role of its pods (SA-1).\n", "", "ROLE_ARN"),
            (metrics.page, "controller/src/telemetry/metrics.rs", '"Actors that cannot be decoded"', '""', "undecodable_objects"),
            (metrics.page, "controller/src/telemetry/metrics.rs", "    /// Labels: `transport`.\n", "", "transport_up"),
            (values.page, values.VALUES, "  # -- When kubelets pull it: Always, IfNotPresent or Never.\n  pullPolicy:", "  other:", "image.other"),
            (values.page, values.VALUES, 'logLevel: info', 'logLevel: info\nnew: ""', "new"),
            (api.page, api.CRD, "description: Configures the actor's queue.\n", "minimum: 1\n", "spec.queue"),
            (references.PAGES["flags"].page, "controller/src/app/args.rs", "    /// Address that serves /metrics.\n", "", "--metrics-bind-address"),
            (references.PAGES["flags"].page, variables.SIDECAR, "/// Virtual host.\n", "", "RABBITMQ_VHOST"),
            (references.PAGES["flags"].page, variables.RUNTIME, 'environ.get("ASYA_CHUNK_SIZE")', 'environ.get("ASYA_NEW")', "ASYA_NEW"),
        ):
            with self.subTest(named):
                self.assertIn(named, self.refused(page, path, old, new))

    def test_transport_keys_are_those_that_the_operator_reads(self):
        schema = source.schema(transports.SCHEMA)["definitions"]
        for name, path in (("rabbitmq", "shared/src/config/rabbitmq.rs"), ("sqs", "shared/src/config/sqs.rs")):
            fields = re.findall(r"(\w+): Option<", rust.body(source.text(path), "struct Raw "))
            camel = {re.sub(r"_(\w)", lambda it: it.group(1).upper(), field) for field in fields}
            self.assertEqual(set(schema[name]["properties"]), camel)


class Pages(unittest.TestCase):
    def test_metrics_are_those_that_alerts_use(self):
        page = metrics.page()
        alerts = source.text("charts/asya-operator/alerts.yaml")
        used = set(re.findall(r"\b((?:asya|controller_runtime|workqueue)_\w+?)(?:_bucket)?(?=[{\[) ])", alerts))
        self.assertGreater(len(used), 10)
        self.assertEqual([name for name in sorted(used) if "`%s`" % name not in page], [])

    def test_codes_that_are_also_the_error_of_messages_are_marked(self):
        """SC-66"""
        marked = {code for code, is_error, _ in metrics.codes() if is_error == "yes"}
        self.assertEqual(marked, {"`%s`" % code for code in ("unsupported_generation", "runtime_crashed", "invalid_reply", "invalid_destination", "message_too_large")})

    def test_policies_name_the_actions_of_the_calls(self):
        text = "self.sqs.create_queue().send(); self.send_message_batch()\n#[cfg(test)]\nsqs.purge_queue()"
        with mock.patch.object(source, "text", lambda _: text):
            self.assertEqual(transports.actions(["any"]), {"sqs:CreateQueue", "sqs:SendMessage"})

    def test_literals_are_shown_as_users_write_them(self):
        for rust_text, wanted in (("Duration::from_mins(5)", "5m"), ("64 << 20", "64Mi"), ("43_200", "43200"), ('"asya_actor"', "asya_actor")):
            self.assertEqual(variables.literal(rust_text), wanted)

    def test_cells_keep_their_columns_and_text_its_characters(self):
        self.assertEqual(markdown.table(["A"], [["a|b"]]), "| A |\n| --- |\n| a\\|b |")
        self.assertEqual(markdown.escaped("<a> `<b>` *"), "\\<a> `<b>` \\*")

    def test_pages_are_compared_with_what_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "reference")
            references.write({"a": "1", "b": "2"}, path)
            self.assertEqual(references.outdated({"a": "1", "b": "2"}, path), [])
            self.assertEqual(references.outdated({"a": "1", "b": "3", "c": "4"}, path), ["b", "c"])
            self.assertEqual(references.outdated({"a": "1"}, path), ["b"])


if __name__ == "__main__":
    unittest.main()
