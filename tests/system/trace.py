"""Reads a trace for the system tests: Perfetto's wire format and aitrace's own
packets, with nothing but the standard library and nothing of the encoder."""
import collections
import zlib

EVENT_NAMES = {
    4: "sched_switch", 11: "cpu_frequency", 45: "block_rq_issue", 114: "sched_wakeup_new",
    119: "block_bio_queue", 125: "block_rq_complete", 126: "block_rq_insert",
    235: "task_newtask", 236: "task_rename", 237: "sched_process_exec",
    238: "sched_process_exit", 239: "sched_process_fork", 240: "sched_process_free",
    307: "mm_page_alloc", 546: "block_io_start", 547: "block_io_done"}
AITRACE = 1514
KEYFRAME = 1
CLONE_THREAD = 0x10000
RUNNABLE = (0, 0x100)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data):
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            if at + size > end:
                raise ValueError("cut short")
            value, at = data[at:at + size], at + size
        else:
            raise ValueError(f"wire type {kind}")
        yield key >> 3, value


def message(data):
    """{field: [values]}"""
    found = collections.defaultdict(list)
    for number, value in fields(data):
        found[number].append(value)
    return found


def one(found, number, default=0):
    return found[number][-1] if number in found else default


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def zigzag(value):
    return value >> 1 ^ -(value & 1)


def packed(values):
    out = []
    for value in values:
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = varint(value, at)
            out.append(number)
    return out


class Thread:
    """One identity of a tid: a tid that is used again is another one."""

    def __init__(self, tid, begin_ns):
        self.tid, self.begin_ns = tid, begin_ns
        self.names = []         # [(ts, bytes)]
        self.slices = []        # Running: [(begin, end)]
        self.waits = []         # Runnable: [(begin, end)]
        self.runnable_since = None
        self.running_since = None

    def name_at(self, ts):
        found = b""
        for at, name in self.names:
            if at > ts:
                break
            found = name
        return found


