"""SIGTERM and sidecars that hang up, with several messages in progress."""

import unittest

from runtime_process import message, wait_until
from test_concurrency import STEERED, ConcurrencyTestCase

# Three ways to end, by the first letter of the name: a result, an error, or giving back.
ENDING = """
class Gone(Exception):
    asya_give_back = True
def handle(name):
    reached('began-' + name)
    wait_for('go-' + name)
    if name.startswith('error'): raise ValueError(name)
    if name.startswith('gone'): raise Gone(name)
    return name
"""


class TerminationTest(ConcurrencyTestCase):
    def terminate(self, runtime):
        runtime.terminate()
        wait_until(lambda: runtime.files() == [], "both files are gone")

    def test_an_idle_runtime_exits_0(self):
        """SC-55, RUN-20: before the first message, and after some."""
        for calls in (0, 5):
            runtime = self.started(ASYA_CONCURRENCY="4")
            for _ in range(calls):
                runtime.call(1)
            self.terminate(runtime)
            with self.subTest(calls):
                self.assertEqual(runtime.exit_code(), 0, runtime.stderr())
                self.assertNotIn("Traceback", runtime.stderr())

    def test_all_messages_in_progress_are_finished(self):
        """SC-55, RUN-20: in any order, behind a closed door; exit 0 after the last."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="3")
        connections = self.begin(runtime, "a", "b", "c")
        self.terminate(runtime)
        for name in "bca":
            self.assertFalse(runtime.exited())
            runtime.let("go-" + name)
            self.assertEqual(connections[name].read_reply()[0]["payload"], name)
        self.assertEqual(runtime.exit_code(), 0, runtime.stderr())

    def test_a_message_sent_before_sigterm_is_served(self):
        """SC-55, RUN-20: a former sidecar would fail a message whose connection ends without a reply."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
        connections = self.begin(runtime, "a", "b")
        connections["c"] = self.send(runtime, "c")
        self.terminate(runtime)
        for name in "abc":
            runtime.let("go-" + name)
            self.assertEqual(connections[name].read_reply()[0]["payload"], name)
        self.assertEqual(runtime.exit_code(), 0, runtime.stderr())

    def test_each_message_ends_in_its_own_way(self):
        """SC-55, BIND-32: one is given back, one fails, one has a result."""
        runtime = self.started(ENDING, ASYA_CONCURRENCY="3")
        connections = self.begin(runtime, "gone", "error", "result")
        self.terminate(runtime)
        for name in connections:
            runtime.let("go-" + name)
        given_back = {key: message("gone")[key] for key in ("route", "payload")}
        self.assertEqual(connections["gone"].read_reply(), [given_back])
        self.assert_error(connections["error"].read_reply(), "processing_error", "error", "ValueError")
        self.assertEqual(connections["result"].read_reply()[0]["payload"], "result")
        self.assertEqual(runtime.exit_code(), 0, runtime.stderr())
        self.assertIn("message gone: goes back to the queue: gone", runtime.stderr())

    def test_a_runtime_that_stays_gives_nothing_back(self):
        """SC-55, BIND-32: the message would come to it again, for ever."""
        runtime = self.started(ENDING, ASYA_CONCURRENCY="2")
        runtime.let("go-gone")
        self.assert_error(runtime.call("gone"), "processing_error", "gone", "Gone")


