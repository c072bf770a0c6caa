"""SIGKILL at any moment: finished files are whole, the ring is found again."""
import os
import random
import signal
import time
import unittest

from harness import LONG, Recorder, boot_ns, start_load
from trace import Trace

KILLS = 100 if LONG else 8


class Crash(unittest.TestCase):
    def test_kills_at_random_moments_leave_whole_files_and_a_ring(self):
        random.seed(1)
        recorder = Recorder(period_s=1)
        storm = start_load("storm", 500, KILLS * 3 + 10)
        try:
            for _ in range(KILLS):
                recorder.start()
                time.sleep(random.uniform(0.2, 2.0))
                recorder.kill()
            recorder.start()
            status = recorder.status()
            self.assertGreater(int(status["ring"]["recovered_segments"]), 0)
            self.assertEqual(int(status["ring"]["torn_segments"]), 0)
            dump = Trace(recorder.dump("--last", "1h"))
            self.assertGreaterEqual(len(dump.gaps), 1)
            recorder.stop()
            files = recorder.files()
            self.assertGreater(len(files), KILLS // 3)
            for path in files:
                trace = Trace(path)  # Raises where it is not whole.
                self.assertGreater(len(trace.segments), 0)
            left = [n for n in os.listdir(recorder.trace) if n.endswith(".partial")]
            self.assertEqual(left, [])
        finally:
            storm.terminate()
            storm.communicate()
            recorder.__exit__()

    def test_at_most_the_unsealed_second_is_lost(self):
        with Recorder(period_s=3600) as recorder:
            time.sleep(2.5)
            killed = boot_ns()
            recorder.kill()
            recorder.start()
            trace = Trace(recorder.dump("--last", "1h"))
        gap = trace.gaps[-1]
        self.assertLess((killed - gap["begin_ns"]) / 1e9, 1.4)
        self.assertGreater(gap["end_ns"], killed)

    def test_a_partial_file_cut_anywhere_is_salvaged(self):
        for cut in range(1, 8):
            with Recorder(period_s=3600) as recorder:
                def is_written():
                    names = os.listdir(recorder.trace) if os.path.isdir(recorder.trace) else []
                    paths = [os.path.join(recorder.trace, n) for n in names]
                    return [p for p in paths if os.path.getsize(p) > 2000]
                end = time.monotonic() + 10
                while not is_written() and time.monotonic() < end:
                    time.sleep(0.02)
                partial = is_written()[0]
                os.kill(recorder.process.pid, signal.SIGSTOP)
                recorder.kill()
                size = os.path.getsize(partial) * cut // 8
                os.truncate(partial, size)
                # Another ring, so that the file cannot simply go on.
                os.unlink(os.path.join(recorder.root, "run", "ring"))
                recorder.start()
                name = partial.removesuffix(".partial")
                end = time.monotonic() + 10
                while os.path.exists(partial) and time.monotonic() < end:
                    time.sleep(0.02)
                self.assertFalse(os.path.exists(partial))
                if os.path.exists(name):
                    trace = Trace(name)
                    self.assertEqual(len(trace.truncations), 1)
                    self.assertLessEqual(trace.segments[-1]["end_ns"], boot_ns())

    def test_a_killed_writer_is_replaced_and_nothing_is_missing(self):
        with Recorder(period_s=3600) as recorder:
            def writing():
                status = recorder.status()["writer"]
                return status.get("current_file") and status
            end = time.monotonic() + 10
            while not writing() and time.monotonic() < end:
                time.sleep(0.05)
            writer = writing()
            os.kill(writer["pid"], signal.SIGKILL)
            while time.monotonic() < end + 10:
                now = recorder.status()["writer"]
                if now["pid"] not in (writer["pid"], -1) and now.get("current_file"):
                    break
                time.sleep(0.05)
            self.assertEqual(now["current_file"], writer["current_file"])
            recorder.stop()
            trace = Trace(recorder.files()[-1])
        for before, after in zip(trace.segments, trace.segments[1:]):
            self.assertEqual(before["end_ns"], after["begin_ns"])


if __name__ == "__main__":
    unittest.main()
