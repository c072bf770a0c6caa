#include "daemon/recorder/names.h"

#include <algorithm>

#include "lib/base/clock.h"

namespace aitrace {
namespace {

// Threads looked up in /proc at one housekeeping: a bound on its time.
constexpr size_t kMaxLookups = 256;
constexpr uint64_t kStuckNs = 5 * kNsPerSecond;

// sched_switch's prev_state for /proc's letter.
int32_t StateOf(char letter) {
  constexpr absl::string_view kLetters = "RSDTtXZP";
  size_t at = kLetters.find(letter);
  if (letter == 'I') return 0x80;
  if (at == absl::string_view::npos) return Task::kSleeping;
  return at == 0 ? Task::kWoken : 1 << (at - 1);
}

}  // namespace

Names::Names(std::string proc_root, Privacy::Cmdline privacy, TaskTable& tasks)
    : proc_root_(std::move(proc_root)),
      tasks_(tasks),
      cmdlines_(std::make_unique<CmdlineReader>(proc_root_, privacy)) {}

void Names::Add(const ProcScan& scan) {
  for (const ProcProcess& process : scan.processes) {
    tasks_.AddProcess({.pid = process.pid,
                       .ppid = process.ppid,
                       .uid = process.uid,
                       .is_kthread = process.is_kthread,
                       .start_boot_ns = process.start_boot_ns});
    if (!process.is_kthread) cmdlines_->Ask(process.pid);
  }
  for (const ProcThread& thread : scan.threads) {
    tasks_.AddTask(thread.tid, thread.tgid, thread.comm, StateOf(thread.state));
  }
}

absl::Status Names::ScanAll() {
  ASSIGN_OR_RETURN(ProcScan scan, ScanTasks(proc_root_));
  Add(scan);
  return absl::OkStatus();
}

void Names::ResolveUnknown() {
  for (int32_t tid : tasks_.TakeUnknown(kMaxLookups)) Add(ScanThread(proc_root_, tid));
}

void Names::TakeCmdlines() {
  for (CmdlineReader::Result& result : cmdlines_->TakeResults()) {
    tasks_.SetCmdline(result.pid, std::move(result.cmdline));
  }
}

void Names::Reconcile(uint64_t now_ns) {
  absl::StatusOr<ProcScan> scan = ScanTasks(proc_root_);
  scan_error_ = scan.ok() ? "" : std::string(scan.status().message());
  if (!scan.ok()) return;
  std::vector<int32_t> tids;
  for (const ProcThread& thread : scan->threads) tids.push_back(thread.tid);
  std::sort(tids.begin(), tids.end());
  tasks_.RemoveAllBut(tids, now_ns);
  Add(*scan);
}

std::vector<std::string> Names::notes() const {
  std::vector<std::string> notes;
  if (!scan_error_.empty()) notes.push_back(absl::StrCat("names: ", scan_error_));
  int32_t stuck = cmdlines_->StuckPid(SystemClock().BootNs(), kStuckNs);
  if (stuck != 0) {
    notes.push_back(absl::StrCat("names: reading the command line of process ", stuck,
                                 " hangs: it holds its memory lock"));
  }
  return notes;
}

}  // namespace aitrace
