"""Runs the samples of docs/guides/sending-messages.md with stand-ins for pika and boto3, which record how they are called."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/guides/sending-messages.md"
BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RESULT = {"id": "1", "route": {"actors": ["a"], "current": 1}, "payload": {"b": 2}}

RECORD = """
import json

def record(*call):
    print("called", json.dumps(call), flush=True)
"""
PIKA = RECORD + """
class BlockingConnection:
    def __init__(self, url):
        record("connect", url)

    def channel(self):
        return Channel()

class Channel:
    consumers = {}

    def confirm_delivery(self):
        record("confirm")

    def basic_publish(self, exchange, routing_key, body, properties, mandatory=False):
        record("publish", exchange, routing_key, body, properties, mandatory)

    def basic_qos(self, prefetch_count):
        pass

    def basic_consume(self, queue, on_message_callback):
        self.consumers[queue] = on_message_callback

    def start_consuming(self):
        for queue, callback in self.consumers.items():
            callback(self, Delivery(queue), None, %r)

    def basic_ack(self, delivery_tag):
        record("ack", delivery_tag)

class Delivery:
    def __init__(self, queue):
        self.delivery_tag = queue

def URLParameters(url):
    return url

def BasicProperties(**properties):
    return properties
"""
BOTO3 = RECORD + """
class client:
    received = 0

    def __init__(self, service):
        record("client", service)

    def get_queue_url(self, QueueName):
        return {"QueueUrl": "https://" + QueueName}

    def send_message(self, QueueUrl, MessageBody):
        record("send", QueueUrl, MessageBody)

    def receive_message(self, QueueUrl, MaxNumberOfMessages, WaitTimeSeconds):
        self.received += 1
        if self.received == 2:
            return {}
        if self.received == 3:
            raise SystemExit
        return {"Messages": [{"Body": %r, "ReceiptHandle": "handle"}]}

    def delete_message(self, QueueUrl, ReceiptHandle):
        record("delete", QueueUrl, ReceiptHandle)
"""


class SamplesTest(unittest.TestCase):
    def run_sample(self, name, *arguments):
        """What a sample prints, and the calls that it makes, in order."""
        samples = dict(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
        with tempfile.TemporaryDirectory() as folder:
            body = json.dumps(RESULT)
            for file, text in (("pika.py", PIKA % body), ("boto3.py", BOTO3 % body), (name, samples[name])):
                pathlib.Path(folder, file).write_text(text, encoding="utf-8")
            command = [sys.executable, os.path.join(folder, name), *arguments]
            lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout.splitlines()
        return [json.loads(line.partition(" ")[2]) if line.startswith("called ") else line for line in lines]

    def check_message(self, body, identity):
        message = json.loads(body)
        self.assertEqual(message, {"id": identity, "route": {"actors": ["a", "b"], "current": 0}, "payload": {"c": 1}})
        self.assertGreater(len(identity), 30)

    def test_every_python_block_is_one_of_these_samples(self):
        text = PAGE.read_text(encoding="utf-8")
        names = [name for name, _ in BLOCK.findall(text)]
        self.assertEqual(names, ["send.py", "receive.py", "send_sqs.py", "receive_sqs.py"])
        self.assertEqual(text.count("```python\n"), len(names))

    def test_messages_are_persistent_mandatory_and_confirmed(self):
        connect, confirm, publish, printed = self.run_sample("send.py", "amqp://h", "a,b", '{"c": 1}')
        self.assertEqual((connect, confirm), (["connect", "amqp://h"], ["confirm"]))
        _, exchange, key, body, properties, mandatory = publish
        self.assertEqual((exchange, key, mandatory, properties["delivery_mode"]), ("", "asya-a", True, 2))
        self.check_message(body, printed)

    def test_messages_are_acknowledged_after_they_are_stored(self):
        calls = self.run_sample("receive.py", "amqp://h")[1:]
        stored = [call for call in calls if isinstance(call, str)]
        self.assertEqual(stored, ['1 succeeded {"b": 2}', '1 failed {"b": 2}'])
        self.assertEqual(calls, [stored[0], ["ack", "asya-happy-end"], stored[1], ["ack", "asya-error-end"]])

    def test_messages_are_sent_to_sqs(self):
        client, send, printed = self.run_sample("send_sqs.py", "a,b", '{"c": 1}')
        self.assertEqual((client, send[:2]), (["client", "sqs"], ["send", "https://asya-a"]))
        self.check_message(send[2], printed)

    def test_messages_are_deleted_from_sqs_after_they_are_stored(self):
        calls = self.run_sample("receive_sqs.py", "asya-happy-end")[1:]
        self.assertEqual(calls, ['1 {"b": 2}', ["delete", "https://asya-happy-end", "handle"]])


if __name__ == "__main__":
    unittest.main()
