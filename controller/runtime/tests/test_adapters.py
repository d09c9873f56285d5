"""The adapters against a server of our own, most of them run by the real runtime."""

import contextlib
import socket
import time
import unittest
from typing import Any, Dict
from unittest import mock

from adapter_case import OPENSSL, AdapterTestCase, Cut, Model
from runtime_process import message, wait_until


class ProtocolTest(AdapterTestCase):
    def test_a_message_is_a_chat_request_and_its_answer_the_result(self):
        """BIND-30: run by the runtime, as the pod does."""
        model = self.model().answer("/v1/chat/completions", {"choices": [{"message": {"content": "hi"}}]})
        runtime = self.started(
            handler="asya_adapters.openai_chat", ASYA_TARGET_URL=model.url, ASYA_TARGET_MODEL="phi"
        )
        reply = runtime.call({"text": "hello", "max_tokens": 5})
        self.assertEqual(reply[0]["payload"], {"choices": [{"message": {"content": "hi"}}]})
        self.assertEqual(
            self.sent(model, "/v1/chat/completions"),
            {"model": "phi", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]},
        )

    def test_the_protocols_own_shapes_pass_unchanged(self):
        """BIND-30"""
        model = self.model()
        adapters = self.adapters(model, ASYA_TARGET_MODEL="my/model", ASYA_TARGET_PATH="/predict?x=1")
        cases = [
            (adapters.openai_chat, {"model": "a", "messages": [], "stream": False}, "/v1/chat/completions"),
            (adapters.openai_completions, {"model": "a", "prompt": "p", "n": 2}, "/v1/completions"),
            (adapters.kserve_v1, {"instances": [[1, 2]]}, "/v1/models/my%2Fmodel:predict"),
            (adapters.kserve_v2, {"inputs": [{"name": "x"}]}, "/v2/models/my%2Fmodel/infer"),
            (adapters.rest, ["anything", 1], "/predict?x=1"),
        ]
        for handler, payload, path in cases:
            with self.subTest(path):
                model.answer(path, {"ok": path})
                self.assertEqual(handler(payload), [{"ok": path}])
                self.assertEqual(self.sent(model, path), payload)

    def test_a_text_is_wrapped_for_chat_and_other_payloads_are_refused(self):
        """BIND-30"""
        model = self.model().answer("/v1/chat/completions", {})
        adapters = self.adapters(model, ASYA_TARGET_MODEL="m")
        adapters.openai_chat("hello")
        messages = [{"role": "user", "content": "hello"}]
        self.assertEqual(self.sent(model, "/v1/chat/completions"), {"model": "m", "messages": messages})
        for payload in ({"prompt": "p"}, {"text": 7}, [1], None):
            with self.subTest(payload), self.assertRaises(ValueError):
                adapters.openai_chat(payload)

    def test_a_stream_is_never_asked_for(self):
        """BIND-30"""
        model = self.model().answer("/v1/completions", {})
        payload = {"model": "m", "prompt": "p", "stream": True, "stream_options": {"include_usage": True}}
        self.adapters(model).openai_completions(payload)
        self.assertEqual(self.sent(model, "/v1/completions"), {"model": "m", "prompt": "p", "stream": False})
        self.assertTrue(payload["stream"], "the message is not ours to change")

    def test_the_model_is_the_payloads_else_the_environments_else_the_first_listed(self):
        """BIND-30"""
        for listed in ({"data": [{"id": "first"}, {"id": "second"}]}, {"models": ["first"]}):
            model = self.model().answer("/v1/models", listed).answer("/v1/completions", {})
            model.answer("/v1/models/first:predict", {}).answer("/v1/models/own:predict", {})
            adapters = self.adapters(model)
            adapters.openai_completions({"prompt": "p"})
            self.assertEqual(self.sent(model, "/v1/completions")["model"], "first")
            adapters.kserve_v1({"instances": []})
            self.assertEqual(len(model.asked("/v1/models")), 1, "asked once only")
            adapters.kserve_v1({"instances": [], "model": "own"})
            self.assertEqual(self.sent(model, "/v1/models/own:predict"), {"instances": []})
        for nothing in (404, {"data": []}, ["x"], b"no json"):
            model = self.model().answer("/v1/models", nothing)
            with self.subTest(nothing), self.assertRaisesRegex(Exception, "set ASYA_TARGET_MODEL"):
                self.adapters(model).kserve_v2({})

    def test_an_answer_is_one_result_whatever_it_is(self):
        """BIND-30: a list of the model's would be several messages."""
        model = self.model()
        adapters = self.adapters(model)
        for body, expected in ((b"[1, 2]", [[1, 2]]), (b"plain", ["plain"]), (b"", []), (b"null", [])):
            with self.subTest(body):
                model.answer("", (200, body, {})).answer("/", (200, body, {}))
                self.assertEqual(adapters.rest({}), expected)


