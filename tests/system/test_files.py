"""Rotated files and dumps: each is whole by itself, and any run of files is one
trace."""
import os
import time
import unittest

from harness import Recorder, load, wait_for
from trace import KEYFRAME, Trace


class Files(unittest.TestCase):
    def assert_whole(self, trace):
        self.assertEqual(trace.segments[0]["kind"], KEYFRAME)
        self.assertGreaterEqual(trace.clock_snapshots, len(trace.segments))
        for before, after in zip(trace.segments, trace.segments[1:]):
            self.assertEqual(before["end_ns"], after["begin_ns"])

    def test_files_stand_alone_and_together(self):
        with Recorder(period_s=1) as recorder:
            load("storm", 1000, 4, "exec")
            files = recorder.wait_for_files(5)[1:4]
            for path in files:
                trace = Trace(path)
                self.assert_whole(trace)
                self.assertGreater(trace.events["sched_switch"], 0)
                unnamed = [t for ts in trace.threads.values() for t in ts if t.tid and not t.names]
                self.assertEqual(unnamed, [])
            joined = os.path.join(recorder.root, "joined")
            with open(joined, "wb") as out:
                for path in files:
                    with open(path, "rb") as file:
                        out.write(file.read())
            self.assert_whole(Trace(joined))

    def test_a_dump_joins_files_and_ring(self):
        # A ring of a few seconds under this load, and files before it.
        with Recorder(period_s=1, ring_mb=4, extra="compression: NONE") as recorder:
            wait_for(lambda: load("storm", 20000, 1) and
                     int(recorder.status()["ring"]["evicted_segments"]) > 4, "a full ring", 60)
            status = recorder.status()
            trace = Trace(recorder.dump("--files", "4"))
        self.assert_whole(trace)
        span = trace.segments[-1]["end_ns"] - trace.segments[0]["begin_ns"]
        self.assertGreater(span, int(status["ring"]["span_ns"]))

    def test_a_window_between_two_times_holds_that_window(self):
        with Recorder(period_s=1) as recorder:
            recorder.wait_for_files(3)
            now = time.time()
            trace = Trace(recorder.dump("--from", f"@{now - 1.5:.6f}", "--to", f"@{now - 0.5:.6f}"))
            boot = time.clock_gettime(time.CLOCK_BOOTTIME) - (time.time() - now)
        self.assert_whole(trace)
        self.assertLessEqual(trace.segments[0]["begin_ns"] / 1e9, boot - 1.5)
        self.assertGreaterEqual(trace.segments[-1]["end_ns"] / 1e9, boot - 0.5)
        self.assertLess(trace.segments[-1]["end_ns"] / 1e9, boot + 0.7)

    def test_a_dump_has_the_moment_before_the_command(self):
        with Recorder(period_s=3600) as recorder:
            truth = load("spin", "just-now", 0.05)
            trace = Trace(recorder.dump("--last", "5s"))
        # It ended a moment ago, and that is in it.
        self.assertEqual([tid for ts, tid in trace.exits
                          if tid == truth["tid"] and ts >= truth["end_ns"]], [truth["tid"]])

    def test_a_signal_dumps_the_configured_window(self):
        with Recorder(period_s=3600, extra="dump { last_s: 2 }") as recorder:
            recorder.process.send_signal(10)  # SIGUSR1
            end = time.monotonic() + 10
            while time.monotonic() < end:
                done = recorder.ctl("snapshots", "list").stdout
                if "-signal" in done:
                    break
            self.assertIn("-signal", done)

    def test_retention_keeps_the_newest_and_touches_nothing_else(self):
        with Recorder(period_s=1, rotation="keep_files: 2") as recorder:
            foreign = os.path.join(recorder.trace, "somebody.perfetto-trace")
            recorder.wait_for_files(1)
            with open(foreign, "w", encoding="ascii") as file:
                file.write("mine")
            first = recorder.files()[0]
            end = time.monotonic() + 15
            while os.path.exists(first) and time.monotonic() < end:
                time.sleep(0.05)
            self.assertFalse(os.path.exists(first))
            self.assertTrue(os.path.exists(foreign))
            ours = [f for f in recorder.files() if f != foreign]
            self.assertLessEqual(len(ours), 3)


if __name__ == "__main__":
    unittest.main()
