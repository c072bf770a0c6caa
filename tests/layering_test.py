#!/usr/bin/env python3
"""Holds the house's arrows: who may include and link whom.

Each folder below is one build target and names what it may use; everything
else is a violation, in an #include line or in a CMake DEPS line. A .cc file
includes its own header first. Run with --self-test to see it fail on planted
violations.
"""
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Folder -> folders that it may use beside itself, lowest first.
MAY_USE = {
    "proto": [],
    "probes": [],
    "lib/base": ["proto"],
    "lib/format": ["proto", "lib/base"],
    "lib/config": ["proto", "lib/base"],
    "lib/store": ["proto", "lib/base", "lib/format"],
    "lib/control": ["proto", "lib/base"],
    "daemon/source/bpf": ["proto", "probes", "lib/base"],
    "daemon/source/proc": ["proto", "lib/base"],
    "daemon/recorder": ["proto", "probes", "lib/base", "lib/format", "lib/store",
                        "daemon/source/bpf", "daemon/source/proc"],
    "daemon/writer": ["proto", "lib/base", "lib/format", "lib/store", "lib/control"],
    "daemon/control": ["proto", "lib/base", "lib/control"],
    "daemon/service": ["lib/base"],
    "daemon": ["proto", "lib/base", "lib/config", "lib/store", "daemon/recorder",
               "daemon/writer", "daemon/control", "daemon/service"],
    "ctl": ["proto", "lib/base", "lib/control"],
}
TARGETS = {
    "aitrace_proto": "proto", "aitrace_probes": "probes", "aitrace_base": "lib/base",
    "aitrace_format": "lib/format", "aitrace_config": "lib/config", "aitrace_store": "lib/store",
    "aitrace_control": "lib/control", "aitrace_daemon_bpf": "daemon/source/bpf",
    "aitrace_daemon_proc": "daemon/source/proc", "aitrace_daemon_recorder": "daemon/recorder",
    "aitrace_daemon_writer": "daemon/writer", "aitrace_daemon_control": "daemon/control",
    "aitrace_daemon_service": "daemon/service", "aitrace_ctl_lib": "ctl",
}
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.M)


def folder_of(path):
    """The longest folder of MAY_USE that holds `path`; None for none."""
    best = None
    for folder in MAY_USE:
        if path.startswith(folder + "/") and (best is None or len(folder) > len(best)):
            best = folder
    return best


def includes_of(path):
    with open(path, encoding="utf8") as file:
        return INCLUDE.findall(file.read())


def check_file(root, path):
    folder = folder_of(path)
    includes = includes_of(os.path.join(root, path))
    for include in includes:
        target = folder_of(include)
        if include.startswith(("absl/", "google/")):
            continue  # Libraries of the distribution.
        if target is None:
            yield f"{path}: includes {include}, which is in no folder of the house"
        elif target != folder and target not in MAY_USE[folder]:
            yield f"{path}: {folder} must not use {target} ({include})"
    own = path[:-3] + ".h"
    if path.endswith(".cc") and os.path.exists(os.path.join(root, own)) and includes[0] != own:
        yield f"{path}: includes {includes[0]} before its own header"


def check_cmake(root, path):
    folder = os.path.dirname(path)
    with open(os.path.join(root, path), encoding="utf8") as file:
        text = file.read()
    libraries = re.findall(r"aitrace_library\((\w+)", text)
    if len(libraries) > 1:
        yield f"{path}: more than one library in a folder"
    for name in re.findall(r"\baitrace_\w+", text):
        target = TARGETS.get(name)
        if target and target != folder and target not in MAY_USE.get(folder, []):
            yield f"{path}: {folder} must not link {name}"


def check(root):
    for directory, _, names in os.walk(root):
        relative = os.path.relpath(directory, root)
        if relative.startswith((".", "build", "tests", "bench")) and relative != ".":
            continue
        for name in names:
            path = os.path.normpath(os.path.join(relative, name))
            if folder_of(path) is None:
                continue
            if name.endswith((".cc", ".h", ".c")):
                yield from check_file(root, path)
            elif name == "CMakeLists.txt":
                yield from check_cmake(root, path)


def planted(files):
    """The violations found in a made-up tree of {path: text}."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf8") as file:
                file.write(text)
        return list(check(root))


def self_test():
    up = '#include "daemon/recorder/drain.h"\n'
    assert planted({"lib/base/x.cc": up}), "an include that points upward was not found"
    assert planted({"ctl/x.cc": up}), "ctl including daemon was not found"
    assert planted({"lib/base/x.h": "", "lib/base/x.cc": '#include "lib/base/y.h"\n',
                    "lib/base/y.h": ""}), "own header not first was not found"
    assert planted({"lib/store/CMakeLists.txt": "DEPS aitrace_daemon_bpf"}), "a link upward was not found"
    assert not planted({"lib/store/x.cc": '#include "lib/base/y.h"\n'}), "a good include was refused"


def main():
    self_test()
    violations = list(check(ROOT))
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
