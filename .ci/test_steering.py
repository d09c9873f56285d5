"""Tests of steering.py. FW-30"""

import unittest

from steering import readers


class Steering(unittest.TestCase):
    def test_code_that_decides_by_a_condition_is_found(self):
        code = "let a = 1;\nlet mut all = observed.previous.conditions.iter();\n"
        for name in ["plan/rollout.rs", "observe.rs", "desired.rs", "apply/unbind.rs"]:
            self.assertEqual(readers("controller/src/reconcile/" + name, code), [2], name)
        broken = "let known = status\n    .conditions\n    .iter();"
        self.assertEqual(readers("webhook/src/index.rs", broken), [2])

    def test_code_that_reports_or_reads_other_objects_is_accepted(self):
        code = "observed.previous.conditions.iter()"
        for name in [
            "controller/src/reconcile/status.rs",
            "controller/src/reconcile/status/transport.rs",
            "controller/src/reconcile/model/availability.rs",
            "controller/src/record/crd.rs",
            "tests/src/scenario.rs",
        ]:
            self.assertEqual(readers(name, code), [], name)

    def test_comments_and_tests_decide_nothing(self):
        code = "// previous.conditions\nfn f() {}\n#[cfg(test)]\nmod tests { previous.conditions }"
        self.assertEqual(readers("controller/src/reconcile/plan.rs", code), [])


if __name__ == "__main__":
    unittest.main()
