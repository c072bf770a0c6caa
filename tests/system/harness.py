"""Runs the real daemon on paths of its own, for the system tests."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

BUILD = os.environ.get("AITRACE_BUILD", "build")
LONG = bool(os.environ.get("AITRACE_LONG"))
GROUP = "games"  # Any group that every Debian has.
DEADLINE_S = 20


def binary(name):
    return os.path.join(BUILD, "bin", name)


def wait_for(condition, what, deadline_s=DEADLINE_S):
    """Polls until `condition()` is true, and returns that value."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {deadline_s} s")


def load(*words, prefix=()):
    """Runs the load program to its end; what it said."""
    done = subprocess.run([*prefix, binary("load"), *map(str, words)], capture_output=True,
                          check=True, text=True)
    return json.loads(done.stdout)


def start_load(*words, prefix=()):
    return subprocess.Popen([*prefix, binary("load"), *map(str, words)], stdout=subprocess.PIPE,
                            text=True)


def context_switches():
    with open("/proc/stat", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("ctxt")).split()[1])


def boot_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def tool(name):
    path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if path is None:
        raise unittest.SkipTest(f"{name} is not installed")
    return path


class Recorder:
    """An aitraced with directories of its own, below one that goes with it."""

    def __init__(self, root=None, trace=None, wrapper=(), **settings):
        self.root = root or tempfile.mkdtemp(prefix="aitrace-test-", dir="/dev/shm")
        self.owns_root = root is None
        self.trace = trace or os.path.join(self.root, "trace")
        self.snapshots = settings.pop("snapshots_directory", os.path.join(self.root, "snapshots"))
        self.socket = os.path.join(self.root, "run", "control.sock")
        self.config = os.path.join(self.root, "aitraced.pbtxt")
        self.wrapper = list(wrapper)
        self.process = None
        self.settings = {"ring_mb": 16, "period_s": 1, "probes": "", "extra": "",
                         "rotation": "", **settings}
        self.write_config()

    def write_config(self, **settings):
        self.settings.update(settings)
        s = self.settings
        text = (f'ring {{ size_mb: {s["ring_mb"]} path: "{self.root}/run/ring" }}\n'
                f'rotation {{ directory: "{self.trace}" period_s: {s["period_s"]} min_free_mb: 0 '
                f'{s["rotation"]} }}\n'
                f'snapshots {{ directory: "{self.snapshots}" }}\n'
                f'control {{ socket: "{self.socket}" group: "{GROUP}" }}\n'
                f'probes {{ {s["probes"]} }}\n{s["extra"]}\n')
        with open(self.config, "w", encoding="utf8") as file:
            file.write(text)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        if self.owns_root:
            shutil.rmtree(self.root, ignore_errors=True)

    def start(self, close_fds=True):
        """Returns when the daemon says READY, or raises with what it said."""
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = os.path.join(self.root, f"notify-{time.monotonic_ns()}")
        notify.bind(path)
        notify.settimeout(0.05)
        self.log_path = os.path.join(self.root, "log")
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, binary("aitraced"), "-c", self.config], stdout=log, stderr=log,
                close_fds=close_fds, env={**os.environ, "NOTIFY_SOCKET": path})

        def is_ready():
            with contextlib.suppress(socket.timeout):
                if b"READY=1" in notify.recv(4096):
                    return True
            if self.process.poll() is not None:
                raise AssertionError(f"aitraced ended with {self.process.returncode}: {self.log()}")
            return False
        try:
            wait_for(is_ready, "aitraced ready")
        finally:
            notify.close()
            os.unlink(path)

    def log(self):
        with open(self.log_path, encoding="utf8", errors="replace") as file:
            return file.read()

    def stop(self):
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        code, self.process = self.process.returncode, None
        return code

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def ctl(self, *words, check=True, prefix=()):
        done = subprocess.run([*prefix, binary("aitracectl"), "--socket", self.socket,
                               *map(str, words)], capture_output=True, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"aitracectl {words}: {done.returncode}: {done.stderr}")
        return done

    def status(self):
        return json.loads(self.ctl("--json", "status").stdout)

    def dump(self, *words):
        path = os.path.join(self.root, f"dump-{time.monotonic_ns()}.perfetto-trace")
        self.ctl("dump", *words, "-o", path)
        return path

    def files(self):
        """Finished files, oldest first."""
        if not os.path.isdir(self.trace):
            return []
        names = [n for n in os.listdir(self.trace) if n.endswith(".perfetto-trace")]
        return [os.path.join(self.trace, n) for n in sorted(names)]

    def wait_for_files(self, count):
        return wait_for(lambda: len(self.files()) >= count and self.files(), f"{count} files")
