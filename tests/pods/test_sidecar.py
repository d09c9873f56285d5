"""The stand-in for the sidecar sends the conformance corpus where the sidecar sends it (SC-110, SC-114)."""

import json
import pathlib
import unittest

import sidecar

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "sidecar/src/decide/tests/corpus.json"


class Scripted:
    """A runtime with one reply."""

    def __init__(self, reply):
        self._reply = reply

    def exchange(self, _body):
        return self._reply


def handled(case):
    """What the stand-in sends for a case of the corpus: pairs of an actor and a message."""
    stand_in = sidecar.Sidecar.__new__(sidecar.Sidecar)
    stand_in._actor, stand_in._happy_end, stand_in._error_end = "foo", "happy-end", "error-end"
    stand_in._is_end = case.get("end", False)
    stand_in._runtime = Scripted(case.get("reply"))
    onward = stand_in._handled(json.dumps(case["message"]).encode())
    return [(actor, json.loads(body)) for actor, body in onward]


class Conformance(unittest.TestCase):
    def test_a_second_implementation_routes_the_corpus_the_same_way(self):
        """SC-110, SC-114. What differs by section 20 and the words of errors are the sidecar's own."""
        cases = json.loads(CORPUS.read_text())
        self.assertGreaterEqual(len(cases), 20)
        for case in cases:
            if case["name"].startswith("section 20: an error in a fan-out"):
                continue
            with self.subTest(case["name"]):
                sent, expected = handled(case), [(each["to"], each["message"]) for each in case.get("sent", [])]
                self.assertEqual([actor for actor, _ in sent], [actor for actor, _ in expected])
                for (actor, message), (_, wanted) in zip(sent, expected):
                    self.assertEqual(message["id"], wanted["id"])
                    self.assertEqual(message["route"], wanted["route"])
                    if actor != "error-end":
                        self.assertEqual(message.get("payload"), wanted["payload"])


if __name__ == "__main__":
    unittest.main()
