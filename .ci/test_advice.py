"""Tests of advice.py."""

import unittest

from advice import careless, shown


class Advice(unittest.TestCase):
    def test_deletion_of_an_actor_needs_a_word_about_its_queue_first(self):
        """QUE-48"""
        for text in [
            "cannot switch between workload and workloadRef: delete and recreate the AsyncActor",
            "fix: delete that actor or choose another target",
            "Repair or delete them",
            "kubectl delete asyncactors --all --all-namespaces\nTo keep the queues set Retain",
            "kubectl delete customresourcedefinition asyncactors.asya.sh",
            "first\nDelete the actor",
        ]:
            self.assertEqual(len(careless(text)), 1, text)

    def test_advice_that_first_says_how_to_keep_messages_is_accepted(self):
        """QUE-48"""
        for text in [
            "set queue.deletionPolicy to Retain, then delete and recreate the AsyncActor",
            "`DeleteIfEmpty` refuses.\n\nkubectl delete asyncactors --all",
            "when the actor is deleted",
            "What happens when somebody deletes an actor",
        ]:
            self.assertEqual(careless(text), [], text)

    def test_the_line_is_reported(self):
        self.assertEqual(careless("a\n  delete this actor\n"), [(2, "delete this actor")])

    def test_tests_and_comments_in_code_are_not_checked(self):
        code = '// delete the actor\nconst A: &str = "x";\n#[cfg(test)]\nmod tests { /* delete the actor */ }'
        self.assertEqual(careless(shown("a.rs", code)), [])
        self.assertEqual(len(careless(shown("a.rs", 'const A: &str = "delete the actor";'))), 1)


if __name__ == "__main__":
    unittest.main()