class Trace:
    """Everything the tests ask of a trace. `events` counts by name, compact
    and full alike; a keyframe's own switches are not counted."""

    def __init__(self, path):
        self.events = collections.Counter()
        self.segments, self.losses, self.gaps, self.truncations = [], [], [], []
        self.cmdlines = collections.defaultdict(list)  # pid: [(ts, [bytes])]
        self.tgids = {}
        self.threads = collections.defaultdict(list)   # tid: [Thread]
        self.first_ns, self.last_ns = None, 0
        self.clock_snapshots = 0
        self.lost_bundles = 0
        self.execs = []                                # [(ts, tid, file name)]
        self.exits, self.frees = [], []                # [(ts, tid)]
        self._ordered = []                             # (ts, order, kind, ...)
        self._states = []
        with open(path, "rb") as file:
            self._packets(file.read())
        self._replay()

    # Decoding.

    def _packets(self, data):
        for number, value in fields(data):
            if number != 1:
                raise ValueError(f"field {number} where a packet was due")
            self._packet(value)

    def _packet(self, data):
        packet = message(data)
        for value in packet.get(50, []):
            self._packets(zlib.decompress(value))
        for value in packet.get(1, []):
            self._bundle(message(value))
        for value in packet.get(2, []):
            self._process_tree(message(value), one(packet, 8))
        self.clock_snapshots += len(packet.get(6, []))
        for value in packet.get(AITRACE, []):
            self._own(message(value))

    def _own(self, own):
        for value in own.get(1, []):
            info = message(value)
            self.segments.append({"kind": one(info, 1), "sequence": one(info, 2),
                                  "begin_ns": one(info, 3), "end_ns": one(info, 4)})
        for value in own.get(2, []):
            loss = message(value)
            self.losses.append({"source": one(loss, 1, b"").decode(), "cause": one(loss, 2),
                                "cpu": one(loss, 3, None), "begin_ns": one(loss, 4),
                                "end_ns": one(loss, 5), "count": one(loss, 6)})
        for value in own.get(3, []):
            states = message(value)
            tids, values = packed(states[1]), packed(states[2])
            at = self.segments[-1]["begin_ns"]
            self._states.append((at, dict(zip(tids, map(zigzag, values)))))
        for value in own.get(4, []):
            gap = message(value)
            self.gaps.append({"begin_ns": one(gap, 1), "end_ns": one(gap, 2)})
        self.truncations += own.get(5, [])

    def _process_tree(self, tree, ts):
        for value in tree.get(1, []):
            process = message(value)
            self.cmdlines[one(process, 1)].append((ts, process[3]))
        for value in tree.get(2, []):
            thread = message(value)
            self.tgids[one(thread, 1)] = one(thread, 3)
            self._ordered.append((ts, 0, "tree", one(thread, 1), one(thread, 2, b"")))

    def _bundle(self, bundle):
        cpu = one(bundle, 1)
        self.lost_bundles += one(bundle, 3)
        for value in bundle.get(4, []):
            self._compact(cpu, message(value))
        for value in bundle.get(2, []):
            self._event(cpu, message(value))

    def _compact(self, cpu, sched):
        names = sched[5]
        ts = 0
        for delta, state, pid, name in zip(packed(sched[1]), packed(sched[2]), packed(sched[3]),
                                           packed(sched[6])):
            ts += delta
            self._ordered.append((ts, 2, "switch", cpu, signed(state), pid, names[name]))
        self.events["sched_switch"] += len(packed(sched[1]))
        ts = 0
        for delta, pid in zip(packed(sched[7]), packed(sched[8])):
            ts += delta
            self._ordered.append((ts, 1, "waking", pid))
        self.events["sched_waking"] += len(packed(sched[7]))

    def _event(self, cpu, event):
        ts = one(event, 1)
        for number, values in event.items():
            if number not in EVENT_NAMES:
                continue
            name, body = EVENT_NAMES[number], message(values[0])
            if name == "sched_switch":
                self._ordered.append((ts, 0, "start", cpu, one(body, 6), one(body, 5, b"")))
                continue
            self.events[name] += 1
            if name == "task_newtask":
                self._ordered.append((ts, 0, "new", one(body, 1), one(body, 2, b"")))
            elif name == "task_rename":
                self._ordered.append((ts, 0, "rename", one(body, 1), one(body, 3, b"")))
            elif name == "sched_wakeup_new":
                self._ordered.append((ts, 1, "wakeup_new", one(body, 2)))
            elif name == "sched_process_exit":
                self.exits.append((ts, one(body, 2)))
            elif name == "sched_process_free":
                self.frees.append((ts, one(body, 2)))
            elif name == "sched_process_exec":
                self.execs.append((ts, one(body, 2), one(body, 1, b"")))

    # Replay, in the order of time.

    def thread(self, tid):
        if not self.threads[tid]:
            self.threads[tid].append(Thread(tid, 0))
        return self.threads[tid][-1]

    def _replay(self):
        running = {}
        self._ordered.sort(key=lambda entry: entry[:2])
        for ts, _, kind, *rest in self._ordered:
            if kind == "tree":
                self._name(rest[0], ts, rest[1])
                continue
            self.first_ns = ts if self.first_ns is None else min(ts, self.first_ns)
            self.last_ns = max(ts, self.last_ns)
            if kind == "new":
                self.threads[rest[0]].append(Thread(rest[0], ts))
                self._name(rest[0], ts, rest[1])
            elif kind == "rename":
                self._name(rest[0], ts, rest[1])
            elif kind == "start":
                self._start(ts, running, *rest)
            elif kind in ("waking", "wakeup_new"):
                self._waking(ts, rest[0])
            else:
                self._switch(ts, running, *rest)
        for tid in running.values():
            thread = self.thread(tid)
            if thread.running_since is not None:
                thread.slices.append((thread.running_since, self.last_ns))

    def _name(self, tid, ts, name):
        thread = self.thread(tid)
        if not thread.names or thread.names[-1][1] != name:
            thread.names.append((ts, name))

    def _start(self, ts, running, cpu, tid, name):
        if running.get(cpu) == tid and self.thread(tid).running_since is not None:
            return
        running[cpu] = tid
        if tid:
            self._name(tid, ts, name)
            self.thread(tid).running_since = ts

    def _waking(self, ts, tid):
        thread = self.thread(tid)
        if thread.running_since is None and thread.runnable_since is None:
            thread.runnable_since = ts

    def _switch(self, ts, running, cpu, prev_state, tid, name):
        prev = running.get(cpu)
        if prev:
            thread = self.thread(prev)
            if thread.running_since is not None:
                thread.slices.append((thread.running_since, ts))
                thread.running_since = None
                thread.runnable_since = ts if prev_state in RUNNABLE else None
        running[cpu] = tid
        if not tid:
            return
        thread = self.thread(tid)
        self._name(tid, ts, name)
        if thread.runnable_since is not None:
            thread.waits.append((thread.runnable_since, ts))
        thread.runnable_since, thread.running_since = None, ts

    def count(self, kind, begin_ns, end_ns):
        """Of "switch" or "waking" in a window."""
        return sum(1 for entry in self._ordered
                   if entry[2] == kind and begin_ns <= entry[0] <= end_ns)

    def loss_count(self, source):
        return sum(loss["count"] for loss in self.losses if loss["source"] == source)


def overlap(intervals, begin, end):
    return sum(max(0, min(b, end) - max(a, begin)) for a, b in intervals)
