// What /proc says of the threads that live. Reads only files that no stuck
// process can hold up: stat, and the names of directories.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/base/status.h"

namespace aitrace {

struct ProcThread {
  int32_t tid = 0;
  int32_t tgid = 0;
  std::string comm;  // Bytes, as the kernel holds them.
  char state = 'S';  // As in /proc/PID/stat: R, S, D, T, t, X, Z, P, I.
};

struct ProcProcess {
  int32_t pid = 0;
  int32_t ppid = 0;
  uint32_t uid = 0;
  bool is_kthread = false;
  uint64_t start_boot_ns = 0;
};

struct ProcScan {
  std::vector<ProcProcess> processes;
  std::vector<ProcThread> threads;
};

// The fields of a stat file that are used here.
struct ProcStat {
  int32_t id = 0;
  std::string comm;
  char state = 'S';
  int32_t ppid = 0;
  uint64_t flags = 0;
  uint64_t start_ticks = 0;
};

// Of /proc/PID/stat's text. The name is all between the first '(' and the last
// ')': it may hold blanks, parentheses and line ends itself.
absl::StatusOr<ProcStat> ParseStat(absl::string_view text);

// All processes and threads under `root` ("/proc"). Those that end while they
// are read are left out. Fails only when `root` itself cannot be read.
absl::StatusOr<ProcScan> ScanTasks(const std::string& root);

// The thread `tid` and its process, wherever that is; empty if it is gone.
ProcScan ScanThread(const std::string& root, int32_t tid);

}  // namespace aitrace
