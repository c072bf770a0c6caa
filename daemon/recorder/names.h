// Brings the task table and /proc together: all of it at the start, single
// threads that events speak of and nobody introduced, and all again when task
// events were lost.
//
// Threading: the drain thread only; command lines are read on a thread of
//   their own, because a stuck process can hold up such a read for long.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/recorder/task_table.h"
#include "daemon/source/proc/cmdline_reader.h"
#include "daemon/source/proc/proc_scan.h"
#include "lib/base/status.h"
#include "proto/aitrace/config.pb.h"

namespace aitrace {

class Names {
 public:
  Names(std::string proc_root, Privacy::Cmdline privacy, TaskTable& tasks);

  // Adds every thread that lives. Fails when /proc cannot be read.
  absl::Status ScanAll();
  // Asks /proc for threads seen in events and not known.
  void ResolveUnknown();
  // Takes over command lines that have been read meanwhile.
  void TakeCmdlines();
  // Task events were lost: adds who is missing, removes who is gone.
  void Reconcile(uint64_t now_ns);
  // What cannot be known here, and why.
  std::vector<std::string> notes() const;

 private:
  void Add(const ProcScan& scan);

  const std::string proc_root_;
  TaskTable& tasks_;
  std::unique_ptr<CmdlineReader> cmdlines_;
  std::string scan_error_;
};

}  // namespace aitrace
