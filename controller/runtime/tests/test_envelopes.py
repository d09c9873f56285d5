"""What a handler gets, what is made of its result, and where the sidecar then sends it."""

import unittest

from runtime_process import RuntimeTestCase, message
from sidecar_client import Delivery

ENVELOPE = {"ASYA_HANDLER_MODE": "envelope"}

# Runs the payload as Python, so that one process serves a whole table of results.
EVALUATE = "def handle(payload): return eval(payload)"
MOVE_ON = "def handle(envelope): envelope['route']['current'] += 1; return envelope"


def route(*actors, current=0, **more):
    return dict({"actors": list(actors), "current": current}, **more)


class RoutingTest(RuntimeTestCase):
    def test_a_result_goes_to_the_next_actor_under_the_same_id(self):
        """RUN-12: to `actors[current]`, for the runtime has moved `current`; element 0 keeps the id."""
        deliveries = self.started().sidecar("a").process(message({"n": 1}))
        self.assertEqual(
            deliveries, [Delivery("b", {"id": "m1", "route": route("a", "b", current=1), "payload": {"n": 1}})]
        )

    def test_a_result_of_the_last_actor_goes_to_the_happy_end(self):
        """RUN-12: past the end to happy-end."""
        deliveries = self.started().sidecar("b").process(message(1, route=route("a", "b", current=1)))
        self.assertEqual([(actor, sent["payload"]) for actor, sent in deliveries], [("happy-end", 1)])

    def test_nothing_sends_the_original_to_the_happy_end(self):
        """RUN-12: `[]`: original to happy-end."""
        deliveries = self.started("def handle(payload): return None").sidecar().process(message("kept"))
        self.assertEqual(deliveries, [Delivery("happy-end", message("kept"))])

    def test_several_results_become_messages_with_ids_of_their_own(self):
        """RUN-12: n gets `{id}-{n}` and parent_id."""
        deliveries = self.started("def handle(payload): return ['x', 'y', 'z']").sidecar().process(message(0))
        self.assertEqual([actor for actor, _ in deliveries], ["b"] * 3)
        sent = [(each["payload"], each["id"], each.get("parent_id")) for _, each in deliveries]
        self.assertEqual(sent, [("x", "m1", None), ("y", "m1-1", "m1"), ("z", "m1-2", "m1")])

    def test_an_error_sends_the_original_to_the_error_end(self):
        """RUN-12: first element with `error`: original to error-end with error, details, original_payload."""
        ((actor, sent),) = self.started("def handle(payload): return 1 / 0").sidecar().process(message({"n": 1}))
        self.assertEqual((actor, sent["id"]), ("error-end", "m1"))
        self.assertEqual(sent["payload"]["error"], "processing_error")
        self.assertEqual(sent["payload"]["details"]["type"], "ZeroDivisionError")
        self.assertEqual(sent["payload"]["original_payload"], {"n": 1})

    def test_a_message_of_another_actor_never_reaches_the_handler(self):
        """RUN-11: forwarded only if `actors[current]` is the actor, else error-end."""
        runtime = self.started("def handle(payload): reached('handler')")
        deliveries = runtime.sidecar("b").process(message(1))
        self.assertEqual(deliveries, [Delivery("error-end", message(1))])
        self.assertFalse((runtime.directory / "handler").exists())

    def test_an_end_actor_handles_a_message_past_the_route_and_routes_nothing(self):
        """RUN-12: end actors get every message and nothing is routed."""
        code = "def handle(envelope): reached(envelope['id']); return {'status': 'stored'}"
        runtime = self.started(code, ASYA_ENABLE_VALIDATION="false", **ENVELOPE)
        done = message("result", route=route("a", current=1))
        self.assertEqual(runtime.sidecar("happy-end", is_end_actor=True).process(done), [])
        runtime.wait_reached("m1")

    def test_a_closed_connection_sends_the_original_to_the_error_end(self):
        """RUN-13: closed connection: error-end."""
        runtime = self.started("def handle(payload): os._exit(3)")
        self.assertEqual(runtime.sidecar().process(message(1)), [Delivery("error-end", message(1))])


