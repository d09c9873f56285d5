"""A model's server for tests: the protocols of OpenAI and of KServe, and answers that tell what was asked. Port: the first argument."""

import contextlib
import http.server
import json
import os
import re
import signal
import sys
import threading
import time

NAME = os.environ.get("MODEL", "parrot")
# Where to listen: everywhere, unless told.
HOST = os.environ.get("HOST", "")
# How long a response takes, in seconds.
SECONDS = float(os.environ.get("SECONDS", "0"))
# If set, answers say how many requests were in progress, and when. The first ones, as many as it says, wait for each
# other, however slowly they begin.
MEASURES = int(os.environ.get("MEASURES", "0"))
PATIENCE_SECONDS = 60
# Whether SIGTERM aborts requests in progress.
ENDS_AT_ONCE = "ENDS_AT_ONCE" in os.environ


def chat(request):
    said = request["messages"][-1]["content"]
    return {"model": request["model"], "choices": [{"message": {"role": "assistant", "content": f"you said {said}"}}]}


def predict(request):
    return {"predictions": [number * 2 for number in request["instances"]]}


def infer(request):
    doubled = [dict(one, data=[number * 2 for number in one["data"]]) for one in request["inputs"]]
    return {"model_name": NAME, "outputs": doubled}


ANSWERS = (
    (r"/v1/chat/completions", chat),
    (rf"/v1/models/{NAME}:predict", predict),
    (rf"/v2/models/{NAME}/infer", infer),
    (r"/", lambda request: {"echo": request}),
)


class Server(http.server.BaseHTTPRequestHandler):
    lock = threading.Lock()
    in_flight = 0
    requests = 0
    together = threading.Barrier(max(MEASURES, 1))

    def do_GET(self):
        known = {"/health": {}, "/v2/health/ready": {}, "/v1/models": {"data": [{"id": NAME}], "models": [NAME]}}
        self.answer(200 if self.path in known else 404, known.get(self.path, {}))

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for path, answer in ANSWERS:
            if re.fullmatch(path, self.path):
                print("asked", flush=True)
                with Server.lock:
                    Server.in_flight += 1
                    measured = {"in_flight": Server.in_flight}
                    Server.requests += 1
                    is_early = Server.requests <= MEASURES
                if is_early:
                    with contextlib.suppress(threading.BrokenBarrierError):
                        Server.together.wait(PATIENCE_SECONDS)
                measured["begun"] = time.time()
                time.sleep(SECONDS)
                with Server.lock:
                    Server.in_flight -= 1
                measured["ended"] = time.time()
                self.answer(200, dict(answer(request), **(measured if MEASURES else {})))
                return
        self.answer(404, {"error": f"no {self.path} here"})

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Models(http.server.ThreadingHTTPServer):
    # Finish requests in progress before exiting, like a model server.
    daemon_threads = False
    # The default of 5 makes clients that connect at the same moment try again a second later.
    request_queue_size = 128


def main(port):
    server = Models((HOST, port), Server)
    # In another thread, since shutdown() waits for the loop that this handler interrupts.
    finish = threading.Thread(target=server.shutdown)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0) if ENDS_AT_ONCE else finish.start())
    server.serve_forever()
    server.server_close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
