"""What the pod's log shows, and what it must not."""

import unittest

from runtime_process import RuntimeTestCase, message, wait_until

SECRET = "secret-in-the-payload"


class PayloadsInLogsTest(RuntimeTestCase):
    def log_of_an_eventful_life(self, level):
        runtime = self.started("def handle(p): return [p, object()] if 'bad' in p else p", ASYA_LOG_LEVEL=level)
        runtime.call({"good": SECRET})
        runtime.call({"bad": SECRET})
        runtime.call_raw(b'{"payload": "' + SECRET.encode() + b'", "route": 1}')
        runtime.call_raw(b'{"payload": "' + SECRET.encode() + b'"')
        runtime.call_raw(b'{"payload": "' + SECRET.encode() + b'\xff"}')
        runtime.terminate()
        runtime.exit_code()
        return runtime.stderr()

    def test_no_payload_is_logged_at_info(self):
        """RUN-21: payloads logged at DEBUG only, also when a message fails."""
        log = self.log_of_an_eventful_life("INFO")
        self.assertIn("processing_error", log)
        self.assertIn("msg_parsing_error", log)
        self.assertNotIn(SECRET, log)

    def test_payloads_are_logged_at_debug(self):
        """RUN-21: payloads logged at DEBUG."""
        log = self.log_of_an_eventful_life("DEBUG")
        self.assertRegex(log, "request: .*" + SECRET)
        self.assertRegex(log, "reply: .*" + SECRET)


class StreamsTest(RuntimeTestCase):
    def test_what_a_handler_prints_is_seen_while_it_runs(self):
        """RUN-15: the log of a pod is what the handler prints, at once and not when a buffer is full."""
        runtime = self.started("def handle(payload): print('hello from', payload); wait_for('go')")
        with runtime.connect() as connection:
            connection.send_message(message("handler"))
            wait_until(lambda: runtime.stdout() == "hello from handler\n", "the print is seen")
            runtime.let("go")
            self.assertEqual(connection.read_reply(), [])

    def test_what_a_handler_wrote_before_a_hang_up_is_not_lost(self):
        """RUN-20: the exit that no handler can stop flushes first."""
        runtime = self.started("def handle(_): print('last words', end=''); reached('began'); wait_for('never')")
        with runtime.connect() as connection:
            connection.send_message(message(1))
            runtime.wait_reached("began")
        self.assertEqual(runtime.exit_code(), 1)
        self.assertEqual(runtime.stdout(), "last words")

    def test_the_root_logger_is_left_to_the_user(self):
        """RUN-15: ASYA_LOG_LEVEL is ours; a basicConfig in user code works as anywhere."""
        code = "import logging; logging.basicConfig(format='mine %(message)s', level='DEBUG')\n"
        runtime = self.started(code + "def handle(payload): logging.debug('words'); return payload")
        runtime.call(1)
        self.assertIn("mine words", runtime.stderr())
        self.assertNotIn("mine listening", runtime.stderr())


if __name__ == "__main__":
    unittest.main()