class PayloadModeTest(RuntimeTestCase):
    def test_the_handler_gets_the_payload_alone(self):
        """RUN-16: payload mode gets payload; it is the default mode."""
        runtime = self.started("def handle(*args, **kwargs): return [[list(args), kwargs]]")
        self.assertEqual(runtime.call({"deep": [1, None, "x"]})[0]["payload"], [[{"deep": [1, None, "x"]}], {}])

    def test_results_become_elements_by_their_type(self):
        """RUN-16: None = `[]`, list or tuple = one element per item, else one."""
        runtime = self.started(EVALUATE)
        cases = {
            "None": [],
            "[]": [],
            "()": [],
            "[1, None, [2]]": [1, None, [2]],
            "('x', {'y': 1})": ["x", {"y": 1}],
            "{'a': [1, 2]}": [{"a": [1, 2]}],
            "'text'": ["text"],
            "0": [0],
            "False": [False],
            "1.5": [1.5],
            "{}": [{}],
            "{'tuple': (1, 2)}": [{"tuple": [1, 2]}],
            "{1: 'number as key'}": [{"1": "number as key"}],
        }
        for expression, payloads in cases.items():
            with self.subTest(expression):
                self.assertEqual([element["payload"] for element in runtime.call(expression)], payloads)

    def test_every_element_has_the_route_one_further_and_the_headers(self):
        """RUN-16: current+1, input headers copied, to each element."""
        sent = route("a", "b", "c", current=1, metadata={"k": "v"})
        reply = self.started(EVALUATE).call("[1, 2]", route=sent, headers={"trace": "t1"}, parent_id="p")
        onward = {"route": dict(sent, current=2), "headers": {"trace": "t1"}}
        self.assertEqual(reply, [dict(onward, payload=1), dict(onward, payload=2)])

    def test_no_headers_in_means_no_headers_out(self):
        """RUN-12: a reply element is {payload, route, headers?}."""
        self.assertEqual(set(self.started().call(1)[0]), {"payload", "route"})

    def test_a_missing_current_counts_as_the_first_actor(self):
        """RUN-16: missing = 0."""
        reply = self.started().call(1, route={"actors": ["a", "b"]})
        self.assertEqual(reply[0]["route"], route("a", "b", current=1))

    def test_a_payload_of_null_is_a_payload(self):
        """RUN-16: the payload must be present, not more."""
        reply = self.started("def handle(payload): return {'got': payload}").call(None)
        self.assertEqual(reply[0]["payload"], {"got": None})

    def test_without_validation_a_message_without_a_usable_route_is_handled(self):
        """RUN-16: checks apply only if ASYA_ENABLE_VALIDATION; end actors may get anything."""
        runtime = self.started(ASYA_ENABLE_VALIDATION="false")
        cases = {
            b'{"payload": 1}': [{"payload": 1, "route": None}],
            b'{"payload": 1, "route": "r", "headers": 7}': [{"payload": 1, "route": "r", "headers": 7}],
            b'{"payload": 1, "route": {"current": "x"}}': [{"payload": 1, "route": {"current": "x"}}],
            b'{"payload": 1, "route": {"actors": ["a"]}}': [{"payload": 1, "route": route("a", current=1)}],
        }
        for body, reply in cases.items():
            with self.subTest(body):
                self.assertEqual(runtime.call_raw(body), reply)

    def test_without_validation_a_well_formed_message_moves_on_as_usual(self):
        """RUN-16: bound actors run without validation, and their results must still be routed."""
        runtime = self.started(ASYA_ENABLE_VALIDATION="false")
        self.assertEqual(runtime.sidecar().process(message(1))[0].actor, "b")


