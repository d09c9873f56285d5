"""From the environment to a socket that listens."""

import os
import shutil
import stat
import unittest

from runtime_process import ECHO, SCRIPT, RuntimeTestCase, wait_until

COUNTER = """
class Counter:
    def __init__(self, start=100):
        self.value = start
    def add(self, payload):
        self.value += payload
        return self.value
    @staticmethod
    def fixed(payload): return 'fixed'
class Outer:
    def __init__(self): raise RuntimeError('Outer is never built')
    class Inner:
        def run(self, payload): return 'inner'
"""


class ReadyTest(RuntimeTestCase):
    def test_the_ready_file_says_ready_and_the_socket_then_listens(self):
        """RUN-14, SC-54: `ready`, written once the handler is loaded and the socket listens; then the slots."""
        runtime = self.runtime().spawn()
        runtime.wait_reached("socket/runtime-ready")
        runtime.sidecar().look()
        self.assertEqual(runtime.call("ready")[0]["payload"], "ready")
        self.assertEqual(runtime.ready_path.read_bytes(), b"ready\nconcurrency=1\n")

    def test_nothing_is_there_while_the_handler_is_loaded(self):
        """RUN-14: neither socket nor ready file before the handler is loaded."""
        runtime = self.runtime("reached('import'); wait_for('go')\n" + ECHO).spawn()
        runtime.wait_reached("import")
        self.assertEqual(runtime.files(), [])
        runtime.let("go")
        runtime.wait_reached("socket/runtime-ready")
        self.assertEqual(runtime.files(), ["asya-runtime.sock", "runtime-ready"])

    def test_a_peer_that_connects_and_closes_is_harmless(self):
        """RUN-14: the sidecar looks so; no reply, no handler, no word in the log."""
        runtime = self.started("def handle(payload): reached('handler'); return payload")
        log = runtime.stderr()
        for _ in range(50):
            runtime.sidecar().look()
        with runtime.connect() as connection:
            connection.finish_sending()
            self.assertEqual(connection.read_rest(), b"")
        self.assertFalse((runtime.directory / "handler").exists())
        self.assertEqual(runtime.stderr(), log)
        self.assertEqual(runtime.call(1)[0]["payload"], 1)


class HandlerNameTest(RuntimeTestCase):
    def test_a_method_is_called_on_one_object_built_without_arguments(self):
        """RUN-15: `mod.Class.method`; class built without arguments, once."""
        runtime = self.started(COUNTER, "user_code.Counter.add")
        self.assertEqual([runtime.call(1)[0]["payload"] for _ in range(3)], [101, 102, 103])

    def test_static_methods_and_inner_classes_are_found(self):
        """RUN-15: what follows the module are attributes; only the last class is built."""
        for name, result in (("Counter.fixed", "fixed"), ("Outer.Inner.run", "inner")):
            with self.subTest(name):
                self.assertEqual(self.started(COUNTER, "user_code." + name).call(0)[0]["payload"], result)

    def test_the_longest_importable_prefix_is_the_module(self):
        """RUN-15: longest importable prefix is the module, even where a package's attribute has its name."""
        runtime = self.runtime(handler="pkg.sub.mod.Worker.run")
        runtime.write("pkg/__init__.py", "class sub: pass")
        runtime.write("pkg/sub/__init__.py", "class mod: pass")
        runtime.write("pkg/sub/mod.py", "class Worker:\n    def run(self, payload): return 'module'")
        self.assertEqual(runtime.start().call(0)[0]["payload"], "module")

    def test_a_package_itself_can_hold_the_handler(self):
        """RUN-15: the last name is always an attribute, also if a module has it too."""
        runtime = self.runtime(handler="pkg.handle")
        runtime.write("pkg/__init__.py", "def handle(payload): return 'package'")
        runtime.write("pkg/handle.py", "")
        self.assertEqual(runtime.start().call(0)[0]["payload"], "package")

    def test_a_module_beside_the_script_is_found(self):
        """RUN-15: adapters that are mounted beside the script can be named; RUN-21: the script needs no other file."""
        runtime = self.runtime(handler="beside.handle", PYTHONPATH="")
        mounted = runtime.directory / "opt"
        mounted.mkdir()
        shutil.copy(str(SCRIPT), str(mounted))
        runtime.write("opt/beside.py", "def handle(payload): return 'beside'")
        runtime.command[-1] = str(mounted / SCRIPT.name)
        self.assertEqual(runtime.start().call(0)[0]["payload"], "beside")

    def test_a_handler_runs_in_the_main_thread(self):
        """RUN-15: libraries (signal, asyncio, CUDA) may insist on the main thread."""
        code = "import threading\ndef handle(_): return threading.current_thread() is threading.main_thread()"
        self.assertIs(self.started(code).call(0)[0]["payload"], True)

    def test_a_handler_that_cannot_be_had_stops_the_start(self):
        """RUN-15: failure exits 1, with a text that helps."""
        cases = {
            "": "ASYA_HANDLER is not set",
            "user_code": "must be module.function or module.Class.method",
            "user_code.": "must be module.function or module.Class.method",
            ".handle": "must be module.function or module.Class.method",
            "absent.handle": "no module named 'absent'",
            "user_code.absent": "has no attribute 'absent'",
            "user_code.Needy.run": "missing 1 required positional argument: 'model'",
            "user_code.Failing.run": "RuntimeError: no GPU",
            "user_code.Needy": "is a class; name its method",
            "user_code.NUMBER": "is not callable, but int",
            "user_code.coroutine": "is async",
            "user_code.generator": "is a generator",
        }
        code = """
        NUMBER = 1
        class Needy:
            def __init__(self, model): pass
            def run(self, payload): pass
        class Failing:
            def __init__(self): raise RuntimeError('no GPU')
            def run(self, payload): pass
        async def coroutine(payload): pass
        def generator(payload): yield payload
        """
        runtimes = {handler: self.runtime(code, handler).spawn() for handler in cases}
        for handler, text in cases.items():
            with self.subTest(handler):
                self.assert_refuses_to_start(runtimes[handler], text)

    def test_a_missing_module_is_reported_with_the_path_that_was_searched(self):
        """RUN-15: most often PYTHONPATH is what is missing."""
        runtime = self.runtime(handler="absent.handle")
        self.assert_refuses_to_start(runtime, "PYTHONPATH", str(runtime.directory))


