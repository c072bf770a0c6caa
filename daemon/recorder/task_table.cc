#include "daemon/recorder/task_table.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace aitrace {
namespace {

constexpr size_t kMaxUnknown = 4096;

absl::string_view NameView(const char (&comm)[TASK_NAME_BYTES]) {
  return {comm, strnlen(comm, TASK_NAME_BYTES)};
}

void FillThread(const Task& task, perfetto::ProcessTree& tree) {
  auto& thread = *tree.add_threads();
  thread.set_tid(task.tid);
  thread.set_tgid(task.tgid);
  thread.set_name(task.name.bytes);
}

}  // namespace

void TaskTable::SetName(Task& task, absl::string_view comm) {
  task.name.id = next_name_id_++;
  size_t size = std::min(comm.size(), sizeof(task.name.bytes) - 1);
  memcpy(task.name.bytes, comm.data(), size);
  task.name.bytes[size] = '\0';
}

Task& TaskTable::Insert(int32_t tid, int32_t tgid) {
  Task& task = tasks_[tid];
  task = Task{.tid = tid, .tgid = tgid};
  ++threads_of_[tgid];
  cache_[static_cast<uint32_t>(tid) % cache_.size()] = {tid, &task};
  return task;
}

Task& TaskTable::Lookup(int32_t tid, Cached& cached) {
  auto found = tasks_.find(tid);
  if (found != tasks_.end()) {
    cached = {tid, &found->second};
    return found->second;
  }
  Task& task = Insert(tid, tid);
  SetName(task, "");
  task.is_unknown = true;
  if (unknown_.size() < kMaxUnknown) unknown_.push_back(tid);
  return task;
}

void TaskTable::LeaveProcess(int32_t tgid) {
  auto threads = threads_of_.find(tgid);
  if (threads == threads_of_.end() || --threads->second > 0) return;
  threads_of_.erase(threads);
  processes_.erase(tgid);
}

void TaskTable::Remove(int32_t tid) {
  auto found = tasks_.find(tid);
  if (found == tasks_.end()) return;
  Cached& cached = cache_[static_cast<uint32_t>(tid) % cache_.size()];
  if (cached.tid == tid) cached = {};
  LeaveProcess(found->second.tgid);
  tasks_.erase(found);
}

bool TaskTable::OnFree(const task_event& event) {
  auto found = tasks_.find(event.tid);
  bool is_another = found != tasks_.end() && found->second.start_ns != 0 &&
                    found->second.start_ns != event.start_ns;
  if (!is_another) Remove(event.tid);
  return !is_another;
}

void TaskTable::OnNewTask(const newtask_event& event) {
  Remove(event.tid);  // Whoever had this number, and whose end was lost.
  Task& task = Insert(event.tid, event.tgid);
  SetName(task, NameView(event.comm));
  task.start_ns = event.start_ns;
  task.state_since_ns = event.header.boot_ns;
  if ((event.clone_flags & CLONE_THREAD) != 0) return;
  // A fork shows its parent's command line until it executes another.
  Process process{.pid = event.tgid, .ppid = event.ppid, .uid = event.uid};
  process.start_boot_ns = event.header.boot_ns;
  process.cmdline_is_newer = true;
  if (auto parent = processes_.find(event.ppid); parent != processes_.end()) {
    process.cmdline = parent->second.cmdline;
    process.is_kthread = parent->second.is_kthread;
  }
  processes_[event.tgid] = std::move(process);
}

void TaskTable::OnRename(const rename_event& event) {
  Task& task = Get(event.tid);
  task.is_unknown = false;
  SetName(task, NameView(event.new_comm));
}

void TaskTable::OnExec(const exec_event& event, std::vector<std::string> cmdline) {
  // A thread that executes takes over its leader's number.
  if (event.old_tid != event.tid) Remove(event.old_tid);
  Task& task = Get(event.tid);
  task.is_unknown = false;
  SetName(task, NameView(event.comm));
  Process& process = processes_[event.tgid];
  process.pid = event.tgid;
  process.uid = event.uid;
  process.is_kthread = false;
  process.cmdline = std::move(cmdline);
  process.cmdline_is_newer = true;
}

void TaskTable::AddProcess(const Process& process) { processes_.try_emplace(process.pid, process); }

void TaskTable::AddTask(int32_t tid, int32_t tgid, absl::string_view comm, int32_t state) {
  auto found = tasks_.find(tid);
  if (found != tasks_.end() && !found->second.is_unknown) return;
  Task known = found == tasks_.end() ? Task{.state = state} : found->second;
  Remove(tid);
  Task& task = Insert(tid, tgid);
  task.state = known.state;
  task.state_since_ns = known.state_since_ns;
  task.cpu = known.cpu;
  SetName(task, comm);
}

void TaskTable::SetCmdline(int32_t pid, std::vector<std::string> cmdline) {
  auto found = processes_.find(pid);
  if (found == processes_.end() || found->second.cmdline_is_newer) return;
  found->second.cmdline = std::move(cmdline);
}

std::vector<int32_t> TaskTable::TakeUnknown(size_t max) {
  size_t count = std::min(max, unknown_.size());
  std::vector<int32_t> taken(unknown_.end() - static_cast<ptrdiff_t>(count), unknown_.end());
  unknown_.resize(unknown_.size() - count);
  return taken;
}

void TaskTable::RemoveAllBut(const std::vector<int32_t>& tids, uint64_t before_ns) {
  std::vector<int32_t> gone;
  for (const auto& [tid, task] : tasks_) {
    if (task.state_since_ns > before_ns) continue;
    if (!std::binary_search(tids.begin(), tids.end(), tid)) gone.push_back(tid);
  }
  for (int32_t tid : gone) Remove(tid);
}

void TaskTable::FillProcess(int32_t pid, perfetto::ProcessTree& tree) const {
  auto found = processes_.find(pid);
  if (found == processes_.end()) return;
  const Process& process = found->second;
  auto& out = *tree.add_processes();
  out.set_pid(process.pid);
  out.set_ppid(process.ppid);
  out.set_uid(static_cast<int32_t>(process.uid));
  if (process.is_kthread) out.set_is_kthread(true);
  if (process.start_boot_ns > 0) out.set_process_start_from_boot(process.start_boot_ns);
  for (const std::string& argument : process.cmdline) out.add_cmdline(argument);
  auto leader = tasks_.find(pid);
  if (leader == tasks_.end()) return;
  if (process.cmdline.empty()) {
    out.add_cmdline(leader->second.name.bytes);
    out.set_cmdline_is_comm(true);
  }
  FillThread(leader->second, tree);
}

void TaskTable::FillProcessTree(perfetto::ProcessTree& tree) const {
  for (const auto& [pid, process] : processes_) FillProcess(pid, tree);
  for (const auto& [tid, task] : tasks_) {
    bool is_said = task.tid == task.tgid && processes_.contains(tid);
    if (!is_said && !task.is_unknown) FillThread(task, tree);
  }
}

void TaskTable::FillThreadStates(trace::ThreadStates& states) const {
  for (const auto& [tid, task] : tasks_) {
    states.add_tid(tid);
    states.add_state(task.state);
    states.add_since_ns(task.state_since_ns);
    states.add_cpu(task.cpu);
  }
}

}  // namespace aitrace
