"""Running and runnable time per thread, held against the scheduler's own
accounting in /proc/PID/task/TID/schedstat."""
import unittest

from harness import LONG, Recorder, load
from trace import Trace, overlap

THREADS = 20
SECONDS = 20 if LONG else 5


class Accuracy(unittest.TestCase):
    def test_running_and_runnable_time_agree_with_schedstat(self):
        with Recorder(period_s=3600) as recorder:
            truth = load("mixed", THREADS, SECONDS)
            trace = Trace(recorder.dump("--last", "1h"))
        self.assertEqual(trace.losses, [])
        for window in truth["threads"]:
            begin, end = window["begin_ns"], window["end_ns"]
            thread = trace.thread(window["tid"])
            length = end - begin
            running = overlap(thread.slices, begin, end)
            runnable = overlap(thread.waits, begin, end)
            self.assertLessEqual(abs(running - window["run_ns"]), 0.01 * length, window)
            self.assertLessEqual(abs(runnable - window["wait_ns"]), 0.02 * length, window)
            self.assertLessEqual(running + runnable, length)


if __name__ == "__main__":
    unittest.main()