class ReadyTest(AdapterTestCase):
    def test_no_message_is_taken_before_the_model_answers(self):
        """BIND-31: the socket opens after the import, which waits."""
        with contextlib.closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            url = "http://127.0.0.1:%d" % free.getsockname()[1]
        runtime = self.runtime(handler="asya_adapters.rest", ASYA_TARGET_URL=url).spawn()
        wait_until(lambda: "waiting for the model" in runtime.stderr() + runtime.stdout(), "it waits")
        self.assertEqual(runtime.files(), [])
        runtime.terminate()
        self.assertEqual(runtime.exit_code(), 0, runtime.stderr())

    def test_a_model_that_loads_is_waited_for(self):
        """BIND-31"""
        loading = [503, 503, {}]
        for path, before in (("/health", {}), ("/v2/health/ready", {"/health": 404}), ("/-/healthz", {"/health": 404})):
            model = self.model()
            for other, answer in before.items():
                model.answer(other, answer)
            model.answer(path, *loading)
            with self.subTest(path):
                self.adapters(model)
                self.assertEqual(len(model.asked(path)), 3)

    def test_any_answer_will_do_where_there_is_no_health(self):
        """BIND-31"""
        for status in (404, 405, 401, 403):
            model = self.model().answer("/health", status)
            self.adapters(model)

    def test_triton_that_is_not_ready_says_400(self):
        """BIND-31"""
        model = self.model().answer("/health", 404).answer("/v2/health/ready", 400)
        with self.assertRaisesRegex(Exception, "/v2/health/ready answered 400"):
            self.adapters(model, ASYA_TARGET_READY_TIMEOUT="0.1")

    def test_a_model_that_never_comes_ends_the_runtime_with_a_reason(self):
        """BIND-31"""
        model = self.model().answer("/health", 503)
        runtime = self.runtime(
            handler="asya_adapters.rest", ASYA_TARGET_URL=model.url, ASYA_TARGET_READY_TIMEOUT="0.1"
        )
        self.assert_refuses_to_start(runtime, "the model is not ready", "/health answered 503")

    def test_without_a_url_the_import_fails(self):
        """BIND-32"""
        runtime = self.runtime(handler="asya_adapters.rest")
        self.assert_refuses_to_start(runtime, "ASYA_TARGET_URL is not set")

    def test_a_time_that_is_none_is_refused(self):
        """BIND-31"""
        for name in ("ASYA_TARGET_TIMEOUT", "ASYA_TARGET_READY_TIMEOUT"):
            for text in ("5m", "-1", "nan", "inf"):
                with self.subTest(name + text), self.assertRaisesRegex(Exception, name):
                    self.adapters(self.model(), **{name: text})


