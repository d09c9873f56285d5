"""Tests of sandbox.sh: what a sandbox is, and that nothing of it stays. They need root and cgroups of version 1."""

import glob
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

SANDBOX = pathlib.Path(__file__).parent / "sandbox.sh"
# Runs in the sandbox: creates a mount, a cgroup in each hierarchy and a background process, then reports them.
STARTED = """
mkdir -p $ASYA_SANDBOX/mounted && mount -t tmpfs tmpfs $ASYA_SANDBOX/mounted
for hierarchy in /sys/fs/cgroup/*/; do mkdir $hierarchy${ASYA_SANDBOX##*/} || exit 1; done
setsid sleep 10000 &
echo $! $ASYA_SANDBOX
exec sleep 10000
"""
# Records the name of the sandbox, then runs the command.
NAMED = 'echo "${ASYA_SANDBOX##*/}" >> "$NAMES"; exec "$@"'
# The longest time that a sandbox may take to end, in seconds.
LONGEST = 120
# Simulates a machine with cgroups version 2 only.
VERSION_2 = "mount --make-rprivate /; umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec $0 true"


def is_possible():
    return os.geteuid() == 0 and subprocess.run([SANDBOX, "true"], capture_output=True, check=False).returncode == 0


def default_signals():
    """We may have been started with some of these ignored, and what ignores them when it starts never ends by them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@unittest.skipUnless(is_possible(), "no sandboxes here: they need root and cgroups of version 1")
class Sandbox(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        self.addCleanup(self.root.cleanup)
        self.before = self.seen()

    def run_sandbox(self, *command):
        return subprocess.run([SANDBOX, "bash", "-c", NAMED, "_", *command], env=self.environment(), capture_output=True, text=True, check=False)

    def environment(self):
        return dict(os.environ, TMPDIR=self.root.name, NAMES=self.names())

    def names(self):
        return f"{self.root.name}/names"

    def start(self):
        """A sandbox that runs, and the folder that is its."""
        command = [SANDBOX, "bash", "-c", NAMED, "_", "bash", "-c", STARTED]
        pipe = subprocess.PIPE
        child = subprocess.Popen(
            command, env=self.environment(), stdout=pipe, stderr=pipe, text=True, start_new_session=True, preexec_fn=default_signals
        )
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stderr.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        _, folder = child.stdout.readline().split()
        self.assertTrue(os.path.isdir(folder))
        return child, folder

    def seen(self):
        """What sandboxes of this test could leave: cgroups, mounts, interfaces, processes, folders. Others may run beside."""
        names = pathlib.Path(self.names())
        own = set(names.read_text().split()) if names.exists() else set()
        cgroups = [path for path in glob.glob("/sys/fs/cgroup/**/asya-sandbox-*", recursive=True) if os.path.basename(path) in own]
        mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if self.root.name in line]
        interfaces = [name for name in os.listdir("/sys/class/net") if name == "cni0"]
        return sorted(cgroups), mounts, interfaces, self.sleepers(), glob.glob(f"{self.root.name}/asya-sandbox-*")

    def sleepers(self):
        found = []
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                if f"TMPDIR={self.root.name}".encode() in pathlib.Path(path).read_bytes():
                    found.append(path)
            except OSError:
                pass
        return found

    def assert_nothing_stays(self):
        self.assertEqual(self.seen(), self.before)

    def test_a_box_has_only_its_own_processes_and_network(self):
        done = self.run_sandbox("bash", "-c", "ps -e --no-headers | wc -l; ls /sys/class/net 2>/dev/null; ip -o link | wc -l")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.split()
        self.assertLess(int(lines[0]), 8)
        self.assertEqual(int(lines[-1]), 2)
        self.assert_nothing_stays()

    def test_its_end_is_that_of_its_command(self):
        self.assertEqual(self.run_sandbox("bash", "-c", "exit 7").returncode, 7)
        self.assert_nothing_stays()

    def test_nothing_stays_after_an_interrupt(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)):
            with self.subTest(number):
                child, _ = self.start()
                # To the whole group, like a terminal.
                os.killpg(child.pid, number)
                self.assertEqual(child.wait(timeout=LONGEST), code)
                self.assert_nothing_stays()

    def test_what_a_killed_one_leaves_goes_with_the_next(self):
        child, folder = self.start()
        child.kill()
        child.wait()
        self.assertTrue(os.path.isdir(folder))
        for _ in range(100):
            if not self.sleepers():
                break
            time.sleep(0.05)
        self.assertEqual(self.sleepers(), [])
        self.assertEqual(self.run_sandbox("true").returncode, 0)
        self.assert_nothing_stays()

    def test_what_remains_is_reported_and_removed_by_the_next_run(self):
        child, folder = self.start()
        groups = pathlib.Path(folder, "cgroups").read_text().split()
        group = next(path for path in groups if "/pids" in path)
        with subprocess.Popen(["sleep", "10000"]) as stranger:
            try:
                pathlib.Path(group, "cgroup.procs").write_text(str(stranger.pid))
                os.killpg(child.pid, signal.SIGTERM)
                self.assertIn(f"this stays: {group}", child.communicate()[1])
            finally:
                stranger.kill()
        self.assertEqual(self.run_sandbox("true").returncode, 0)
        self.assert_nothing_stays()

    def test_what_is_missing_is_named(self):
        done = subprocess.run(["unshare", "-m", "sh", "-c", VERSION_2, SANDBOX], env=self.environment(), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "version 1 for cpu .* pids; this machine has version 2 only")
        self.assert_nothing_stays()

    def test_one_that_runs_is_left_alone(self):
        child, folder = self.start()
        self.assertEqual(self.run_sandbox("true").returncode, 0)
        self.assertTrue(os.path.isdir(folder))
        self.assertIsNone(child.poll())
        os.killpg(child.pid, signal.SIGTERM)
        child.wait()
        self.assert_nothing_stays()


if __name__ == "__main__":
    unittest.main()
