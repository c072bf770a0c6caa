#!/usr/bin/env python3
"""Runs the system tests: run.py [--build-dir DIR] [PATTERN]...

Prints a line a test, and last "N passed, N failed, N skipped". Needs root and a
kernel with BTF; without them every test is skipped, and says so.
"""
import argparse
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class LineResult(unittest.TestResult):
    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def say(self, word, test, detail=""):
        seconds = time.monotonic() - getattr(self, "started", time.monotonic())
        name = test.id().removeprefix("test_")
        print(f"{word:8} {name} ({seconds:.1f} s){': ' + detail if detail else ''}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed = getattr(self, "passed", 0) + 1
        self.say("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("SKIPPED", test, reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say("FAILED", test)
        print(self.failures[-1][1], flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        self.say("FAILED", test)
        print(self.errors[-1][1], flush=True)


def tests_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def missing():
    if os.geteuid() != 0:
        return "needs root"
    if not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "this kernel has no BTF"
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--build-dir", default="build")
    arguments.add_argument("patterns", nargs="*")
    options = arguments.parse_args()
    os.environ["AITRACE_BUILD"] = os.path.abspath(options.build_dir)
    sys.path.insert(0, HERE)
    result = LineResult()
    for test in tests_of(unittest.defaultTestLoader.discover(HERE, "test_*.py")):
        if options.patterns and not any(p in test.id() for p in options.patterns):
            continue
        if missing():
            result.startTest(test)
            result.addSkip(test, missing())
        else:
            test.run(result)
    failed = len(result.failures) + len(result.errors)
    print(f"{getattr(result, 'passed', 0)} passed, {failed} failed, {len(result.skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
