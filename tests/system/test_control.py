"""Who may talk to the daemon, how many at once, and that there is one of it."""
import concurrent.futures
import grp
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import GROUP, LONG, Recorder, binary, load
from trace import Trace

NOBODY = 65534


def as_nobody(groups):
    flag = ["--groups", str(groups)] if groups else ["--clear-groups"]
    return ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), *flag]


class Access(unittest.TestCase):
    def setUp(self):
        # Somebody who is not root must reach the binary and the socket.
        self.bin = tempfile.mkdtemp(prefix="aitrace-bin-", dir="/dev/shm")
        shutil.copy(binary("aitracectl"), self.bin)
        os.chmod(self.bin, 0o755)
        self.addCleanup(shutil.rmtree, self.bin)

    def ctl(self, recorder, prefix, *words):
        os.chmod(recorder.root, 0o755)
        return subprocess.run([*prefix, f"{self.bin}/aitracectl", "--socket", recorder.socket, *words],
                              capture_output=True, text=True, check=False)

    def test_a_member_by_supplementary_group_may_dump(self):
        member = as_nobody(grp.getgrnam(GROUP).gr_gid)
        with Recorder(period_s=3600) as recorder:
            out = os.path.join(recorder.root, "out")
            os.mkdir(out)
            os.chown(out, NOBODY, NOBODY)
            done = self.ctl(recorder, member, "dump", "--last", "30s", "-o", f"{out}/x")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.stat(f"{out}/x").st_uid, NOBODY)
            self.assertGreater(len(Trace(f"{out}/x").segments), 1)
            snapshot = recorder.ctl("snapshots", "list").stdout.split()[5]
            refused = self.ctl(recorder, member, "snapshots", "rm", snapshot)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("only root", refused.stderr)

    def test_anybody_else_is_refused_and_told_why(self):
        with Recorder(period_s=3600) as recorder:
            done = self.ctl(recorder, as_nobody(None), "dump", "--last", "30s")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"usermod -aG {GROUP}", done.stderr)

    def test_recording_shows_no_gap_across_a_dump(self):
        with Recorder(period_s=3600) as recorder:
            for _ in range(3):
                recorder.dump("--last", "30s")
            trace = Trace(recorder.dump("--last", "30s"))
        for before, after in zip(trace.segments, trace.segments[1:]):
            self.assertEqual(before["end_ns"], after["begin_ns"])
        self.assertEqual(trace.losses, [])

    def test_ten_clients_at_once(self):
        with Recorder(period_s=3600) as recorder:
            with concurrent.futures.ThreadPoolExecutor(10) as pool:
                dumps = [pool.submit(recorder.dump, "--last", "5s") for _ in range(10)]
                for dump in dumps:
                    self.assertGreater(len(Trace(dump.result()).segments), 0)
            ids = {line.split()[0] for line in recorder.ctl("snapshots").stdout.splitlines()[1:]}
            self.assertEqual(len(ids), 10)

    def test_no_daemon_is_exit_code_3(self):
        done = subprocess.run([binary("aitracectl"), "--socket", "/nowhere/x", "status"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 3)
        self.assertIn("/nowhere/x", done.stderr)

    def test_usage_errors_are_exit_code_2(self):
        for words in (["dump", "--last", "soon"], ["nonsense"], ["dump", "--last", "5s", "--files", "2"]):
            done = subprocess.run([binary("aitracectl"), *words], capture_output=True, check=False)
            self.assertEqual(done.returncode, 2, words)


class HostileClients(unittest.TestCase):
    def connect(self, recorder):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        client.settimeout(3)
        client.connect(recorder.socket)
        return client

    def test_abuse_costs_nobody_else_anything(self):
        status_request = b"\x0a\x00"
        with Recorder(period_s=3600) as recorder:
            recorder.status()
            descriptors = f"/proc/{recorder.process.pid}/fd"
            before = len(os.listdir(descriptors))
            garbage = self.connect(recorder)
            garbage.send(os.urandom(60000))
            self.assertIn(b"not a message", garbage.recv(4096))
            silent = [self.connect(recorder) for _ in range(400)]
            deaf = self.connect(recorder)
            deaf.setblocking(False)
            try:
                while True:
                    deaf.send(status_request)
            except OSError:
                pass
            for _ in range(200):
                gone = self.connect(recorder)
                gone.send(status_request)
                gone.close()
            with_fds = self.connect(recorder)
            socket.send_fds(with_fds, [status_request], [0] * 100)
            self.assertGreater(len(with_fds.recv(65536)), 10)
            began = time.monotonic()
            self.assertGreater(int(recorder.status()["clients"]["dropped"]), 0)
            self.assertLess(time.monotonic() - began, 5)
            for client in [garbage, deaf, with_fds, *silent]:
                client.close()
            end = time.monotonic() + 10
            while len(os.listdir(descriptors)) > before and time.monotonic() < end:
                time.sleep(0.05)
            self.assertLessEqual(len(os.listdir(descriptors)), before)


class OneDaemon(unittest.TestCase):
    def second(self, recorder):
        return subprocess.run([binary("aitraced"), "-c", recorder.config], capture_output=True,
                              text=True, check=False, timeout=10)

    def test_two_at_once_one_runs_and_one_says_why(self):
        recorder = Recorder(period_s=3600)
        try:
            for _ in range(50 if LONG else 5):
                both = [subprocess.Popen([binary("aitraced"), "-c", recorder.config],
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                        for _ in range(2)]
                end = time.monotonic() + 10
                while all(p.poll() is None for p in both) and time.monotonic() < end:
                    time.sleep(0.01)
                loser = next(p for p in both if p.poll() is not None)
                winner = next(p for p in both if p is not loser)
                self.assertIn("is running already", loser.communicate()[0])
                self.assertEqual(loser.returncode, 1)
                self.assertIsNone(winner.poll())
                winner.terminate()
                winner.communicate()
        finally:
            recorder.__exit__()

    def test_a_stopped_daemon_keeps_its_place(self):
        with Recorder(period_s=3600) as recorder:
            recorder.process.send_signal(signal.SIGSTOP)
            done = self.second(recorder)
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(recorder.process.pid), done.stdout + done.stderr)

    def test_a_killed_daemons_socket_does_not_block_the_next(self):
        with Recorder(period_s=3600) as recorder:
            recorder.kill()
            self.assertTrue(os.path.exists(recorder.socket))
            recorder.start()
            recorder.status()

    def test_what_is_no_socket_stays(self):
        recorder = Recorder(period_s=3600)
        try:
            os.mkdir(os.path.join(recorder.root, "run"))
            for make in (lambda p: open(p, "w", encoding="ascii").close(),
                         lambda p: os.symlink("/etc/passwd", p), os.mkdir):
                make(recorder.socket)
                done = self.second(recorder)
                self.assertEqual(done.returncode, 1)
                self.assertIn("not a socket", done.stdout + done.stderr)
                self.assertTrue(os.path.lexists(recorder.socket))
                if os.path.isdir(recorder.socket):
                    os.rmdir(recorder.socket)
                else:
                    os.unlink(recorder.socket)
        finally:
            recorder.__exit__()

    def test_socket_activation(self):
        recorder = Recorder(period_s=3600)
        try:
            os.mkdir(os.path.join(recorder.root, "run"))
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            listener.bind(recorder.socket)
            listener.listen(16)
            os.set_inheritable(listener.fileno(), True)
            # The descriptor must be number 3, and LISTEN_PID the daemon's own.
            script = ("exec 3<&%d; export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=control; "
                      "exec \"$@\"" % listener.fileno())
            recorder.wrapper = ["sh", "-c", script, "sh"]
            recorder.start(close_fds=False)
            self.assertGreater(recorder.status()["pid"], 0)
            recorder.stop()
            self.assertTrue(os.path.exists(recorder.socket))
        finally:
            recorder.__exit__()


class Reload(unittest.TestCase):
    def reload(self, recorder):
        recorder.process.send_signal(signal.SIGHUP)

    def wait(self, recorder, condition):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            status = recorder.status()
            if condition(status):
                return status
            time.sleep(0.05)
        raise AssertionError(f"not reloaded: {recorder.log()}")

    def test_a_good_configuration_is_taken_over(self):
        with Recorder(period_s=3600) as recorder:
            before = recorder.status()["config_digest"]
            recorder.write_config(period_s=1)
            self.reload(recorder)
            self.wait(recorder, lambda s: s["config_digest"] != before)
            recorder.wait_for_files(2)

    def test_a_bad_one_changes_nothing_and_says_where(self):
        with Recorder(period_s=3600) as recorder:
            before = recorder.status()["config_digest"]
            recorder.write_config(extra="nonsense: 1", period_s=1)
            self.reload(recorder)
            status = self.wait(recorder, lambda s: s.get("config_error"))
            self.assertEqual(status["config_digest"], before)
            self.assertIn("aitraced.pbtxt:6:", status["config_error"])

    def test_one_that_needs_a_restart_is_refused_whole(self):
        with Recorder(period_s=3600) as recorder:
            before = recorder.status()["config_digest"]
            recorder.write_config(ring_mb=8, period_s=1)
            self.reload(recorder)
            status = self.wait(recorder, lambda s: s.get("config_error"))
            self.assertEqual(status["config_digest"], before)
            self.assertIn("ring.size_mb", status["config_error"])


class Cost(unittest.TestCase):
    def test_memory_stays_bounded_under_process_churn(self):
        with Recorder(period_s=3600) as recorder:
            load("storm", 3000, 2)
            before = int(recorder.status()["cost"]["rss_bytes"])
            load("storm", 5000, 600 if LONG else 8)
            cost = recorder.status()["cost"]
            after = int(cost["rss_bytes"])
            print(f"         rss {before >> 20} -> {after >> 20} MiB, kernel buffers "
                  f"{int(cost['kernel_buffer_bytes']) >> 20} MiB")
            self.assertLess(after, before + (4 << 20))
            self.assertLess(after, (32 << 20) + int(cost["kernel_buffer_bytes"]))

    def test_idle_cost_is_small(self):
        with Recorder(period_s=3600) as recorder:
            time.sleep(5)
            cost = recorder.status()["cost"]
            print(f"         {cost['cpu_percent']:.2f} % + writer {cost['writer_cpu_percent']:.2f} %")
            self.assertLess(cost["cpu_percent"], 5)


if __name__ == "__main__":
    unittest.main()
