"""Starts the real script as a process of its own, with a handler written by the test."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from typing import Any, Callable, Dict, Optional

from sidecar_client import PATIENCE, Connection, Sidecar

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "asya_runtime.py"
ADAPTERS = SCRIPT.with_name("asya_adapters.py")

# Another interpreter may run the script: ASYA_TEST_PYTHON=/opt/python3.7/bin/python3
PYTHON = os.environ.get("ASYA_TEST_PYTHON") or sys.executable

ECHO = "def handle(value): return value"

# For handlers: `reached` and `wait_for` let a test see and steer how far one is.
STEERING = '''
import os, time
def reached(name):
    open(os.path.join(os.environ["TEST_DIR"], name), "w").close()
def wait_for(name):
    while not os.path.exists(os.path.join(os.environ["TEST_DIR"], name)):
        time.sleep(0.002)
'''


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Returns as soon as the condition holds; fails if it does not in good time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE} s in vain until {what}")
        time.sleep(0.002)


class RuntimeProcess:
    """A pod's view of the runtime: its directory, its process and what it printed."""

    def __init__(self, directory: str, handler: str = "user_code.handle", env: Optional[Dict[str, str]] = None) -> None:
        self.directory = pathlib.Path(directory)
        self.socket_dir = self.directory / "socket"
        self.socket_path = self.socket_dir / "asya-runtime.sock"
        self.ready_path = self.socket_dir / "runtime-ready"
        self.socket_dir.mkdir(exist_ok=True)
        # -S: the script needs no installed package, and starts twice as fast without them.
        self.command = [PYTHON, "-S", str(SCRIPT)]
        self.env = {
            "PATH": os.environ.get("PATH", ""),
            "PYTHONPATH": directory,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TEST_DIR": directory,
            "ASYA_HANDLER": handler,
            "ASYA_SOCKET_DIR": str(self.socket_dir),
        }
        self.env.update(env or {})
        self.process: Optional[subprocess.Popen] = None

    def write(self, name: str, code: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code), encoding="utf-8")

    def spawn(self) -> "RuntimeProcess":
        """Starts the script, and does not wait for anything."""
        with open(self.directory / "stdout", "ab") as stdout, open(self.directory / "stderr", "ab") as stderr:
            self.process = subprocess.Popen(
                self.command, env=self.env, cwd="/", stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )
        return self

    def start(self) -> "RuntimeProcess":
        """Starts the script and waits until it says that it is ready."""
        self.spawn()
        wait_until(lambda: self.ready_path.exists() or self.exited(), "the runtime is ready")
        if self.exited():
            raise AssertionError("the runtime did not start:\n" + self.stderr())
        return self

    def exited(self) -> bool:
        return self.process.poll() is not None

    def exit_code(self) -> int:
        """Waits for the end of the process."""
        return self.process.wait(PATIENCE)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stdout(self) -> str:
        return (self.directory / "stdout").read_text(encoding="utf-8")

    def stderr(self) -> str:
        return (self.directory / "stderr").read_text(encoding="utf-8")

    def files(self) -> list:
        return sorted(path.name for path in self.socket_dir.iterdir())

    def let(self, name: str) -> None:
        """Lets a handler go on that waits for `name`."""
        (self.directory / name).touch()

    def wait_reached(self, name: str) -> None:
        wait_until((self.directory / name).exists, f"the handler reached {name}")

    def connect(self) -> Connection:
        return Connection(str(self.socket_path))

    def sidecar(self, actor: str = "a", is_end_actor: bool = False) -> Sidecar:
        return Sidecar(str(self.socket_dir), actor, is_end_actor)

    def call(self, payload: Any, **fields: Any) -> Any:
        """The reply to a well-formed message with this payload."""
        return self.sidecar().exchange(message(payload, **fields))

    def call_raw(self, body: bytes) -> Any:
        """The reply to a frame with this body."""
        with self.connect() as connection:
            connection.send_frame(body)
            return connection.read_reply()


def message(payload: Any, **fields: Any) -> Dict[str, Any]:
    """A message as the queue holds it, at actor `a` with `b` to follow."""
    return dict({"id": "m1", "route": {"actors": ["a", "b"], "current": 0}, "payload": payload}, **fields)


class RuntimeTestCase(unittest.TestCase):
    """Gives tests runtimes, and ends them."""

    def runtime(self, code: str = ECHO, handler: str = "user_code.handle", **env: str) -> RuntimeProcess:
        """A runtime that is not started yet, with `code` as module user_code."""
        directory = tempfile.mkdtemp(prefix="asya-")
        self.addCleanup(shutil.rmtree, directory)
        runtime = RuntimeProcess(directory, handler, env)
        runtime.write("user_code.py", STEERING + textwrap.dedent(code))
        self.addCleanup(self._end, runtime)
        return runtime

    def started(self, code: str = ECHO, handler: str = "user_code.handle", **env: str) -> RuntimeProcess:
        return self.runtime(code, handler, **env).start()

    def assert_error(self, reply: Any, code: str, text: str = "", type_name: str = "") -> Dict[str, str]:
        """The reply is one error element of this code; returns its details."""
        self.assertIsInstance(reply, list)
        self.assertEqual([set(element) for element in reply], [{"error", "details"}], reply)
        self.assertEqual(reply[0]["error"], code, reply)
        details = reply[0]["details"]
        self.assertEqual(sorted(details), ["message", "traceback", "type"])
        self.assertEqual({type(value) for value in details.values()}, {str})
        self.assertIn(text, details["message"])
        if type_name:
            self.assertEqual(details["type"], type_name)
        return details

    def assert_refuses_to_start(self, runtime: RuntimeProcess, *texts: str) -> None:
        """The process ends with code 1, shows the texts and was never ready."""
        if runtime.process is None:
            runtime.spawn()
        self.assertEqual(runtime.exit_code(), 1, runtime.stderr())
        for text in texts:
            self.assertIn(text, runtime.stderr())
        self.assertEqual(runtime.files(), [])

    @staticmethod
    def _end(runtime: RuntimeProcess) -> None:
        if runtime.process is not None and not runtime.exited():
            runtime.kill()
