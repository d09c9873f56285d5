"""Several messages at the same time: slots, errors, and what the log says."""

import concurrent.futures
import contextlib
import os
import shutil
import time
import unittest

from runtime_process import SCRIPT, RuntimeTestCase, message, wait_until

# Each call says that it began and goes on when it is let; its payload is its name.
STEERED = """
def handle(name):
    reached('began-' + name)
    wait_for('go-' + name)
    return name
"""

# Says how many calls have run at the same time, at most, and whether this one runs in the main thread.
COUNTING = """
import threading
running, most, lock = 0, 0, threading.Lock()
def handle(payload):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    time.sleep(0.005)
    with lock: running -= 1
    return {'most': most, 'main': threading.current_thread() is threading.main_thread()}
"""

# Goes on only when as many calls as there are slots run at the same time.
MEETING = """
import threading
meeting = threading.Barrier(int(os.environ['ASYA_CONCURRENCY']), timeout=15)
def handle(payload):
    if payload != 'meet': return eval(payload)
    meeting.wait()
    return 'met'
"""


class ConcurrencyTestCase(RuntimeTestCase):
    def begin(self, runtime, *names):
        """Connections of messages that are in progress; id and payload are the name."""
        return {name: self.send(runtime, name, wait=True) for name in names}

    def send(self, runtime, name, wait=False):
        connection = runtime.connect()
        self.addCleanup(connection.close)
        connection.send_message(message(name, id=name))
        if wait:
            runtime.wait_reached("began-" + name)
        return connection

    def assert_all_slots_work(self, runtime, slots):
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(runtime.connect()) for _ in range(slots)]
            for connection in connections:
                connection.send_message(message("meet"))
            self.assertEqual([each.read_reply()[0]["payload"] for each in connections], ["met"] * slots)


class SlotsTest(ConcurrencyTestCase):
    def test_as_many_calls_run_as_there_are_slots_and_never_more(self):
        """SC-53, SC-55: N threads; more connections wait for one that is free."""
        runtime = self.started(COUNTING, ASYA_CONCURRENCY="3")
        with concurrent.futures.ThreadPoolExecutor(12) as sidecars:
            replies = [reply[0]["payload"] for reply in sidecars.map(runtime.call, range(60))]
        self.assertLessEqual(max(reply["most"] for reply in replies), 3)
        self.assertEqual({reply["main"] for reply in replies}, {False})
        self.assert_all_slots_work(self.started(MEETING, ASYA_CONCURRENCY="3"), 3)

    def test_a_plain_handler_never_sees_two_calls_at_once(self):
        """SC-53, SC-55: without ASYA_CONCURRENCY, and with 1, the handler has the main thread for itself."""
        for env in ({}, {"ASYA_CONCURRENCY": "1"}):
            runtime = self.started(COUNTING, **env)
            with self.subTest(env), concurrent.futures.ThreadPoolExecutor(8) as sidecars:
                replies = [reply[0]["payload"] for reply in sidecars.map(runtime.call, range(40))]
                self.assertEqual(replies, [{"most": 1, "main": True}] * 40)

    def test_a_model_that_takes_a_second_gets_32_messages_at_a_time(self):
        """SC-55: 32 slots, a model of 1 s: at least 30 messages a second, where 32 would be perfect."""
        runtime = self.started("def handle(payload): time.sleep(1); return payload", ASYA_CONCURRENCY="32")
        with concurrent.futures.ThreadPoolExecutor(32) as sidecars:
            rates = []
            # A machine that is busy otherwise may need several tries to show what the runtime can do.
            while len(rates) < 5 and max(rates, default=0) < 30:
                began = time.monotonic()
                replies = [reply[0]["payload"] for reply in sidecars.map(runtime.call, range(96))]
                rates.append(96 / (time.monotonic() - began))
                self.assertEqual(replies, list(range(96)))
        self.assertGreaterEqual(max(rates), 30)

    def test_a_slow_call_holds_up_no_other_message(self):
        """SC-55"""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
        slow = self.begin(runtime, "slow")["slow"]
        runtime.let("go-fast")
        for _ in range(50):
            self.assertEqual(runtime.call("fast")[0]["payload"], "fast")
        runtime.let("go-slow")
        self.assertEqual(slow.read_reply()[0]["payload"], "slow")

    def test_a_message_without_a_free_slot_is_not_read(self):
        """SC-55: a runtime that dies resets its connection, the sign that nobody has read the message."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
        running = self.begin(runtime, "a", "b")
        waiting = self.send(runtime, "c")
        runtime.kill()
        with self.assertRaises(ConnectionResetError):
            waiting.read_reply()
        for connection in running.values():
            self.assertEqual(connection.read_rest(), b"")

    def test_the_runtime_sleeps_while_a_message_waits_for_a_slot(self):
        """SC-55: the main thread neither accepts the connection nor keeps looking at it."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
        self.begin(runtime, "a", "b")
        descriptors = f"/proc/{runtime.process.pid}/fd"
        before = len(os.listdir(descriptors))
        waiting = self.send(runtime, "c")
        main = f"/proc/{runtime.process.pid}/task/{runtime.process.pid}/stat"

        def sleeps():
            with open(main) as stat:
                return stat.read().split()[2] == "S"

        wait_until(lambda: all(sleeps() for _ in range(100)), "the main thread sleeps")
        self.assertEqual(len(os.listdir(descriptors)), before)
        for name in "abc":
            runtime.let("go-" + name)
        self.assertEqual(waiting.read_reply()[0]["payload"], "c")

    def test_large_messages_of_several_slots_do_not_mix(self):
        """SC-55, RUN-10: each connection gets its own reply, whole."""
        runtime = self.started(ASYA_CONCURRENCY="4")
        payloads = [str(number) * 3000000 for number in range(8)]
        with concurrent.futures.ThreadPoolExecutor(8) as sidecars:
            replies = [reply[0]["payload"] for reply in sidecars.map(runtime.call, payloads)]
        self.assertTrue(replies == payloads, "the payloads came back changed")

    def test_the_ready_file_says_how_many_slots_there_are(self):
        """SC-54; SC-53: 8 for the adapters of servers that batch, unless told otherwise."""
        echo = "def handle(payload): return payload\nopenai_chat = openai_completions = rest = handle"
        cases = (
            ("asya_adapters.openai_chat", {}, 8),
            ("asya_adapters.openai_completions", {"ASYA_CONCURRENCY": ""}, 8),
            ("asya_adapters.openai_chat", {"ASYA_CONCURRENCY": "1"}, 1),
            ("asya_adapters.rest", {}, 1),
            ("asya_adapters.rest", {"ASYA_CONCURRENCY": "256"}, 256),
            ("user_code.openai_chat", {}, 1),
        )
        for handler, env, slots in cases:
            with self.subTest(handler, **env):
                # A copy of the script beside adapters of ours: its folder is searched first.
                runtime = self.runtime(echo, handler, **env)
                runtime.write("asya_adapters.py", echo)
                shutil.copy(str(SCRIPT), str(runtime.directory))
                runtime.command[-1] = str(runtime.directory / SCRIPT.name)
                runtime.start()
                self.assertEqual(runtime.ready_path.read_text(), f"ready\nconcurrency={slots}\n")
                self.assertEqual(runtime.call("served")[0]["payload"], "served")


