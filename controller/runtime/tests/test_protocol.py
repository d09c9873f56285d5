"""Frames on the socket, and the reply to what is wrong with them."""

import json
import struct
import sys
import unittest
from unittest import mock

from runtime_process import ECHO, SCRIPT, RuntimeTestCase, message

sys.path.insert(0, str(SCRIPT.parent))
import asya_runtime  # noqa: E402

MIB = 1 << 20


class FramesTest(RuntimeTestCase):
    def test_a_reply_is_one_frame_and_then_the_connection_ends(self):
        """RUN-10: one request and one reply per connection, 4-byte big-endian length, UTF-8 JSON."""
        with self.started().connect() as connection:
            body = json.dumps(message({"text": "hi"})).encode()
            connection.send_bytes(len(body).to_bytes(4, "big") + body)
            received = connection.read_rest()
        self.assertEqual(int.from_bytes(received[:4], "big"), len(received) - 4)
        self.assertEqual(json.loads(received[4:].decode("utf-8"))[0]["payload"], {"text": "hi"})

    def test_each_message_may_come_on_a_new_connection(self):
        """RUN-10: a new connection per message."""
        runtime = self.started()
        self.assertEqual([runtime.call(number)[0]["payload"] for number in range(20)], list(range(20)))

    def test_a_frame_that_arrives_byte_by_byte_is_read_whole(self):
        """RUN-10: the length alone says where a frame ends."""
        body = json.dumps(message("slow")).encode()
        with self.started().connect() as connection:
            for byte in struct.pack(">I", len(body)) + body:
                connection.send_bytes(bytes([byte]))
            self.assertEqual(connection.read_reply()[0]["payload"], "slow")

    def test_text_travels_as_utf_8_and_not_as_escapes(self):
        """RUN-10: UTF-8 JSON; escapes would double what brokers have to carry."""
        with self.started().connect() as connection:
            connection.send_frame(json.dumps(message("žluťoučký 🐎"), ensure_ascii=False).encode("utf-8"))
            reply = connection.read_frame()
        self.assertIn("žluťoučký 🐎".encode("utf-8"), reply)

    def test_a_lone_surrogate_goes_through(self):
        """RUN-18: JSON can carry it escaped, so it is no reason to fail."""
        self.assertEqual(self.started().call("\ud800")[0]["payload"], "\ud800")

    def test_a_message_of_64_mib_goes_through_both_ways(self):
        """RUN-21: 64 MiB messages."""
        payload = "x" * (64 * MIB)
        reply = self.started().call(payload)
        self.assertTrue(reply[0]["payload"] == payload, "the payload came back changed")

    def test_a_message_is_read_by_chunks_of_the_configured_size(self):
        """RUN-15: ASYA_CHUNK_SIZE."""
        connection = mock.Mock()
        connection.recv.side_effect = lambda size: b"x" * size
        self.assertEqual(len(asya_runtime.read_up_to(connection, 10, chunk_size=4)), 10)
        self.assertEqual([call[0][0] for call in connection.recv.call_args_list], [4, 4, 2])

    def test_the_chunk_size_is_what_the_environment_says(self):
        """RUN-15: ASYA_CHUNK_SIZE (65536)."""
        code = """
        import socket
        sizes = []
        recv = socket.socket.recv
        def spy(self, size):
            if self.gettimeout() is None: sizes.append(size)
            return recv(self, size)
        socket.socket.recv = spy
        def handle(payload): return max(sizes)
        """
        payload = "x" * 100000
        self.assertEqual(self.started(code).call(payload)[0]["payload"], 65536)
        self.assertEqual(self.started(code, ASYA_CHUNK_SIZE="1000").call(payload)[0]["payload"], 1000)
        self.assertEqual(self.started(code, ASYA_CHUNK_SIZE="1").call("tiny")[0]["payload"], 1)

    def test_a_default_socket_timeout_of_user_code_does_not_reach_our_sockets(self):
        """RUN-10: the deadline is the sidecar's, not one that a library set for its own sockets."""
        with self.started("import socket; socket.setdefaulttimeout(0)\n" + ECHO).connect() as connection:
            body = json.dumps(message("late")).encode()
            for byte in struct.pack(">I", len(body)) + body:
                connection.send_bytes(bytes([byte]))
            self.assertEqual(connection.read_reply()[0]["payload"], "late")


