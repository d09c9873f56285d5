"""One message at a time, SIGTERM, and a sidecar that hangs up."""

import os
import pathlib
import signal
import textwrap
import unittest

from runtime_process import ECHO, RuntimeTestCase, message, wait_until

# A handler that says when it began and goes on when it is let.
BLOCKING = """
def handle(payload):
    reached('began')
    wait_for('go')
    return payload
"""


SIGNALS_GO_TO_ANOTHER_THREAD = """
import signal, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
"""


class OneAtATimeTest(RuntimeTestCase):
    def test_a_second_request_waits_for_the_first(self):
        """RUN-20: one request at a time."""
        code = """
        running = []
        def handle(payload):
            running.append(payload)
            reached('began-' + payload)
            if payload == 'first': wait_for('go')
            seen = len(running)
            running.remove(payload)
            return {payload: seen}
        """
        runtime = self.started(code)
        with runtime.connect() as first, runtime.connect() as second:
            first.send_message(message("first"))
            runtime.wait_reached("began-first")
            second.send_message(message("second"))
            runtime.let("go")
            self.assertEqual(first.read_reply()[0]["payload"], {"first": 1})
            self.assertEqual(second.read_reply()[0]["payload"], {"second": 1})


class TerminationTest(RuntimeTestCase):
    def assert_gone(self, runtime):
        self.assertEqual((runtime.exit_code(), runtime.files()), (0, []), runtime.stderr())

    def test_an_idle_runtime_exits_0_and_removes_both_files(self):
        """RUN-20: SIGTERM: stop accepting, remove both files, exit 0."""
        runtime = self.started()
        runtime.terminate()
        self.assert_gone(runtime)
        self.assertNotIn("Traceback", runtime.stderr())

    def test_an_idle_runtime_that_has_served_exits_0_too(self):
        """RUN-20: waiting for the second message is as good a time as for the first."""
        runtime = self.started()
        runtime.call(1)
        runtime.terminate()
        self.assert_gone(runtime)

    def test_a_message_in_hand_is_finished_behind_a_closed_door(self):
        """RUN-20: SIGTERM in a handler: both files go at once, the handler finishes, its reply is sent, exit 0."""
        runtime = self.started(BLOCKING)
        with runtime.connect() as connection:
            connection.send_message(message("finished"))
            runtime.wait_reached("began")
            runtime.terminate()
            wait_until(lambda: runtime.files() == [], "both files are gone")
            self.assertFalse(runtime.exited())
            with self.assertRaises(FileNotFoundError):
                runtime.connect()
            runtime.let("go")
            self.assertEqual(connection.read_reply()[0]["payload"], "finished")
        self.assert_gone(runtime)

    def test_a_message_sent_before_sigterm_is_not_lost_in_the_queue_of_connections(self):
        """RUN-20: finish; a connection that is open already may carry a message, and closing it would fail it."""
        runtime = self.started(BLOCKING)
        with runtime.connect() as first, runtime.connect() as second:
            first.send_message(message(1))
            second.send_message(message(2))
            runtime.wait_reached("began")
            runtime.terminate()
            wait_until(lambda: runtime.files() == [], "both files are gone")
            runtime.let("go")
            self.assertEqual([first.read_reply()[0]["payload"], second.read_reply()[0]["payload"]], [1, 2])
        self.assert_gone(runtime)

    def test_sigterm_does_not_interrupt_what_the_handler_waits_for(self):
        """RUN-20: finish: no exception reaches the handler, and system calls go on."""
        code = """
        def handle(path):
            reached('began')
            with open(path) as fifo:
                return fifo.read()
        """
        runtime = self.started(code)
        fifo = str(runtime.directory / "fifo")
        os.mkfifo(fifo)
        with runtime.connect() as connection:
            connection.send_message(message(fifo))
            runtime.wait_reached("began")
            runtime.terminate()
            wait_until(lambda: runtime.files() == [], "both files are gone")
            with open(fifo, "w") as writer:
                writer.write("whole")
            self.assertEqual(connection.read_reply()[0]["payload"], "whole")
        self.assert_gone(runtime)

    def test_sigterm_while_the_handler_is_loaded_exits_0(self):
        """RUN-20: PID 1 would ignore the signal, and the pod would hang for its grace period."""
        runtime = self.runtime("reached('import'); wait_for('never')").spawn()
        runtime.wait_reached("import")
        runtime.terminate()
        self.assert_gone(runtime)

    def test_a_signal_handler_of_user_code_does_not_replace_ours(self):
        """RUN-20: libraries install their own while they are imported."""
        code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ECHO
        runtime = self.started(code)
        runtime.terminate()
        self.assert_gone(runtime)

    def test_a_signal_that_another_thread_receives_ends_the_wait(self):
        """RUN-20: libraries start threads, and the kernel may give SIGTERM to any of them."""
        runtime = self.started(SIGNALS_GO_TO_ANOTHER_THREAD + ECHO)
        runtime.terminate()
        self.assert_gone(runtime)

    def test_an_event_loop_in_the_handler_does_not_make_the_runtime_deaf(self):
        """RUN-20: asyncio takes the process's signal wake-up, and gives it to nobody when it ends."""
        code = """
        import asyncio
        async def wait():
            asyncio.get_event_loop().add_signal_handler(signal.SIGUSR1, print)
        def handle(payload): asyncio.run(wait())
        """
        runtime = self.started(SIGNALS_GO_TO_ANOTHER_THREAD + textwrap.dedent(code))
        runtime.call(1)
        runtime.terminate()
        self.assert_gone(runtime)

    def test_a_signal_of_the_user_wakes_the_runtime_once(self):
        """RUN-20: what ends the wait for SIGTERM must not turn it into a busy loop."""
        code = "import signal; signal.signal(signal.SIGUSR1, lambda *_: reached('usr1'))\n"
        runtime = self.started(code + ECHO)
        runtime.process.send_signal(signal.SIGUSR1)
        runtime.wait_reached("usr1")
        stat = pathlib.Path(f"/proc/{runtime.process.pid}/stat")
        wait_until(lambda: {stat.read_text().split()[2] for _ in range(100)} == {"S"}, "the runtime sleeps")
        self.assertEqual(runtime.call("awake")[0]["payload"], "awake")

    def test_a_file_that_cannot_be_removed_does_not_disturb_the_handler(self):
        """RUN-20: finish: an error of ours must not be raised within the user's code."""
        runtime = self.started(BLOCKING)
        with runtime.connect() as connection:
            connection.send_message(message("calm"))
            runtime.wait_reached("began")
            runtime.ready_path.unlink()
            runtime.ready_path.mkdir()
            runtime.terminate()
            runtime.let("go")
            self.assertEqual(connection.read_reply()[0]["payload"], "calm")
        self.assertEqual(runtime.exit_code(), 0, runtime.stderr())

    def test_a_runtime_that_is_interrupted_does_not_look_ready_any_more(self):
        """RUN-14: both files go whatever ends the process, here what Ctrl-C does to a handler."""
        runtime = self.started("def handle(payload): raise KeyboardInterrupt")
        with runtime.connect() as connection:
            connection.send_message(message(1))
            self.assertNotEqual(runtime.exit_code(), 0)
        self.assertEqual(runtime.files(), [])

    def test_the_runtime_can_be_started_again_after_sigterm(self):
        """RUN-20: nothing of the ended process stands in the way."""
        runtime = self.started()
        runtime.terminate()
        self.assert_gone(runtime)
        self.assertEqual(runtime.start().call("again")[0]["payload"], "again")


