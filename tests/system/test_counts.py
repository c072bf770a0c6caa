"""What is recorded is what happened: counts held against the kernel's own."""
import os
import subprocess
import tempfile
import unittest

from harness import LONG, Recorder, boot_ns, context_switches, load, tool, wait_for
from trace import Trace

SECONDS = 30 if LONG else 5


class Counts(unittest.TestCase):
    def record(self, action, **settings):
        """Runs `action` under a recorder; (trace of its window, begin, end, least
        and most that ctxt grew meanwhile, what the action returned, status)."""
        with Recorder(period_s=3600, ring_mb=256, **settings) as recorder:
            before, begin, also_before = context_switches(), boot_ns(), context_switches()
            result = action()
            also_after, end, after = context_switches(), boot_ns(), context_switches()
            trace = Trace(recorder.dump("--last", "1h"))
            grown = (also_after - also_before, after - before)
            return trace, begin, end, grown, result, recorder.status()

    def check(self, action):
        trace, begin, end, grown, result, status = self.record(action)
        self.assertEqual(status.get("loss", []), [])
        self.assertEqual(trace.losses, [])
        counted = trace.count("switch", begin, end)
        slack = max(10, grown[1] * 0.001)
        self.assertLessEqual(counted, grown[1] + slack)
        self.assertGreaterEqual(counted, grown[0] - slack)
        return trace, begin, end, result

    def test_hackbench(self):
        hackbench = [tool("hackbench"), "-g", "4", "-l", "20000"]
        self.check(lambda: subprocess.run(["timeout", str(SECONDS), *hackbench],
                                          capture_output=True, check=False))

    def test_direct_reads(self):
        fio = tool("fio")
        with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
            words = [fio, "--name=r", f"--filename={file.name}", "--size=64m", "--direct=1",
                     "--rw=randread", "--bs=4k", "--iodepth=8", "--ioengine=libaio",
                     f"--runtime={SECONDS}", "--time_based", "--output-format=terse"]
            trace, *_, done = self.check(lambda: subprocess.run(words, capture_output=True, text=True,
                                                                check=False))
            if done.returncode != 0:
                self.skipTest(f"fio cannot read directly here: {done.stderr.strip()[:100]}")
            issued, completed = trace.events["block_rq_issue"], trace.events["block_rq_complete"]
            self.assertGreater(issued, 100)
            # Flushes complete without an issue, and requests split.
            self.assertLessEqual(abs(issued - completed), max(64, 0.02 * issued))

    def test_process_starts(self):
        *_, truth = last = self.check(lambda: load("storm", 5000, SECONDS, "exec"))
        trace, begin, end = last[0], last[1], last[2]
        children = truth["children"]
        execs = sum(1 for ts, _, name in trace.execs if name == b"/bin/true" and begin <= ts <= end)
        self.assertEqual(execs, children)
        self.assertGreaterEqual(trace.events["task_newtask"], children)
        self.assertGreaterEqual(trace.events["sched_process_exit"], children)

    def test_wakings_equal_perfs(self):
        perf = tool("perf")
        words = ["unshare", "-m", "sh", "-c",
                 "mount -t tracefs tracefs /sys/kernel/tracing && "
                 f"exec {perf} stat -x, -e sched:sched_waking -a -- timeout {SECONDS} "
                 f"{tool('hackbench')} -g 4 -l 20000"]
        trace, begin, end, _, done, _ = self.record(
            lambda: subprocess.run(words, capture_output=True, text=True, check=False))
        lines = [line for line in done.stderr.splitlines() if "sched:sched_waking" in line]
        if not lines or not lines[0].split(",")[0].isdigit():
            self.skipTest(f"perf cannot count wakings here: {done.stderr.strip()[:100]}")
        truth = int(lines[0].split(",")[0])
        counted = trace.count("waking", begin, end)
        self.assertLessEqual(abs(counted - truth), max(400, truth * 0.001), f"{counted} of {truth}")


class Loss(unittest.TestCase):
    """With buffers made too small, what is said to be lost is what is missing."""

    def test_task_events_kept_and_lost_are_all_that_happened(self):
        with Recorder(period_s=3600, probes="event_buffer_kb: 4 drain_ms: 1000") as recorder:
            truth = load("storm", 10000, 3)
            trace = Trace(recorder.dump("--last", "1h"))
            status = recorder.status()
        per_child = 5  # newtask, wakeup_new, fork, exit, free
        kinds = ("task_newtask", "sched_wakeup_new", "sched_process_fork", "sched_process_exit",
                 "sched_process_free")
        kept = sum(trace.events[kind] for kind in kinds)
        lost = trace.loss_count("task")
        self.assertGreater(lost, 1000)
        self.assertLessEqual(abs(kept + lost - per_child * truth["children"]), 500)
        said = sum(int(s["lost"]) for s in status["sources"] if s["name"] == "task")
        self.assertEqual(said, lost)
        self.assertGreater(trace.lost_bundles, 0)
        for loss in trace.losses:
            self.assertIsNotNone(loss["cpu"])
            self.assertLess(loss["begin_ns"], loss["end_ns"])
            self.assertLessEqual(loss["end_ns"], trace.segments[-1]["end_ns"])
        # Said as it happened, burst by burst, not as one total at the end.
        self.assertGreater(len({loss["begin_ns"] for loss in trace.losses}), 1)

    def test_switches_kept_and_lost_are_all_that_happened(self):
        with Recorder(period_s=3600, ring_mb=64) as whole:
            with Recorder(period_s=3600, probes="sched_slots: 256 drain_ms: 1000") as small:
                subprocess.run(["timeout", "4", tool("hackbench"), "-g", "2", "-l", "20000"],
                               capture_output=True, check=False)
                part = Trace(small.dump("--last", "1h"))
            truth = Trace(whole.dump("--last", "1h"))
        begin = part.segments[0]["begin_ns"]
        end = part.segments[-1]["end_ns"]
        happened = truth.count("switch", begin, end) + truth.count("waking", begin, end)
        kept = part.events["sched_switch"] + part.events["sched_waking"]
        lost = part.loss_count("sched")
        self.assertGreater(lost, 1000)
        self.assertEqual(truth.losses, [])
        self.assertLessEqual(abs(kept + lost - happened), 20, f"{kept} + {lost} of {happened}")


class RecursionMisses(unittest.TestCase):
    """A program that the kernel skips, being in it already, is a lost event."""

    def missed(self, recorder):
        """The kernel's count over all programs that the daemon holds."""
        directory = f"/proc/{recorder.process.pid}/fdinfo"
        programs, missed = 0, 0
        for name in os.listdir(directory):
            with open(os.path.join(directory, name), encoding="ascii") as file:
                lines = dict(line.split(":", 1) for line in file if ":" in line)
            if "prog_type" in lines and "recursion_misses" in lines:
                programs += 1
                missed += int(lines["recursion_misses"])
        if programs == 0:
            self.skipTest("this kernel does not say what its programs missed")
        return missed

    def test_the_kernels_own_count_is_what_is_said(self):
        with Recorder() as recorder:
            load("storm", 10000, 5)

            def said():
                return sum(int(loss["count"]) for loss in recorder.status().get("loss", [])
                           if loss["cause"] == "RECURSION")
            wait_for(lambda: said() == self.missed(recorder), "the count to be told", 10)


if __name__ == "__main__":
    unittest.main()