class ShortFramesTest(RuntimeTestCase):
    def test_part_of_a_length_is_answered_with_connection_error(self):
        """RUN-13: connection_error for a short frame."""
        with self.started().connect() as connection:
            connection.send_bytes(b"\0\0")
            connection.finish_sending()
            self.assert_error(connection.read_reply(), "connection_error", "2 of 4", "ShortFrame")

    def test_part_of_a_body_is_answered_with_connection_error(self):
        """RUN-13: connection_error for a short frame."""
        with self.started().connect() as connection:
            connection.send_bytes(struct.pack(">I", 100) + b"{}")
            connection.finish_sending()
            self.assert_error(connection.read_reply(), "connection_error", "2 of 100")

    def test_a_length_alone_reserves_no_memory(self):
        """RUN-13: a length near 4 GiB costs nothing until its bytes arrive."""
        code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        with self.started(code + ECHO).connect() as connection:
            connection.send_bytes(b"\xff\xff\xff\xff" + b"x" * 1000)
            connection.finish_sending()
            self.assert_error(connection.read_reply(), "connection_error", "1000 of 4294967295")

    def test_a_peer_that_vanishes_within_a_frame_does_not_disturb_the_next(self):
        """RUN-13: the reply has nobody to go to, and the runtime goes on."""
        runtime = self.started()
        for part in (b"\0", b"\0\0\0\x09", b"\0\0\0\x09half"):
            connection = runtime.connect()
            connection.send_bytes(part)
            connection.close()
        self.assertEqual(runtime.call("next")[0]["payload"], "next")

    def test_a_peer_that_takes_no_reply_does_not_disturb_the_next(self):
        """RUN-18: the runtime goes on when a reply cannot be delivered."""
        runtime = self.started()
        connection = runtime.connect()
        connection.send_frame(b"not json")
        connection.close()
        self.assertEqual(runtime.call("next")[0]["payload"], "next")


class BadMessagesTest(RuntimeTestCase):
    def test_what_is_not_strict_json_is_answered_with_msg_parsing_error(self):
        """RUN-13: msg_parsing_error for bad JSON and bad UTF-8."""
        runtime = self.started()
        cases = {
            "empty frame": b"",
            "no JSON": b"{",
            "bad UTF-8": b'{"payload": "\xff"}',
            "UTF-16": json.dumps(message(1)).encode("utf-16"),
            "byte order mark": b"\xef\xbb\xbf" + json.dumps(message(1)).encode(),
            "two values": b"{}{}",
            "NaN": json.dumps(message(float("nan"))).encode(),
            "Infinity": json.dumps(message(float("-inf"))).encode(),
            "nested too deep": b"[" * 200000,
        }
        for name, body in cases.items():
            with self.subTest(name):
                self.assert_error(runtime.call_raw(body), "msg_parsing_error")

    def test_json_that_is_no_object_is_answered_with_msg_parsing_error(self):
        """RUN-18: non-object JSON, also with validation off."""
        cases = {b"[]": "array", b'"x"': "string", b"1": "number", b"null": "null", b"true": "boolean"}
        for validation in ("true", "false"):
            runtime = self.started(ASYA_ENABLE_VALIDATION=validation)
            for body, name in cases.items():
                with self.subTest(name, validation=validation):
                    self.assert_error(runtime.call_raw(body), "msg_parsing_error", "not " + name)

    def test_the_runtime_goes_on_after_a_bad_message(self):
        """RUN-18: a bad message is answered, and that is all."""
        runtime = self.started()
        runtime.call_raw(b"{")
        self.assertEqual(runtime.call("good")[0]["payload"], "good")


class ReplySizeTest(unittest.TestCase):
    def test_a_reply_too_long_for_a_frame_is_an_error_of_the_result(self):
        """RUN-18: a length that 4 bytes cannot hold must become processing_error, so encoding refuses it."""
        with mock.patch.object(asya_runtime, "MAX_FRAME_LENGTH", 10):
            asya_runtime.encode_reply(["12345"])
            with self.assertRaisesRegex(ValueError, "does not fit into a frame"):
                asya_runtime.encode_reply(["123456789"])


if __name__ == "__main__":
    unittest.main()