GIVES_BACK = """
class Gone(Exception):
    asya_give_back = True
def handle(payload):
    reached('began')
    if payload['wait']: wait_for('go')
    raise Gone('what it needs is gone')
"""


class GiveBackTest(RuntimeTestCase):
    def test_a_message_that_a_handler_gives_back_leads_to_its_own_actor_again(self):
        """RUN-20: once SIGTERM came, with its route as it was."""
        for mode in ("payload", "envelope"):
            code = GIVES_BACK if mode == "payload" else GIVES_BACK.replace("payload['wait']", "payload['payload']['wait']")
            runtime = self.started(code, ASYA_HANDLER_MODE=mode)
            sent = message({"wait": True}, headers={"trace": "1"})
            with self.subTest(mode), runtime.connect() as connection:
                connection.send_message(sent)
                runtime.wait_reached("began")
                runtime.terminate()
                wait_until(lambda: runtime.files() == [], "it is told to end")
                runtime.let("go")
                reply = connection.read_reply()
                self.assertEqual(reply, [{key: sent[key] for key in ("route", "headers", "payload")}])
            self.assertEqual(runtime.exit_code(), 0, runtime.stderr())

    def test_a_runtime_that_stays_gives_nothing_back(self):
        """RUN-20: the message would come to it again, for ever."""
        reply = self.started(GIVES_BACK).call({"wait": False})
        self.assert_error(reply, "processing_error", "what it needs is gone", "Gone")


