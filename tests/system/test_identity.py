"""Who is who, at each instant and in each file by itself."""
import os
import subprocess
import unittest

from harness import Recorder, boot_ns, load, start_load
from trace import Trace, overlap


class Identity(unittest.TestCase):
    def test_a_thread_without_an_event_in_a_file_is_in_it_as_running(self):
        # Started before the recorder, alone on its CPU, and never leaving it.
        spinner = start_load("spin", "solo", 9, prefix=["chrt", "-f", "10", "taskset", "-c", "1"])
        try:
            with Recorder(period_s=1) as recorder:
                files = recorder.wait_for_files(4)[1:3]
                traces = [Trace(path) for path in files]
        finally:
            spinner.terminate()
            spinner.communicate()
        for trace in traces:
            thread = trace.thread(spinner.pid)
            length = trace.segments[-1]["end_ns"] - trace.segments[0]["begin_ns"]
            running = overlap(thread.slices, trace.segments[0]["begin_ns"],
                              trace.segments[-1]["end_ns"])
            # The kernel leaves others a share of the CPU, and so may the host.
            self.assertGreater(running, length * 0.6)
            self.assertEqual(thread.slices[0][0], trace.segments[0]["begin_ns"])
            self.assertEqual(thread.names[-1][1], b"solo")

    def test_renames_hold_from_their_time_on(self):
        with Recorder(period_s=3600) as recorder:
            truth = load("rename", 50)
            trace = Trace(recorder.dump("--last", "1h"))
        thread = trace.thread(truth["tid"])
        for before, after, name in truth["renames"]:
            self.assertEqual(thread.name_at(after), name.encode())
            self.assertNotEqual(thread.name_at(before), name.encode())

    def test_an_exec_changes_name_and_command_line_at_its_time(self):
        with Recorder(period_s=3600) as recorder:
            begin = boot_ns()
            child = subprocess.Popen(["bash", "-c", "sleep 0.5; exec -a zz sleep 0.5"])
            pid = child.pid
            child.wait()
            trace = Trace(recorder.dump("--last", "1h"))
        thread = trace.thread(pid)
        self.assertEqual(thread.name_at(begin + int(0.4e9)), b"bash")
        self.assertEqual(thread.names[-1][1], b"sleep")
        lines = [words for ts, words in trace.cmdlines[pid] if ts > begin]
        self.assertEqual(lines, [[b"bash", b"-c", b"sleep 0.5; exec -a zz sleep 0.5"],
                                 [b"zz", b"0.5"]])

    def test_a_pid_used_again_is_two_identities(self):
        pid = next(p for p in range(31000, 32000) if not os.path.exists(f"/proc/{p}"))
        with Recorder(period_s=1) as recorder:
            first = load("pid", pid, "old", 1)
            second = load("pid", pid, "new", 1)
            trace = Trace(recorder.dump("--last", "1h"))
        old, new = trace.threads[pid][-2:]
        self.assertEqual((old.names[-1][1], new.names[-1][1]), (b"old", b"new"))
        for thread, truth in ((old, first), (new, second)):
            running = overlap(thread.slices, truth["begin_ns"], truth["end_ns"])
            waiting = overlap(thread.waits, truth["begin_ns"], truth["end_ns"])
            self.assertAlmostEqual((running + waiting) / 1e9, 1, delta=0.1)
            self.assertEqual(overlap(thread.slices, 0, 1 << 62), running)
        # The first one's end, which the kernel reports late, must not end the second.
        while_new = [ts for ts, tid in trace.frees
                     if tid == pid and second["begin_ns"] < ts < second["begin_ns"] + 0.9e9]
        self.assertEqual([ts for ts in while_new if ts > new.begin_ns], [])

    def test_hostile_names_come_out_byte_for_byte(self):
        with Recorder(period_s=1) as recorder:
            truth = load("names", 2)
            trace = Trace(recorder.dump("--last", "1h"))
            last_file = Trace(recorder.wait_for_files(3)[-1])
        self.assertEqual(len(truth["names"]), 21)
        for tid, name in truth["names"].items():
            self.assertEqual(trace.thread(int(tid)).names[-1][1], bytes.fromhex(name))
        # A file that the threads slept through names them, too.
        seen = [tid for tid in truth["names"] if int(tid) in last_file.tgids]
        for tid in seen:
            self.assertEqual(last_file.thread(int(tid)).name_at(1 << 62),
                             bytes.fromhex(truth["names"][tid]))


if __name__ == "__main__":
    unittest.main()