class InputCheckTest(RuntimeTestCase):
    CASES = {
        "payload is missing": {"route": route("a")},
        "route is missing": {"payload": 1},
        "route must be an object, not array": {"payload": 1, "route": ["a"]},
        "route must be an object, not null": {"payload": 1, "route": None},
        "route.actors must be a non-empty list": {"payload": 1, "route": {"current": 0}},
        "actors must be a non-empty list": {"payload": 1, "route": {"actors": []}},
        "must be a non-empty list": {"payload": 1, "route": {"actors": "a"}},
        "current must be an integer from 0 to 1, not 2": {"payload": 1, "route": route("a", current=2)},
        "current must be an integer from 0 to 1, not -1": {"payload": 1, "route": route("a", current=-1)},
        "current must be an integer from 0 to 1, not '0'": {"payload": 1, "route": route("a", current="0")},
        "current must be an integer from 0 to 1, not True": {"payload": 1, "route": route("a", current=True)},
        "current must be an integer from 0 to 1, not 0.0": {"payload": 1, "route": route("a", current=0.0)},
        "current must be an integer from 0 to 1, not None": {"payload": 1, "route": route("a", current=None)},
        "headers must be an object, not array": {"payload": 1, "route": route("a"), "headers": []},
        "id must be a string, not number": {"payload": 1, "route": route("a"), "id": 7},
    }

    def test_each_flaw_of_a_request_is_named_in_both_modes(self):
        """RUN-16: the input checks, with msg_parsing_error for the envelope."""
        for mode in ("payload", "envelope"):
            runtime = self.started("def handle(value): reached('handler')", ASYA_HANDLER_MODE=mode)
            for text, flawed in self.CASES.items():
                with self.subTest(text, mode=mode):
                    self.assert_error(runtime.sidecar().exchange(flawed), "msg_parsing_error", text, "EnvelopeError")
            self.assertFalse((runtime.directory / "handler").exists())

    def test_without_validation_no_flaw_is_refused(self):
        """RUN-16: checks apply only if ASYA_ENABLE_VALIDATION."""
        runtime = self.started(ASYA_ENABLE_VALIDATION="false", **ENVELOPE)
        for text, flawed in self.CASES.items():
            with self.subTest(text):
                self.assertEqual(runtime.sidecar().exchange(flawed), [flawed])

    def test_a_route_that_is_done_is_accepted(self):
        """RUN-16: current may equal the number of actors."""
        reply = self.started(**ENVELOPE).call(1, route=route("a", current=1))
        self.assertEqual(reply[0]["route"], route("a", current=1))