class HangUpTest(RuntimeTestCase):
    def hung_up(self, code, payload="x"):
        """A runtime whose sidecar closed the connection while the handler ran."""
        runtime = self.started(code)
        with runtime.connect() as connection:
            connection.send_message(message(payload))
            runtime.wait_reached("began")
        return runtime

    def test_a_handler_whose_sidecar_hangs_up_ends_the_process(self):
        """RUN-20: sidecar hang-up (POLLHUP) during a handler: exit 1; both files go, for the sidecar polls them."""
        runtime = self.hung_up(BLOCKING)
        self.assertEqual((runtime.exit_code(), runtime.files()), (1, []))

    def test_a_handler_that_refuses_to_end_is_ended(self):
        """RUN-20: no exception could end it: it catches all, and waits in C code."""
        code = """
        import threading
        def handle(payload):
            reached('began')
            while True:
                try: threading.Event().wait()
                except BaseException: pass
        """
        self.assertEqual(self.hung_up(code).exit_code(), 1)

    def test_the_log_shows_where_the_handler_was_but_not_its_payload(self):
        """RUN-20: the cause must not be unseen; RUN-21: payloads logged at DEBUG only."""
        code = "def stuck_here(): reached('began'); wait_for('never')\ndef handle(payload): stuck_here()"
        runtime = self.hung_up(code, "secret-payload")
        runtime.exit_code()
        self.assertIn("the sidecar hung up", runtime.stderr())
        self.assertIn("in stuck_here", runtime.stderr())
        self.assertNotIn("secret-payload", runtime.stderr())

    def test_the_process_ends_even_if_user_code_took_the_standard_streams(self):
        """RUN-20: nothing on the way to the exit may stop it."""
        code = "import sys; sys.stdout = sys.stderr = None\n" + BLOCKING
        self.assertEqual(self.hung_up(code).exit_code(), 1)

    def test_a_restarted_runtime_serves_again(self):
        """RUN-20: exit 1, the kubelet restarts."""
        runtime = self.hung_up(BLOCKING)
        runtime.exit_code()
        runtime.let("go")
        self.assertEqual(runtime.start().call("again")[0]["payload"], "again")

    def test_a_sidecar_that_only_finished_sending_is_served(self):
        """RUN-20: a half-closed connection is no hang-up."""
        runtime = self.started(BLOCKING)
        with runtime.connect() as connection:
            connection.send_message(message("served"))
            connection.finish_sending()
            runtime.wait_reached("began")
            runtime.let("go")
            self.assertEqual(connection.read_reply()[0]["payload"], "served")

    def test_a_sidecar_that_hangs_up_between_messages_is_harmless(self):
        """RUN-20: only a hang-up during a handler ends the process."""
        runtime = self.started()
        for number in range(50):
            self.assertEqual(runtime.call(number)[0]["payload"], number)
        self.assertFalse(runtime.exited())

    def test_a_process_forked_by_the_handler_does_not_hold_up_the_reply(self):
        """RUN-20: the copies of our sockets that a fork makes must not matter to the watch."""
        code = """
        def handle(payload):
            pid = os.fork()
            if pid == 0:
                wait_for('never')
            return pid
        """
        runtime = self.started(code)
        for _ in range(2):
            child = runtime.call(0)[0]["payload"]
            self.addCleanup(os.kill, child, signal.SIGKILL)

    def test_watching_leaves_no_threads_or_descriptors_behind(self):
        """RUN-20: the watch of a message ends with its handler."""
        code = """
        import threading
        def handle(payload):
            return {'threads': threading.active_count(), 'descriptors': len(os.listdir('/proc/self/fd'))}
        """
        runtime = self.started(code)
        first = runtime.call(0)
        for _ in range(20):
            last = runtime.call(0)
        self.assertEqual(first[0]["payload"], last[0]["payload"])


if __name__ == "__main__":
    unittest.main()
