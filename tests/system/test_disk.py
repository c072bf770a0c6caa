"""A disk that is full, read-only, out of inodes or frozen: recording goes on,
the status says so, files resume, none is damaged."""
import os
import subprocess
import tempfile
import time
import unittest

from harness import Recorder, load, wait_for
from trace import Trace


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


class Mounted:
    """A file system of its own at a directory, gone afterwards."""

    def __init__(self, test, kind, options=""):
        self.test, self.kind, self.options = test, kind, options
        self.directory = tempfile.mkdtemp(prefix="aitrace-disk-", dir="/dev/shm")
        self.image = None

    def __enter__(self):
        if self.kind == "tmpfs":
            words = ["mount", "-t", "tmpfs", "-o", self.options, "none", self.directory]
        else:
            self.image = tempfile.mktemp(prefix="aitrace-image-", dir="/var/tmp")
            with open(self.image, "wb") as file:
                file.truncate(64 << 20)
            made = run("mkfs.ext4", "-q", "-F", self.image)
            if made.returncode != 0:
                self.test.skipTest(f"mkfs.ext4: {made.stderr.strip()}")
            words = ["mount", "-o", "loop", self.image, self.directory]
        mounted = run(*words)
        if mounted.returncode != 0:
            self.close()
            self.test.skipTest(f"mount {self.kind}: {mounted.stderr.strip()}")
        return self.directory

    def __exit__(self, *_):
        self.close()

    def close(self):
        for _ in range(100):
            if not os.path.ismount(self.directory) or run("umount", self.directory).returncode == 0:
                break
            time.sleep(0.05)
        os.rmdir(self.directory)
        if self.image:
            os.unlink(self.image)


class Disk(unittest.TestCase):
    def blocked(self, recorder):
        return wait_for(lambda: (s := recorder.status()["writer"])["state"] == "BLOCKED" and s,
                        "the writer to be blocked")

    def resumed(self, recorder):
        return wait_for(lambda: (s := recorder.status()["writer"])["state"] == "WRITING" and s,
                        "the writer to go on", 40)

    def assert_recording(self, recorder):
        before = int(recorder.status()["ring"]["segments"])
        wait_for(lambda: int(recorder.status()["ring"]["segments"]) > before, "the ring to go on")

    def assert_all_whole(self, recorder):
        files = recorder.files()
        self.assertGreater(len(files), 0)
        for path in files:
            self.assertGreater(len(Trace(path).segments), 0)

    def fill(self, directory):
        path = os.path.join(directory, "filler")
        with open(path, "wb") as file:
            try:
                while True:
                    file.write(b"x" * 65536)
                    file.flush()
            except OSError:
                pass
        return path

    def test_full(self):
        with Mounted(self, "tmpfs", "size=2m") as disk, \
                Recorder(trace=os.path.join(disk, "trace"), extra="compression: NONE") as recorder:
            recorder.wait_for_files(1)
            filler = self.fill(disk)
            load("storm", 2000, 1)
            state = self.blocked(recorder)
            self.assertIn("No space left", state["error"])
            self.assert_recording(recorder)
            os.unlink(filler)
            self.resumed(recorder)
            recorder.stop()
            self.assert_all_whole(recorder)

    def test_out_of_inodes(self):
        with Mounted(self, "tmpfs", "size=8m,nr_inodes=64") as disk, \
                Recorder(trace=os.path.join(disk, "trace")) as recorder:
            recorder.wait_for_files(1)
            fillers = []
            try:
                for i in range(64):
                    fillers.append(os.path.join(disk, f"filler-{i}"))
                    os.close(os.open(fillers[-1], os.O_CREAT))
            except OSError:
                fillers.pop()
            state = self.blocked(recorder)
            self.assertIn("No space left", state["error"])
            self.assert_recording(recorder)
            for path in fillers:
                os.unlink(path)
            self.resumed(recorder)
            recorder.stop()
            self.assert_all_whole(recorder)

    def test_read_only(self):
        with Mounted(self, "tmpfs", "size=8m") as disk:
            os.mkdir(os.path.join(disk, "trace"))
            run("mount", "-o", "remount,ro", disk)
            with Recorder(trace=os.path.join(disk, "trace")) as recorder:
                state = self.blocked(recorder)
                self.assertIn("Read-only", state["error"])
                self.assert_recording(recorder)
                run("mount", "-o", "remount,rw", disk)
                self.resumed(recorder)
                recorder.wait_for_files(1)
                recorder.stop()
                self.assert_all_whole(recorder)

    def test_file_size_limit(self):
        with Recorder(period_s=3600, extra="compression: NONE",
                      wrapper=["prlimit", "--fsize=20000000:20000000"]) as recorder:
            load("storm", 100, 0.5)
            self.assert_recording(recorder)
            # The limit hits the writer; nobody dies of SIGXFSZ.
            subprocess.run(["prlimit", "--fsize=20000", "--pid",
                            str(recorder.status()["writer"]["pid"])], check=True)
            load("storm", 3000, 1)
            self.assertIn("File too large", self.blocked(recorder)["error"])
            self.assert_recording(recorder)

    def test_frozen(self):
        with Mounted(self, "ext4") as disk:
            recorder = Recorder(trace=os.path.join(disk, "trace"),
                                snapshots_directory=os.path.join(disk, "snapshots"))
            try:
                recorder.start()
                recorder.wait_for_files(1)
                if run("fsfreeze", "-f", disk).returncode != 0:
                    self.skipTest("fsfreeze does not work here")
                try:
                    stuck = wait_for(lambda: (s := recorder.status()["writer"]).get("stuck_in") and s,
                                     "the writer to be stuck")
                    self.assertIn("frozen", stuck["stuck_in"])
                    self.assert_recording(recorder)
                    began = time.monotonic()
                    self.assertEqual(recorder.stop(), 0)
                    self.assertLess(time.monotonic() - began, 5)
                    recorder.start()
                    self.assert_recording(recorder)
                finally:
                    run("fsfreeze", "-u", disk)
                done = len(recorder.files())
                recorder.wait_for_files(done + 2)
                recorder.stop()
                self.assert_all_whole(recorder)
            finally:
                recorder.__exit__()


if __name__ == "__main__":
    unittest.main()