class RetryTest(AdapterTestCase):
    def test_what_passes_is_tried_again(self):
        """BIND-32"""
        for status in (502, 503, 504, 429):
            model = self.model().answer("/x", status, status, {"ok": 1})
            with self.subTest(status):
                adapters = self.adapters(model, ASYA_TARGET_PATH="/x")
                self.assertEqual(adapters.rest({}), [{"ok": 1}])

    def test_a_server_that_restarts_is_waited_for(self):
        """BIND-32: a refused connection."""
        model = self.model()
        adapters = self.adapters(model, ASYA_TARGET_TIMEOUT="1")
        model.stop()
        with self.assertRaisesRegex(adapters.TargetError, "refuses connections"):
            adapters.rest({})

    def test_retries_end_before_the_sidecar_hangs_up(self):
        """BIND-32: within the processing timeout."""
        model = self.model().answer("/x", (503, b"busy", {}))
        adapters = self.adapters(model, ASYA_TARGET_PATH="/x", ASYA_TARGET_TIMEOUT="100")
        pauses = []
        # Only pauses take time, so that a slow machine changes nothing.
        adapters.FIRST_PAUSE = adapters.LONGEST_PAUSE = 30.0
        adapters.time = mock.Mock(monotonic=lambda: sum(pauses), sleep=pauses.append)
        with self.assertRaisesRegex(adapters.TargetError, "/x answered 503: busy"):
            adapters.rest({})
        self.assertGreater(len(model.asked("/x")), 1)
        self.assertLess(sum(pauses), 100)
        self.assertEqual([adapters.margin(it) for it in (0, 1, 300)], [0, 0.9, 298])

    def test_a_pause_that_is_asked_for_is_made_or_there_is_no_time(self):
        """BIND-32: Retry-After, as number and as date."""
        model = self.model().answer("/x", (429, b"", {"Retry-After": "0.05"}), {"ok": 1})
        adapters = self.adapters(model, ASYA_TARGET_PATH="/x", ASYA_TARGET_TIMEOUT="100")
        pauses = []
        adapters.time = mock.Mock(monotonic=lambda: sum(pauses), sleep=pauses.append, time=time.time)
        self.assertEqual(adapters.rest({}), [{"ok": 1}])
        self.assertEqual(pauses, [0.05])

        model.answer("/x", (429, b"", {"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"}))
        with self.assertRaisesRegex(adapters.TargetError, "answered 429"):
            adapters.rest({})
        self.assertEqual(len(pauses), 1, "no pause that is longer than the time left")
        model.answer("/x", (429, b"", {"Retry-After": "soon"}), {"ok": 2})
        self.assertEqual(adapters.rest({}), [{"ok": 2}])

    def test_what_does_not_pass_fails_at_once_with_the_servers_words(self):
        """BIND-32: at most 2 kB of them."""
        for status in (400, 404, 422, 500):
            model = self.model().answer("/x", (status, b"z" * 5000, {}))
            adapters = self.adapters(model, ASYA_TARGET_PATH="/x")
            with self.subTest(status), self.assertRaises(adapters.TargetError) as raised:
                adapters.rest({})
            self.assertIn(f"/x answered {status}: zzz", str(raised.exception))
            self.assertEqual(str(raised.exception).count("z"), 2048)
            self.assertEqual(len(model.asked("/x")), 1)

    def test_a_server_that_does_not_answer_fails_the_message(self):
        """BIND-32"""
        model = self.model()
        adapters = self.adapters(model, ASYA_TARGET_TIMEOUT="0.2")
        with contextlib.closing(socket.socket()) as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            adapters.TARGET._url = "http://127.0.0.1:%d" % silent.getsockname()[1]
            with self.assertRaisesRegex(adapters.TargetError, "did not answer in time"):
                adapters.rest({})