class FailuresTest(ConcurrencyTestCase):
    def test_a_handler_that_raises_costs_no_slot(self):
        """SC-55, RUN-18: whatever it raises, also what would end a thread or the process."""
        runtime = self.started(MEETING, ASYA_CONCURRENCY="2")
        thrown = [f"(_ for _ in ()).throw({name})" for name in ("SystemExit", "KeyboardInterrupt", "GeneratorExit")]
        for code in ["1 / 0", "__import__('threading')"] + thrown:
            for _ in range(3):
                self.assert_error(runtime.call(code), "processing_error")
        self.assert_all_slots_work(runtime, 2)

    def test_what_is_wrong_with_a_frame_costs_no_slot(self):
        """SC-55, RUN-13, RUN-14: in each thread as in the main thread."""
        runtime = self.started(MEETING, ASYA_CONCURRENCY="2")
        for _ in range(3):
            runtime.sidecar().look()
            self.assert_error(runtime.call_raw(b"{"), "msg_parsing_error")
            self.assert_error(runtime.call_raw(b"[" * 200000), "msg_parsing_error")
            for part in (b"\0", b"\0\0\0\x09half"):
                with runtime.connect() as connection:
                    connection.send_bytes(part)
        self.assert_all_slots_work(runtime, 2)


class LogTest(ConcurrencyTestCase):
    def test_each_line_names_its_message(self):
        """SC-55: calls that run at the same time are told apart."""
        code = STEERED.replace("return name", "raise ValueError('of ' + name)")
        runtime = self.started(code, ASYA_CONCURRENCY="2", ASYA_LOG_LEVEL="DEBUG")
        connections = self.begin(runtime, "a", "b")
        for name in "ba":
            runtime.let("go-" + name)
            self.assert_error(connections[name].read_reply(), "processing_error", "of " + name)
        for name in "ab":
            self.assertRegex(runtime.stderr(), f"DEBUG asya-runtime: message {name}: request: .*'payload': '{name}'")
            self.assertRegex(runtime.stderr(), f"ERROR asya-runtime: message {name}: processing_error\nTraceback")

    def test_a_line_between_messages_names_none(self):
        """SC-55"""
        runtime = self.started(ASYA_LOG_LEVEL="DEBUG")
        runtime.call(1, id="m7")
        runtime.sidecar().look()
        wait_until(lambda: "checked that we listen" in runtime.stderr(), "the look is logged")
        self.assertIn("DEBUG asya-runtime: a peer checked that we listen", runtime.stderr())

    def test_an_id_cannot_forge_a_line(self):
        """SC-55: ids are what the sender of a message says."""
        runtime = self.started("def handle(payload): raise ValueError", ASYA_CONCURRENCY="2")
        runtime.call(1, id="m1\n2026 INFO forged")
        self.assertIn(r"message 'm1\n2026 INFO forged': processing_error", runtime.stderr())

    def test_a_message_that_cannot_be_used_is_named_if_it_has_an_id(self):
        """SC-55, RUN-13"""
        runtime = self.started()
        runtime.call_raw(b'{"id": "m8", "payload": 1}')
        self.assertIn("message m8: msg_parsing_error: route is missing", runtime.stderr())


if __name__ == "__main__":
    unittest.main()
