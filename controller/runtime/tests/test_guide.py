"""The samples of docs/guides/writing-a-handler.md, run as that page says."""

import json
import pathlib
import re
import subprocess
import sys
import threading

from runtime_process import SCRIPT, RuntimeProcess, RuntimeTestCase, message

PAGE = SCRIPT.parents[2] / "docs/guides/writing-a-handler.md"
BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ENVELOPE = {"ASYA_HANDLER_MODE": "envelope"}


def samples():
    """The page's samples, by the name of their file."""
    return dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))


class GuideTest(RuntimeTestCase):
    def started_sample(self, handler: str, **env: str) -> RuntimeProcess:
        runtime = self.runtime(handler=handler, **env)
        for name, code in samples().items():
            runtime.write(name, code)
        return runtime.start()

    def sent(self, handler: str, payload: object, **env: str) -> list:
        """Where results go, and their payloads."""
        deliveries = self.started_sample(handler, **env).sidecar().process(message(payload))
        return [(actor, sent["payload"]) for actor, sent in deliveries]

    def test_every_python_block_is_one_of_these_samples(self):
        text = PAGE.read_text(encoding="utf-8")
        tried = {"greet.py", "pages.py", "review.py", "media.py", "scorer.py", "visits.py", "fetch.py", "try.py"}
        self.assertEqual(set(samples()), tried)
        self.assertEqual(text.count("```python\n"), len(tried))

    def test_payload_mode(self):
        """RUN-16: one result, a fan-out, and one result that is a list."""
        self.assertEqual(self.sent("greet.handle", {"name": "you"}), [("b", {"hello": "you"})])
        self.assertEqual(self.sent("pages.split", {"pages": 2}), [("b", {"page": 0}), ("b", {"page": 1})])
        self.assertEqual(self.sent("pages.split", {"pages": 0}), [("happy-end", {"pages": 0})])
        self.assertEqual(self.sent("pages.tags", {}), [("b", ["red", "green"])])

    def test_envelope_mode(self):
        """RUN-16: it advances the route, adds an actor, or sends the message to two."""
        for score, following in ((0.9, "b"), (0.1, "human")):
            self.assertEqual(self.sent("review.decide", {"score": score}, **ENVELOPE), [(following, {"score": score})])
        both = self.started_sample("media.fan_out", **ENVELOPE).sidecar().process(message(1))
        self.assertEqual([(actor, sent["id"]) for actor, sent in both], [("thumbnail", "m1"), ("transcript", "m1-1")])
        self.assertEqual(both[0].message["route"], {"actors": ["a", "thumbnail"], "current": 1})

    def test_errors(self):
        """RUN-13: what the page shows of the payload in error-end."""
        ((actor, payload),) = self.sent("greet.handle", {})
        shown = json.loads(re.search(r'^\{"error": .*?\}$', PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[0])
        payload["details"]["traceback"] = shown["details"]["traceback"]
        self.assertEqual((actor, payload), ("error-end", shown))

    def test_classes(self):
        """RUN-15: one instance for all messages, also of several threads."""
        self.assertEqual(self.sent("scorer.Scorer.score", {"text": "good bad bad"}), [("b", {"score": -1.0})])
        runtime = self.started_sample("visits.Visits.count", ASYA_CONCURRENCY="4")
        threads = [threading.Thread(target=runtime.call, args=({},)) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(runtime.call({})[0]["payload"], {"total": 21})

    def test_async_functions(self):
        """RUN-15: refused as they are, and wrapped."""
        self.assertEqual(self.sent("fetch.handle", {"url": "u"}), [("b", {"fetched": "u"})])
        refused = self.runtime(handler="fetch.fetch")
        refused.write("fetch.py", samples()["fetch.py"])
        self.assert_refuses_to_start(refused, "fetch.fetch is async")

    def test_try_py(self):
        """RUN-10: the script is the client that the page says it is."""
        runtime = self.started_sample("greet.handle")
        script = pathlib.Path(runtime.directory, "try.py")
        command = [sys.executable, str(script), str(runtime.socket_dir), '{"name": "you"}']
        printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        self.assertIn("it prints\n`%s`." % printed, PAGE.read_text(encoding="utf-8"))
