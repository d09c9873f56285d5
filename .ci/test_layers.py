"""Tests of layers.py."""

import unittest

from layers import imported, order, upward

PAGE = """\
process/     asya-process  programs
  src/other/               of another crate
controller/  asya-controller; a folder imports only from folders below it in this list
  src/lib.rs               what simulations may use
  src/app/                 args.rs: flags; program.rs is the process
  src/reconcile/           mod.rs reads as observe -> plan
    observe/ plan/         one step each
  src/context.rs           clients
  src/scaling/  telemetry/   KEDA's objects; Events
webhook/     asya-webhook
  src/program.rs           the process
"""


class Order(unittest.TestCase):
    def test_folders_and_files_of_the_controller_are_listed_from_top_to_bottom(self):
        self.assertEqual(order(PAGE), ["app", "reconcile", "context", "scaling", "telemetry"])


class Imports(unittest.TestCase):
    def test_paths_and_groups_are_found_with_their_lines(self):
        text = "use std::fmt;\nuse crate::{app::args::{Args, flags}, context};\nfn f() {\n    crate::scaling::g();\n}\n"
        self.assertEqual(imported(["telemetry"], text), {"app": 2, "context": 2, "scaling": 4})

    def test_paths_that_go_up_to_the_root_are_found(self):
        text = "use super::sibling::Sibling;\nuse super::super::app::Args;\n"
        self.assertEqual(imported(["telemetry", "events"], text), {"app": 2})

    def test_comments_and_inline_tests_do_not_count(self):
        text = "//! [`crate::app`]\n#[cfg(test)]\nmod tests {\n    use crate::app::Args;\n}\n"
        self.assertEqual(imported(["telemetry"], text), {})


class Upward(unittest.TestCase):
    def upward(self, path, text):
        return list(upward(order(PAGE), {path: text}))

    def test_import_from_above_is_reported(self):
        where = "controller/src/telemetry/events.rs:1: app stands above telemetry in docs/architecture.md, section 2"
        self.assertEqual(self.upward("telemetry/events.rs", "use crate::app::Args;"), [where])
        self.assertEqual(len(self.upward("reconcile/mod.rs", "use crate::app::Args;")), 1)
        self.assertEqual(len(self.upward("context.rs", "use crate::reconcile::plan;")), 1)

    def test_imports_from_below_and_within_a_folder_are_accepted(self):
        self.assertEqual(self.upward("app/args.rs", "use crate::telemetry::events;\nuse crate::app::flags;"), [])
        self.assertEqual(self.upward("lib.rs", "pub use crate::app::run;"), [])

    def test_folder_that_the_page_does_not_list_is_reported(self):
        self.assertEqual(self.upward("new/mod.rs", ""), ["controller/src/new/mod.rs: list new in docs/architecture.md, section 2"])


if __name__ == "__main__":
    unittest.main()