class EndTest(AdapterTestCase):
    """A pod ends, and its model before the message in hand has its answer."""

    def with_model_that(self, *answers: Any, **env: str) -> Any:
        """A runtime that has a message in hand while its model gives such answers, and the message."""
        model = self.model().answer("/v1/models", {"data": [{"id": "m"}]})
        model.answer("/v1/chat/completions", *answers)
        runtime = self.started(handler="asya_adapters.openai_chat", ASYA_TARGET_URL=model.url, **env)
        return model, runtime, message({"text": "hello"}, headers={"trace": "1"}, parent_id="m0")

    def end_while_asked(self, model: Model, runtime: Any) -> None:
        """The pod is told to end while the model has the request; then that gives its answer."""
        wait_until(lambda: model.asked("/v1/chat/completions"), "the model is asked")
        runtime.terminate()
        wait_until(lambda: runtime.files() == [], "the runtime is told")
        model.cut.set()

    def assert_given_back(self, runtime: Any, connection: Any, sent: Dict[str, Any]) -> None:
        """To the actor that has it now: the route points at it still."""
        reply = [{key: sent[key] for key in ("route", "headers", "payload")}]
        self.assertEqual(connection.read_reply(), reply)
        self.assertEqual(runtime.exit_code(), 0, runtime.stderr())
        self.assertIn("message m1: goes back to the queue", runtime.stderr())

    def test_a_message_whose_model_broke_the_connection_goes_back_to_the_queue(self):
        """BIND-32: whichever of the two is told first that the pod ends."""
        for cut in (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"):
            for runtime_first in (True, False):
                with self.subTest(cut=cut, runtime_first=runtime_first):
                    model, runtime, sent = self.with_model_that(Cut(cut))
                    with runtime.connect() as connection:
                        connection.send_message(sent)
                        wait_until(lambda: model.asked("/v1/chat/completions"), "the model is asked")
                        if runtime_first:
                            runtime.terminate()
                            wait_until(lambda: runtime.files() == [], "the runtime is told")
                        model.cut.set()
                        if not runtime_first:
                            model.was_cut.wait()
                            runtime.terminate()
                        self.assert_given_back(runtime, connection, sent)

    def test_a_message_whose_model_is_gone_goes_back_to_the_queue_at_once(self):
        """BIND-32: what would be tried again, or is the model's last word."""
        for answer in (503, 429, Cut(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")):
            with self.subTest(answer):
                model, runtime, sent = self.with_model_that(answer)
                with runtime.connect() as connection:
                    connection.send_message(sent)
                    self.end_while_asked(model, runtime)
                    self.assert_given_back(runtime, connection, sent)

    def test_a_message_whose_model_is_gone_before_its_name_is_known_goes_back_to_the_queue(self):
        """BIND-32"""
        model, runtime, sent = self.with_model_that({})
        model.stop()
        with runtime.connect() as connection:
            connection.send_message(sent)
            runtime.terminate()
            self.assert_given_back(runtime, connection, sent)

    def test_a_refused_message_goes_back_to_the_queue(self):
        """BIND-32"""
        model, runtime, sent = self.with_model_that({}, ASYA_TARGET_MODEL="m")
        model.stop()
        with runtime.connect() as connection:
            connection.send_message(sent)
            wait_until(lambda: "refuses connections" in runtime.stderr(), "it is tried")
            runtime.terminate()
            self.assert_given_back(runtime, connection, sent)

    def test_what_the_model_refuses_fails_also_while_the_pod_ends(self):
        """BIND-32: another pod's model would say the same."""
        model, runtime, sent = self.with_model_that(Cut(b"HTTP/1.1 422 No\r\nContent-Length: 0\r\n\r\n"))
        with runtime.connect() as connection:
            connection.send_message(sent)
            self.end_while_asked(model, runtime)
            self.assert_error(connection.read_reply(), "processing_error", "answered 422")

    def test_a_model_that_breaks_off_in_a_pod_that_stays_fails_the_message(self):
        """BIND-32: the message may be what broke it."""
        model = self.model().answer("/x", Cut(b""))
        model.cut.set()
        adapters = self.adapters(model, ASYA_TARGET_PATH="/x")
        adapters.NEWS_SECONDS = 0.05
        with self.assertRaisesRegex(adapters.TargetError, "/x broke the connection") as raised:
            adapters.rest({})
        self.assertNotIsInstance(raised.exception, adapters.PodEnds)
        self.assertEqual(len(model.asked("/x")), 1)


class WayTest(AdapterTestCase):
    def test_no_proxy_is_used_between_containers_of_a_pod(self):
        """BIND-32"""
        model = self.model().answer("/", {"ok": 1}).answer("", {"ok": 1})
        proxy = "http://127.0.0.1:9"
        adapters = self.adapters(model, http_proxy=proxy, HTTP_PROXY=proxy, https_proxy=proxy)
        self.assertEqual(adapters.rest({}), [{"ok": 1}])

    @unittest.skipUnless(OPENSSL, "no openssl to make a certificate with")
    def test_a_self_signed_certificate_is_accepted_in_the_pod(self):
        """BIND-32"""
        model = self.model(tls=True).answer("/", {"ok": 1})
        adapters = self.adapters(model, ASYA_TARGET_PATH="/")
        self.assertEqual(adapters.rest({}), [{"ok": 1}])

    def test_a_token_is_sent_and_not_shown(self):
        """BIND-32"""
        model = self.model().answer("/x", 401)
        adapters = self.adapters(model, ASYA_TARGET_PATH="/x", ASYA_TARGET_TOKEN="secret")
        with self.assertRaises(adapters.TargetError) as raised:
            adapters.rest({})
        self.assertEqual(model.asked("/x")[0]["headers"]["Authorization"], "Bearer secret")
        self.assertNotIn("secret", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