class SettingsTest(RuntimeTestCase):
    def test_a_value_without_sense_stops_the_start_and_is_named(self):
        """RUN-15: failure exits 1; nothing is guessed."""
        cases = (
            ("ASYA_HANDLER_MODE", "message"),
            ("ASYA_SOCKET_CHMOD", "rw"),
            ("ASYA_SOCKET_CHMOD", "0o999"),
            ("ASYA_SOCKET_CHMOD", "7777"),
            ("ASYA_SOCKET_CHMOD", "-1"),
            ("ASYA_CHUNK_SIZE", "64k"),
            ("ASYA_CHUNK_SIZE", "0"),
            ("ASYA_CHUNK_SIZE", "-5"),
            ("ASYA_ENABLE_VALIDATION", "maybe"),
            ("ASYA_CONCURRENCY", "0"),
            ("ASYA_CONCURRENCY", "257"),
            ("ASYA_CONCURRENCY", "many"),
        )
        runtimes = {case: self.runtime(**dict([case])).spawn() for case in cases}
        for name, value in cases:
            with self.subTest(name, value=value):
                self.assert_refuses_to_start(runtimes[name, value], name, repr(value))

    def test_an_unknown_log_level_is_reported_and_info_is_used(self):
        """RUN-15: ASYA_LOG_LEVEL (INFO); too small a thing to keep an actor from working."""
        runtime = self.started(ASYA_LOG_LEVEL="chatty")
        self.assertIn("ASYA_LOG_LEVEL='chatty' is not a log level", runtime.stderr())
        self.assertIn("INFO asya-runtime: listening on", runtime.stderr())

    def test_a_log_level_hides_what_is_below_it(self):
        """RUN-15: ASYA_LOG_LEVEL, in any case."""
        self.assertEqual(self.started(ASYA_LOG_LEVEL="error").stderr(), "")

    def test_empty_values_mean_the_defaults(self):
        """RUN-15: as templates write them for values that nobody set."""
        empty = dict.fromkeys(("ASYA_HANDLER_MODE", "ASYA_SOCKET_NAME", "ASYA_CHUNK_SIZE", "ASYA_LOG_LEVEL"), "")
        runtime = self.started(ASYA_ENABLE_VALIDATION="", ASYA_CONCURRENCY="", **empty)
        self.assertEqual(runtime.call("payload")[0]["payload"], "payload")
        self.assert_error(runtime.call_raw(b"{}"), "msg_parsing_error")

    def test_a_switch_may_be_written_as_people_do(self):
        """RUN-15: ASYA_ENABLE_VALIDATION."""
        for value, checked in (("True", True), ("1", True), ("FALSE", False), ("0", False), ("no", False)):
            with self.subTest(value):
                reply = self.started(ASYA_ENABLE_VALIDATION=value).call_raw(b'{"payload": 1}')
                self.assertEqual("error" in reply[0], checked)

    def test_the_socket_is_open_to_every_user_by_default(self):
        """RUN-15: ASYA_SOCKET_CHMOD (0o666, empty skips): the sidecar may run as another user."""
        old_umask = os.umask(0o027)
        self.addCleanup(os.umask, old_umask)
        cases = ((None, 0o666), ("0o600", 0o600), ("660", 0o660), ("", 0o750))
        for value, expected in cases:
            with self.subTest(value):
                runtime = self.started(**({} if value is None else {"ASYA_SOCKET_CHMOD": value}))
                self.assertEqual(stat.S_IMODE(runtime.socket_path.stat().st_mode), expected)

    def test_the_socket_can_have_another_name(self):
        """RUN-15: ASYA_SOCKET_NAME."""
        self.assertEqual(self.started(ASYA_SOCKET_NAME="other.sock").files(), ["other.sock", "runtime-ready"])

    def test_a_socket_directory_that_is_missing_or_too_long_stops_the_start(self):
        """RUN-15: ASYA_SOCKET_DIR."""
        for directory in ("/absent/asya", "/tmp/" + "x" * 120):
            with self.subTest(directory):
                runtime = self.runtime(ASYA_SOCKET_DIR=directory)
                self.assert_refuses_to_start(runtime, "cannot listen on " + directory)


