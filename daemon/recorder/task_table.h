// The threads and processes that live now: names, groups, command lines and
// scheduling states, filled from /proc at the start and kept by task events.
//
// Cost: Find() is one comparison for a thread seen lately, a hash look-up else.
// Bound: as many threads as live; those whose end was lost go at the next
//   Reconcile().
// Threading: the drain thread only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "lib/format/bundle_encoder.h"
#include "probes/record.h"
#include "proto/aitrace/trace.pb.h"
#include "proto/perfetto/trace.pb.h"

namespace aitrace {

struct Task {
  // Beside the values of sched_switch's prev_state.
  static constexpr int32_t kRunning = -1;
  static constexpr int32_t kWoken = -2;
  static constexpr int32_t kSleeping = 1;

  int32_t tid = 0;
  int32_t tgid = 0;
  uint64_t start_ns = 0;  // BOOTTIME; 0: not known.
  TaskName name;
  int32_t state = kSleeping;
  uint64_t state_since_ns = 0;  // BOOTTIME; 0: since before the recorder started.
  int32_t cpu = -1;
  bool is_unknown = false;  // Seen in an event, its name not known yet.
};

struct Process {
  int32_t pid = 0;
  int32_t ppid = 0;
  uint32_t uid = 0;
  bool is_kthread = false;
  uint64_t start_boot_ns = 0;
  std::vector<std::string> cmdline;
  bool cmdline_is_newer = false;  // From an exec: what /proc says late is not taken.
};

class TaskTable {
 public:
  // The thread `tid`, made up as unknown if it was never heard of. The pointer
  // is good until the next call that is not const.
  Task& Get(int32_t tid) {
    Cached& cached = cache_[static_cast<uint32_t>(tid) % cache_.size()];
    if (cached.tid == tid && cached.task != nullptr) return *cached.task;
    return Lookup(tid, cached);
  }

  // Task events, in the order of their times.
  void OnNewTask(const newtask_event& event);
  void OnRename(const rename_event& event);
  void OnExec(const exec_event& event, std::vector<std::string> cmdline);
  // False, and nothing removed, when the thread that is gone is not the one
  // that has this number now: the kernel frees some time after the number is
  // free to be used again.
  bool OnFree(const task_event& event);

  // From /proc: nothing that events have said already is replaced.
  void AddProcess(const Process& process);
  void AddTask(int32_t tid, int32_t tgid, absl::string_view comm, int32_t state);
  void SetCmdline(int32_t pid, std::vector<std::string> cmdline);

  // Threads made up by Get(); at most `max` of them, each said once.
  std::vector<int32_t> TakeUnknown(size_t max);
  // Removes threads that `tids` (sorted) does not have and that nothing was
  // heard of since `before_ns`: their end was lost.
  void RemoveAllBut(const std::vector<int32_t>& tids, uint64_t before_ns);

  void FillProcess(int32_t pid, perfetto::ProcessTree& tree) const;
  void FillProcessTree(perfetto::ProcessTree& tree) const;
  void FillThreadStates(trace::ThreadStates& states) const;
  size_t size() const { return tasks_.size(); }

 private:
  struct Cached {
    int32_t tid = 0;
    Task* task = nullptr;
  };

  Task& Lookup(int32_t tid, Cached& cached);
  Task& Insert(int32_t tid, int32_t tgid);
  void Remove(int32_t tid);
  void SetName(Task& task, absl::string_view comm);
  void LeaveProcess(int32_t tgid);

  uint64_t next_name_id_ = 1;
  absl::node_hash_map<int32_t, Task> tasks_;
  absl::flat_hash_map<int32_t, Process> processes_;
  absl::flat_hash_map<int32_t, uint32_t> threads_of_;  // By tgid.
  std::vector<int32_t> unknown_;
  std::array<Cached, 1024> cache_{};
};

}  // namespace aitrace