class HangUpTest(ConcurrencyTestCase):
    def hang_up(self, runtime, connection):
        connection.close()
        wait_until(lambda: runtime.files() == [], "both files are gone")

    def assert_exits_1(self, runtime, *hung_up):
        self.assertEqual(runtime.exit_code(), 1, runtime.stderr())
        self.assertEqual(runtime.files(), [])
        for name in hung_up:
            self.assertIn(f"message {name}: the sidecar hung up", runtime.stderr())

    def test_the_only_message_in_progress(self):
        """SC-57: nothing to wait for; the log shows where the handler is, and no payload."""
        code = """
        def stuck_here(): wait_for('never')
        def handle(name): reached('began-' + name[:1]); stuck_here()
        """
        runtime = self.started(code, ASYA_CONCURRENCY="2")
        with runtime.connect() as connection:
            connection.send_message(message("a-secret-payload", id="a"))
            runtime.wait_reached("began-a")
        self.assert_exits_1(runtime, "a")
        self.assertIn("in stuck_here", runtime.stderr())
        self.assertNotIn("secret-payload", runtime.stderr())

    def test_the_other_messages_are_finished(self):
        """SC-57: one stuck call costs no other message; the files go at once, and exit 1 comes last."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="3")
        connections = self.begin(runtime, "stuck", "a", "b")
        self.hang_up(runtime, connections["stuck"])
        for name in "ba":
            self.assertFalse(runtime.exited())
            runtime.let("go-" + name)
            self.assertEqual(connections[name].read_reply()[0]["payload"], name)
        self.assert_exits_1(runtime, "stuck")

    def test_the_other_messages_are_hung_up_in_their_turn(self):
        """SC-57: then nobody is left to wait for."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="3")
        connections = self.begin(runtime, "a", "b", "c")
        self.hang_up(runtime, connections["b"])
        connections["a"].close()
        wait_until(lambda: "message a: the sidecar hung up" in runtime.stderr(), "the second is noticed")
        self.assertFalse(runtime.exited())
        connections["c"].close()
        self.assert_exits_1(runtime, "a", "b", "c")

    def test_all_slots_are_hung_up_while_a_message_waits(self):
        """SC-57: the one that waits was never accepted, and its sidecar is told so."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
        connections = self.begin(runtime, "a", "b")
        waiting = self.send(runtime, "c")
        connections["a"].close()
        connections["b"].close()
        with self.assertRaises(ConnectionResetError):
            waiting.read_reply()
        self.assert_exits_1(runtime, "a", "b")

    def test_a_handler_that_ends_after_its_sidecar_has_hung_up(self):
        """SC-57: its result has nobody to go to, and the process still ends when the others are finished."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
        connections = self.begin(runtime, "late", "a")
        self.hang_up(runtime, connections["late"])
        runtime.let("go-late")
        wait_until(lambda: "message late: the peer closed before its reply" in runtime.stderr(), "the handler ended")
        self.assertFalse(runtime.exited())
        runtime.let("go-a")
        self.assertEqual(connections["a"].read_reply()[0]["payload"], "a")
        self.assert_exits_1(runtime, "late")

    def test_a_message_that_cannot_be_answered_any_more_goes_back(self):
        """SC-57, BIND-32: to adapters the missing ready file means that the pod ends."""
        runtime = self.started(ENDING, ASYA_CONCURRENCY="2")
        connections = self.begin(runtime, "stuck", "gone")
        self.hang_up(runtime, connections["stuck"])
        runtime.let("go-gone")
        given_back = {key: message("gone")[key] for key in ("route", "payload")}
        self.assertEqual(connections["gone"].read_reply(), [given_back])
        self.assert_exits_1(runtime, "stuck")

    def test_sigterm_and_a_hang_up(self):
        """SC-57, SC-55: whichever comes first, the others are finished and the stuck one is not waited for."""
        for first in ("sigterm", "hang-up"):
            with self.subTest(first):
                runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
                connections = self.begin(runtime, "stuck", "a")
                if first == "sigterm":
                    runtime.terminate()
                    wait_until(lambda: runtime.files() == [], "both files are gone")
                    connections["stuck"].close()
                else:
                    self.hang_up(runtime, connections["stuck"])
                    runtime.terminate()
                wait_until(lambda: "message stuck: the sidecar hung up" in runtime.stderr(), "it is noticed")
                runtime.let("go-a")
                self.assertEqual(connections["a"].read_reply()[0]["payload"], "a")
                self.assert_exits_1(runtime, "stuck")

    def test_a_hang_up_without_a_handler_is_harmless(self):
        """SC-57, RUN-20: before the first byte, within a frame, and before the reply is read."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
        runtime.let("go-a")
        for part in (b"", b"\0\0", b"\0\0\0\x09half", b"\0\0\0\x02{}"):
            for _ in range(4):
                with runtime.connect() as connection:
                    connection.send_bytes(part)
        for _ in range(20):
            self.assertEqual(runtime.call("a")[0]["payload"], "a")
        self.assertFalse(runtime.exited())
        self.assertEqual(runtime.files(), ["asya-runtime.sock", "runtime-ready"])

    def test_a_sidecar_that_only_finished_sending_is_served(self):
        """SC-57, RUN-20: a half-closed connection is no hang-up."""
        runtime = self.started(STEERED, ASYA_CONCURRENCY="2")
        connections = self.begin(runtime, "a", "b")
        for name, connection in connections.items():
            connection.finish_sending()
            runtime.let("go-" + name)
            self.assertEqual(connection.read_reply()[0]["payload"], name)

    def test_the_watch_wakes_up_for_hang_ups_only(self):
        """SC-56: a message that is served switches to no other thread."""
        code = """
        import threading
        def switches():
            others = set(os.listdir('/proc/self/task')) - {str(os.getpid())}
            lines = [line for each in others for line in open('/proc/self/task/%s/status' % each)]
            return [line for line in lines if 'voluntary_ctxt_switches' in line and 'non' not in line]
        def handle(payload): return {'switches': switches()}
        """
        runtime = self.started(code)
        self.assertEqual(len(runtime.call(0)[0]["payload"]["switches"]), 1)

        def sleeps():
            first = runtime.call(0)
            for _ in range(50):
                last = runtime.call(0)
            return first == last

        # Not at the first try if the thread has yet to fall asleep.
        wait_until(sleeps, "messages leave the watch's thread asleep")


if __name__ == "__main__":
    unittest.main()