class EnvelopeModeTest(RuntimeTestCase):
    def test_the_handler_gets_the_message_unchanged(self):
        """RUN-11: id, parent_id, route with metadata, headers and payload arrive as they were sent."""
        sent = message(
            {"p": 1}, parent_id="m0", headers={"h": 1}, route=route("a", "b", metadata={"k": [1]}, hint="kept")
        )
        reply = self.started("def handle(e): e['payload'] = dict(e, payload=e['payload']); return e", **ENVELOPE)
        self.assertEqual(reply.sidecar().exchange(sent)[0]["payload"], sent)

    def test_unknown_keys_reach_neither_handler_nor_reply(self):
        """RUN-16: unknown keys dropped."""
        code = "def handle(e): e['payload'] = sorted(e); e['mine'] = 1; return e"
        (element,) = self.started(code, **ENVELOPE).call(1, surprise=True)
        self.assertEqual(element["payload"], ["id", "payload", "route"])
        self.assertEqual(set(element), {"id", "payload", "route"})

    def test_without_validation_unknown_keys_stay(self):
        """RUN-16: nothing is dropped if ASYA_ENABLE_VALIDATION is off."""
        (element,) = self.started(ASYA_ENABLE_VALIDATION="false", **ENVELOPE).call(1, surprise=True)
        self.assertTrue(element["surprise"])

    def test_a_missing_current_is_filled_in_for_the_handler(self):
        """RUN-16: missing = 0, so handlers can add 1 to it."""
        deliveries = self.started(MOVE_ON, **ENVELOPE).sidecar().process(message(1, route={"actors": ["a", "b"]}))
        self.assertEqual(deliveries[0].actor, "b")

    def test_none_one_a_list_or_a_tuple_may_be_returned(self):
        """RUN-16: returns None, one or a list."""
        runtime = self.started("def handle(e): return eval(e['payload'])", **ENVELOPE)
        for expression, count in (("None", 0), ("[]", 0), ("e", 1), ("[e, e]", 2), ("(e, e, e)", 3)):
            with self.subTest(expression):
                self.assertEqual(len(runtime.call(expression)), count)

    def test_the_runtime_leaves_current_to_the_handler(self):
        """RUN-16: envelope mode moves `current` itself."""
        self.assertEqual(self.started(**ENVELOPE).call(1)[0]["route"]["current"], 0)

    def test_a_handler_may_change_what_comes_next(self):
        """RUN-16: only `actors[0..=current]` must stay; the rest is the handler's."""
        code = "def handle(e): e['route'] = {'actors': ['a', 'x', 'y'], 'current': 1}; return e"
        deliveries = self.started(code, **ENVELOPE).sidecar().process(message(1))
        self.assertEqual((deliveries[0].actor, deliveries[0].message["route"]["actors"]), ("x", ["a", "x", "y"]))

    def test_each_flaw_of_a_result_is_a_processing_error(self):
        """RUN-16: the output is checked as the input is, and its past; RUN-13: processing_error for it."""
        runtime = self.started("def handle(e): return eval(e['payload'])", **ENVELOPE)
        cases = {
            "'text'": "envelope must be an object, not string",
            "[e, None]": "envelope must be an object, not null",
            "{'route': e['route']}": "payload is missing",
            "{'payload': 1}": "route is missing",
            "dict(e, route=None)": "route must be an object",
            "dict(e, route={'actors': []})": "actors must be a non-empty list",
            "dict(e, route=dict(e['route'], current=4))": "current must be an integer from 0 to 3, not 4",
            "dict(e, route=dict(e['route'], current=True))": "current must be an integer",
            "dict(e, headers=1)": "headers must be an object",
            "dict(e, id=1)": "id must be a string",
            "dict(e, route={'actors': ['x', 'b', 'c'], 'current': 2})": "must still begin with ['a', 'b']",
            "dict(e, route={'actors': ['a', 'x', 'c'], 'current': 2})": "must still begin with ['a', 'b']",
            "dict(e, route={'actors': ['a'], 'current': 1})": "must still begin with ['a', 'b']",
            "[e, dict(e, route={'actors': ['b'], 'current': 0})]": "must still begin with ['a', 'b']",
        }
        for expression, text in cases.items():
            with self.subTest(expression):
                reply = runtime.call(expression, route=route("a", "b", "c", current=1))
                self.assert_error(reply, "processing_error", text, "EnvelopeError")

    def test_without_validation_the_result_is_not_checked(self):
        """RUN-16: ASYA_ENABLE_VALIDATION=false returns what the handler returns."""
        code = "def handle(e): return ['text', dict(e, route={'actors': ['x']})]"
        reply = self.started(code, ASYA_ENABLE_VALIDATION="false", **ENVELOPE).call(1)
        self.assertEqual(reply, ["text", message(1, route={"actors": ["x"]})])


class RouteEditedInPlaceTest(RuntimeTestCase):
    def test_the_last_actor_may_move_current_in_place(self):
        """RUN-17: the output is compared with a copy of the route taken before the call."""
        sidecar = self.started(MOVE_ON, **ENVELOPE).sidecar("b")
        deliveries = sidecar.process(message(1, route=route("a", "b", current=1)))
        self.assertEqual(deliveries[0].actor, "happy-end")

    def test_the_last_actor_may_append_an_actor_in_place(self):
        """RUN-17: the output is compared with a copy of the route taken before the call."""
        code = "def handle(e): e['route']['actors'].append('c'); e['route']['current'] += 1; return e"
        deliveries = self.started(code, **ENVELOPE).sidecar("b").process(message(1, route=route("a", "b", current=1)))
        self.assertEqual(deliveries[0].actor, "c")

    def test_a_past_rewritten_in_place_is_noticed(self):
        """RUN-17: without the copy the changed route would be compared with itself."""
        code = "def handle(e): e['route']['actors'][0] = 'x'; e['route']['current'] += 1; return e"
        self.assert_error(self.started(code, **ENVELOPE).call(1), "processing_error", "must still begin with ['a']")


