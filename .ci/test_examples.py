"""The quickstart's files: what its page shows of them, and the script of client.yaml, run against an invented broker."""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import documents

try:
    import yaml
except ImportError:
    yaml = None

TOP = pathlib.Path(__file__).resolve().parent.parent
FILES = TOP / "examples/quickstart"
OTHERS = [{"id": str(number), "payload": number} for number in range(3)]


class Broker(http.server.BaseHTTPRequestHandler):
    """The part of RabbitMQ's management API that the script uses; an actor fails if its payload is null."""

    def do_GET(self):
        self.answer({"type": self.server.type})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.endswith("/publish"):
            self.server.sent.append(body)
            message = json.loads(body["payload"])
            self.server.queues["asya-error-end" if message["payload"] is None else "asya-happy-end"].append(message)
            return self.answer({"routed": True})
        queue = self.server.queues[self.path.split("/")[-2]]
        found = queue[: body["count"]]
        if body["ackmode"] not in ("ack_requeue_true", "reject_requeue_true"):
            del queue[: len(found)]
        return self.answer([{"payload": json.dumps(message)} for message in found])

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@unittest.skipIf(yaml is None, "manifests need PyYAML: pip install pyyaml")
class PageTest(unittest.TestCase):
    def test_the_page_shows_what_the_files_contain(self):
        page = (TOP / "docs/quickstart.md").read_text(encoding="utf-8")
        hello, chat = (yaml.safe_load(block.text) for block in documents.blocks(page) if block.language == "yaml")
        handler, actor = yaml.safe_load_all((FILES / "hello.yaml").read_text(encoding="utf-8"))
        self.assertEqual(hello, actor)
        self.assertIn(" ".join(handler["data"]["hello.py"].split()), documents.spans(page))
        binding = yaml.safe_load((FILES / "chat.yaml").read_text(encoding="utf-8"))["spec"]
        self.assertEqual({"transport": "rabbitmq", **chat["spec"]}, binding)


@unittest.skipIf(yaml is None, "manifests need PyYAML: pip install pyyaml")
class AskTest(unittest.TestCase):
    def setUp(self):
        self.broker = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Broker)
        self.broker.type, self.broker.sent = "classic", []
        self.broker.queues = {"asya-happy-end": [*OTHERS], "asya-error-end": [*OTHERS]}
        threading.Thread(target=self.broker.serve_forever, daemon=True).start()
        self.addCleanup(self.broker.server_close)
        self.addCleanup(self.broker.shutdown)
        script = next(yaml.safe_load_all((FILES / "client.yaml").read_text(encoding="utf-8")))["data"]["ask.py"]
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.script = pathlib.Path(folder.name, "ask.py")
        address = "127.0.0.1:%d" % self.broker.server_address[1]
        self.script.write_text(script.replace("rabbitmq:15672", address), encoding="utf-8")

    def ask(self, payload):
        command = [sys.executable, str(self.script), "hello,next", payload]
        return subprocess.run(command, env={**os.environ, "PASSWORD": "p"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)

    def test_it_finds_its_own_result_and_leaves_all_others(self):
        for payload, end, code in (('{"a": 1}', "asya-happy-end", 0), ("null", "asya-error-end", 1)):
            with self.subTest(end):
                asked = self.ask(payload)
                self.assertEqual((asked.stdout.strip(), asked.returncode), (payload, code), asked.stderr)
                self.assertEqual(self.broker.queues[end][:3], OTHERS)
        first = self.broker.sent[0]
        self.assertEqual((first["routing_key"], first["properties"]["delivery_mode"]), ("asya-hello", 2))
        self.assertEqual(json.loads(first["payload"])["route"], {"actors": ["hello", "next"], "current": 0})

    def test_it_does_not_look_at_queues_that_count_that(self):
        self.broker.type = "quorum"
        asked = self.ask("1")
        self.assertIn("quorum queue", asked.stderr)
        self.assertEqual((asked.returncode, self.broker.sent), (1, []))


if __name__ == "__main__":
    unittest.main()