class LeftoversTest(RuntimeTestCase):
    def test_stale_files_are_gone_before_the_handler_is_imported(self):
        """RUN-19: else the sidecar and the probes take a restarted container for ready at once."""
        code = "FILES = os.listdir(os.environ['ASYA_SOCKET_DIR'])\ndef handle(_): return {'files': FILES}"
        runtime = self.runtime(code)
        runtime.socket_path.write_text("stale")
        runtime.ready_path.write_text("ready")
        runtime.spawn()
        # Not start(): the stale ready file would look like the new one.
        wait_until(lambda: "listening on" in runtime.stderr(), "the runtime listens")
        self.assertEqual(runtime.call(0)[0]["payload"], {"files": []})

    def test_stale_files_are_gone_even_if_the_handler_cannot_be_loaded(self):
        """RUN-19: a handler that fails to load never looks ready."""
        runtime = self.runtime("raise RuntimeError('broken')")
        runtime.socket_path.write_text("stale")
        runtime.ready_path.write_text("ready")
        self.assert_refuses_to_start(runtime, "broken")

    def test_a_killed_runtime_can_be_started_again(self):
        """RUN-19: the socket of a killed process does not hinder the next."""
        runtime = self.started()
        runtime.kill()
        self.assertEqual(runtime.files(), ["asya-runtime.sock", "runtime-ready"])
        runtime.ready_path.unlink()  # so that start() waits for the new one
        self.assertEqual(runtime.start().call("again")[0]["payload"], "again")

    def test_a_leftover_that_cannot_be_removed_stops_the_start(self):
        """RUN-19: a ready file that stays would lie."""
        runtime = self.runtime()
        runtime.ready_path.mkdir()
        runtime.spawn()
        self.assertEqual(runtime.exit_code(), 1)
        self.assertIn("cannot remove what an earlier run left", runtime.stderr())


class ImportErrorsTest(RuntimeTestCase):
    def test_an_import_that_fails_inside_user_code_is_shown(self):
        """RUN-19: import errors inside user code are shown, not taken for `no such module`."""
        runtime = self.runtime(handler="pkg.mod.handle")
        runtime.write("pkg/__init__.py", "")
        runtime.write("pkg/mod.py", "import absent_dependency\ndef handle(payload): pass")
        self.assert_refuses_to_start(
            runtime, "ASYA_HANDLER=pkg.mod.handle cannot be loaded", "pkg/mod.py", "No module named 'absent_dependency'"
        )

    def test_an_import_that_fails_inside_a_package_is_shown(self):
        """RUN-19: also when a module of the handler's own package is what is missing."""
        runtime = self.runtime(handler="pkg.mod.handle")
        runtime.write("pkg/__init__.py", "import pkg.absent")
        runtime.write("pkg/mod.py", ECHO)
        self.assert_refuses_to_start(runtime, "No module named 'pkg.absent'", "Traceback")

    def test_whatever_user_code_raises_while_loading_is_shown(self):
        """RUN-19: the cause, with its line; RUN-15: exit 1, even for sys.exit(0)."""
        cases = {
            "import json; from json import absent": "cannot import name 'absent'",
            "def broken(:": "SyntaxError",
            "raise SystemExit(0)": "SystemExit: 0",
            "class Base(BaseException): pass\nraise Base('base')": "Base: base",
        }
        for code, text in cases.items():
            with self.subTest(code):
                runtime = self.runtime()
                runtime.write("user_code.py", code)
                self.assert_refuses_to_start(runtime, text, "user_code.py", "cannot be loaded")

    def test_errors_are_shown_even_if_user_code_disables_loggers(self):
        """RUN-19: logging.config disables loggers that it does not name."""
        code = "import logging.config; logging.config.dictConfig({'version': 1})\n"
        self.assert_refuses_to_start(self.runtime(code + "raise RuntimeError('cause')"), "RuntimeError: cause")
        runtime = self.started(code + "def handle(payload): raise RuntimeError('later')")
        runtime.call(1)
        self.assertIn("RuntimeError: later", runtime.stderr())


if __name__ == "__main__":
    unittest.main()