class ResultsThatJsonCannotCarryTest(RuntimeTestCase):
    def test_each_is_answered_with_processing_error_and_the_runtime_goes_on(self):
        """RUN-18: objects, NaN and the like = processing_error; every request gets a reply."""
        runtime = self.started("import decimal\n" + EVALUATE)
        cases = {
            "object()": "TypeError",
            "{'deep': [object()]}": "TypeError",
            "[1, object()]": "TypeError",
            "{1, 2}": "TypeError",
            "b'bytes'": "TypeError",
            "decimal.Decimal(1)": "TypeError",
            "{(1, 2): 3}": "TypeError",
            "(item for item in [])": "TypeError",
            "float('nan')": "ValueError",
            "{'x': float('inf')}": "ValueError",
            "-float('inf')": "ValueError",
            "(lambda loop: loop.append(loop) or {'loop': loop})([])": "ValueError",
            "__import__('functools').reduce(lambda inner, _: {'d': inner}, range(200000), 0)": "RecursionError",
        }
        for expression, type_name in cases.items():
            with self.subTest(expression):
                self.assert_error(runtime.call(expression), "processing_error", type_name=type_name)
        self.assertEqual(runtime.call("'still here'")[0]["payload"], "still here")

    def test_an_envelope_with_such_a_payload_is_answered_too(self):
        """RUN-18: the same in envelope mode, validated or not."""
        for validation in ("true", "false"):
            with self.subTest(validation=validation):
                code = "def handle(e): e['payload'] = object(); return e"
                reply = self.started(code, ASYA_ENABLE_VALIDATION=validation, **ENVELOPE).call(1)
                self.assert_error(reply, "processing_error", "not JSON serializable")


class HandlerErrorsTest(RuntimeTestCase):
    def test_an_exception_is_answered_with_its_text_type_and_traceback(self):
        """RUN-13: details have message, type, traceback."""
        code = "class Odd(Exception): pass\ndef inner(): raise Odd('too odd')\ndef handle(payload): inner()"
        details = self.assert_error(self.started(code).call(1), "processing_error")
        self.assertEqual((details["message"], details["type"]), ("too odd", "Odd"))
        self.assertIn("in inner", details["traceback"])
        self.assertIn("user_code.py", details["traceback"])

    def test_no_exception_ends_the_process_or_goes_unanswered(self):
        """RUN-18: every request read gets a reply, whatever the handler raises."""
        code = """
        class Mute(Exception):
            def __str__(self): raise RuntimeError('no text')
        class Base(BaseException): pass
        def deep(): deep()
        def raise_(error): raise error
        def handle(payload): return eval(payload)
        """
        runtime = self.started(code)
        cases = {
            "raise_(SystemExit(3))": "SystemExit",
            "raise_(Base('base'))": "Base",
            "raise_(Mute())": "Mute",
            "raise_(ValueError('\\ud800'))": "ValueError",
            "raise_(StopIteration())": "StopIteration",
            "raise_(MemoryError())": "MemoryError",
            "deep()": "RecursionError",
            "handle()": "TypeError",
        }
        for expression, type_name in cases.items():
            with self.subTest(expression):
                self.assert_error(runtime.call(expression), "processing_error", type_name=type_name)
        self.assertEqual(runtime.call("1")[0]["payload"], 1)

    def test_a_handler_that_takes_no_argument_is_answered(self):
        """RUN-13: processing_error for the handler, before its first line too."""
        self.assert_error(self.started("def handle(): pass").call(1), "processing_error", type_name="TypeError")

    def test_an_error_of_the_handler_is_logged_with_id_and_traceback(self):
        """RUN-13: the pod's log shows what the error end is told."""
        runtime = self.started("def handle(payload): raise KeyError('absent')")
        runtime.call(1)
        self.assertIn("message m1: processing_error", runtime.stderr())
        self.assertIn("KeyError: 'absent'", runtime.stderr())


if __name__ == "__main__":
    unittest.main()
