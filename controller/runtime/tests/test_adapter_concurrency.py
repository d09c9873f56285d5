"""The adapters with several messages at the same time."""

import concurrent.futures
import contextlib
import json
import socket
import threading
import unittest
from unittest import mock

from adapter_case import AdapterTestCase, Cut
from runtime_process import message, wait_until
from sidecar_client import PATIENCE

COMPLETIONS = "/v1/completions"


class TogetherTest(AdapterTestCase):
    def model_that_waits_for(self, count):
        """Its answers, the prompts, come when it has as many requests at the same time."""
        together = threading.Barrier(count, timeout=PATIENCE)

        def answer(request):
            together.wait()
            return [json.loads(request["body"].decode())["prompt"]]

        return self.model().answer(COMPLETIONS, answer)

    def test_each_message_has_a_connection_of_its_own_and_gets_its_own_answer(self):
        """SC-58"""
        model = self.model_that_waits_for(16)
        adapters = self.adapters(model, ASYA_TARGET_MODEL="m")
        prompts = [str(number) * 100000 for number in range(16)]
        with concurrent.futures.ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(adapters.openai_completions, [{"prompt": prompt} for prompt in prompts]))
        self.assertTrue(answers == [[[prompt]] for prompt in prompts], "the answers are mixed up")
        self.assertEqual(len({request["client"] for request in model.asked(COMPLETIONS)}), 16)

    def test_a_server_that_batches_gets_8_messages_at_a_time_by_default(self):
        """SC-53, SC-55: run by the runtime, as the pod does."""
        model = self.model_that_waits_for(8)
        runtime = self.started(
            handler="asya_adapters.openai_completions", ASYA_TARGET_URL=model.url, ASYA_TARGET_MODEL="m"
        )
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(runtime.connect()) for _ in range(8)]
            for number, connection in enumerate(connections):
                connection.send_message(message({"prompt": number}))
            self.assertEqual([each.read_reply()[0]["payload"] for each in connections], [[n] for n in range(8)])

    def test_a_message_that_is_retried_is_named_in_the_log(self):
        """SC-55, BIND-32: what the adapter logs, and what the runtime does."""
        model = self.model().answer(COMPLETIONS, 503, [1])
        runtime = self.started(
            handler="asya_adapters.openai_completions", ASYA_TARGET_URL=model.url, ASYA_TARGET_MODEL="m"
        )
        runtime.call({"prompt": "p"}, id="m5")
        self.assertRegex(runtime.stderr(), "WARNING asya-runtime: message m5: http.* answered 503: .*; trying again")

    def test_each_message_is_given_back_that_the_model_has_not_answered(self):
        """SC-55, BIND-32: while the pod ends; one that the model did answer has its result."""
        release = threading.Event()
        self.addCleanup(release.set)

        def answer(request):
            release.wait(PATIENCE)
            return {"ok": 1} if json.loads(request["body"].decode())["prompt"] == 2 else Cut(b"")

        model = self.model().answer(COMPLETIONS, answer)
        runtime = self.started(
            handler="asya_adapters.openai_completions", ASYA_TARGET_URL=model.url, ASYA_TARGET_MODEL="m"
        )
        sent = [message({"prompt": number}, id=f"m{number}") for number in range(4)]
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(runtime.connect()) for _ in sent]
            for connection, each in zip(connections, sent):
                connection.send_message(each)
            wait_until(lambda: len(model.asked(COMPLETIONS)) == 4, "the model has all")
            runtime.terminate()
            wait_until(lambda: runtime.files() == [], "the runtime is told")
            model.cut.set()
            release.set()
            replies = [connection.read_reply() for connection in connections]
        self.assertEqual(replies[2][0]["payload"], {"ok": 1})
        for number in (0, 1, 3):
            self.assertEqual(replies[number], [{key: sent[number][key] for key in ("route", "payload")}])
            self.assertIn(f"message m{number}: goes back to the queue", runtime.stderr())
        self.assertEqual(runtime.exit_code(), 0, runtime.stderr())


class ListedModelTest(AdapterTestCase):
    def test_a_message_that_is_told_no_name_takes_none_from_the_others(self):
        """SC-58: the name is all that they share."""
        told_nothing = threading.Event()
        self.addCleanup(told_nothing.set)

        def nothing(_):
            told_nothing.wait(PATIENCE)
            return 404

        model = self.model().answer("/v1/models", nothing, {"data": [{"id": "m"}]}).answer(COMPLETIONS, [1])
        adapters = self.adapters(model)
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            first = other.submit(adapters.openai_completions, {"prompt": "p"})
            wait_until(lambda: model.asked("/v1/models"), "the first message asks")
            adapters.openai_completions({"prompt": "p"})
            told_nothing.set()
            with self.assertRaisesRegex(adapters.TargetError, "set ASYA_TARGET_MODEL"):
                first.result(PATIENCE)
        adapters.openai_completions({"prompt": "p"})
        self.assertEqual(len(model.asked("/v1/models")), 2)
        self.assertEqual(self.sent(model, COMPLETIONS)["model"], "m")


class DeadlineTest(AdapterTestCase):
    def test_asking_for_the_name_takes_from_the_time_of_the_message(self):
        """SC-58, BIND-32: one deadline below the sidecar's for all that a message asks."""
        model = self.model().answer(COMPLETIONS, [1])
        clock = [1000.0]

        def slow(_):
            clock[0] += 60
            return {"data": [{"id": "m"}]}

        model.answer("/v1/models", slow)
        adapters = self.adapters(model, ASYA_TARGET_TIMEOUT="100")
        adapters.time = mock.Mock(monotonic=lambda: clock[0])
        left = []
        ask = adapters.TARGET._ask

        def spy(url, body, timeout):
            left.append(timeout)
            return ask(url, body, timeout)

        adapters.TARGET._ask = spy
        adapters.openai_completions({"prompt": "p"})
        self.assertEqual(left, [98.0, 38.0])

    def test_a_server_that_does_not_tell_the_name_fails_the_message_in_time(self):
        """SC-58, BIND-32"""
        adapters = self.adapters(self.model(), ASYA_TARGET_TIMEOUT="0.2")
        with contextlib.closing(socket.socket()) as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            adapters.TARGET._url = "http://127.0.0.1:%d" % silent.getsockname()[1]
            with self.assertRaisesRegex(adapters.TargetError, "/v1/models did not answer in time"):
                adapters.openai_completions({"prompt": "p"})


if __name__ == "__main__":
    unittest.main()
