"""The provenance says what was released, from which commit, and with what."""

import hashlib
import pathlib
import tempfile
import unittest

import modules

import provenance


class Provenance(unittest.TestCase):
    def test_subjects_are_files_and_images_with_their_digests(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "install.yaml")
            path.write_text("kind: Namespace\n")
            image = "registry.example.com:5000/asya/asya-operator:0.2.0@sha256:" + "a" * 64
            found = provenance.subjects([path], [image])
        digest = hashlib.sha256(b"kind: Namespace\n").hexdigest()
        expected = [
            {"name": "install.yaml", "digest": {"sha256": digest}},
            {"name": "registry.example.com:5000/asya/asya-operator", "digest": {"sha256": "a" * 64}},
        ]
        self.assertEqual(found, expected)

    def statement(self, source):
        parameters = {"version": "0.2.0"}
        return provenance.statement([], parameters, source, "c" * 40, [{"name": "m"}], {"rustc": "1"}, "builder")

    def test_statement_is_slsa_provenance_of_a_commit(self):
        found = self.statement("https://example.com/asya.git")
        self.assertEqual(found["_type"], "https://in-toto.io/Statement/v1")
        self.assertEqual(found["predicateType"], "https://slsa.dev/provenance/v1")
        definition = found["predicate"]["buildDefinition"]
        self.assertEqual(definition["externalParameters"], {"version": "0.2.0"})
        self.assertEqual(definition["internalParameters"], {"tools": {"rustc": "1"}})
        source = {
            "name": "source",
            "uri": "git+https://example.com/asya.git",
            "digest": {"gitCommit": "c" * 40},
        }
        self.assertEqual(definition["resolvedDependencies"], [source, {"name": "m"}])
        self.assertEqual(found["predicate"]["runDetails"], {"builder": {"id": "builder"}})

    def test_commit_without_a_repository_has_no_address(self):
        source = self.statement("")["predicate"]["buildDefinition"]["resolvedDependencies"][0]
        self.assertEqual(source, {"name": "source", "digest": {"gitCommit": "c" * 40}})

    def test_login_of_a_repository_is_not_published(self):
        self.assertEqual(provenance.repository("https://me:secret@example.com/a"), "git+https://example.com/a")


if __name__ == "__main__":
    unittest.main()
