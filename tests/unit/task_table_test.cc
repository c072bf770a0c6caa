#include "daemon/recorder/task_table.h"

#include <sched.h>

#include "tests/unit/catch.h"

namespace aitrace {
namespace {

template <size_t kSize>
void SetText(char (&out)[kSize], const std::string& text) {
  memcpy(out, text.data(), std::min(text.size(), kSize - 1));
}

newtask_event NewTask(int32_t tid, int32_t tgid, const std::string& comm, uint64_t at_ns = 100) {
  newtask_event event{};
  event.header.boot_ns = at_ns;
  event.start_ns = at_ns;
  event.tid = tid;
  event.tgid = tgid;
  event.ppid = 1;
  event.clone_flags = tid == tgid ? 0 : CLONE_THREAD;
  SetText(event.comm, comm);
  return event;
}

task_event Free(int32_t tid, uint64_t start_ns = 100) {
  task_event event{};
  event.tid = tid;
  event.start_ns = start_ns;
  return event;
}

perfetto::ProcessTree::Process ProcessOf(const TaskTable& table, int32_t pid) {
  perfetto::ProcessTree tree;
  table.FillProcess(pid, tree);
  REQUIRE(tree.processes_size() == 1);
  return tree.processes(0);
}

TEST_CASE("A new thread has its parent's name until it is renamed") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "python"));
  CHECK(table.Get(10).name.view() == "python");
  uint64_t id = table.Get(10).name.id;

  rename_event rename{};
  rename.tid = 10;
  SetText(rename.new_comm, "loader");
  table.OnRename(rename);

  CHECK(table.Get(10).name.view() == "loader");
  CHECK(table.Get(10).name.id != id);
}

TEST_CASE("A thread number used again is another thread") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "old"));
  table.Get(10).state = Task::kRunning;
  CHECK(table.OnFree(Free(10)));
  table.OnNewTask(NewTask(10, 7, "new"));
  CHECK(table.Get(10).tgid == 7);
  CHECK(table.Get(10).name.view() == "new");
  CHECK(table.Get(10).state == Task::kSleeping);
}

TEST_CASE("An end that comes after its number was given to another ends nobody") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "old", 100));
  table.OnNewTask(NewTask(10, 10, "new", 200));
  CHECK_FALSE(table.OnFree(Free(10, 100)));
  CHECK(table.Get(10).name.view() == "new");
  CHECK(table.OnFree(Free(10, 200)));
  CHECK(table.size() == 0);
}

TEST_CASE("A thread known from /proc alone ends with any end of its number") {
  TaskTable table;
  table.AddTask(10, 10, "scan", Task::kSleeping);
  CHECK(table.OnFree(Free(10, 77)));
  CHECK(table.size() == 0);
}

TEST_CASE("A number used again after a lost end is another thread all the same") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "old"));
  table.OnNewTask(NewTask(10, 10, "new"));
  CHECK(table.Get(10).name.view() == "new");
  CHECK(table.size() == 1);
}

TEST_CASE("A fork shows its parent's command line, an exec its own") {
  TaskTable table;
  table.AddProcess({.pid = 1, .cmdline = {"init", "--x"}});
  table.OnNewTask(NewTask(10, 10, "init"));
  CHECK(ProcessOf(table, 10).cmdline(1) == "--x");

  exec_event exec{};
  exec.tid = exec.old_tid = exec.tgid = 10;
  SetText(exec.comm, "train");
  table.OnExec(exec, {"train", "--epochs=3"});

  CHECK(ProcessOf(table, 10).cmdline(0) == "train");
  CHECK(table.Get(10).name.view() == "train");
}

TEST_CASE("A command line that /proc says late does not replace an exec's") {
  TaskTable table;
  table.AddProcess({.pid = 10});
  table.SetCmdline(10, {"from-proc"});
  CHECK(ProcessOf(table, 10).cmdline(0) == "from-proc");
  exec_event exec{};
  exec.tid = exec.old_tid = exec.tgid = 10;
  table.OnExec(exec, {"from-exec"});
  table.SetCmdline(10, {"from-proc"});
  CHECK(ProcessOf(table, 10).cmdline(0) == "from-exec");
}

TEST_CASE("A thread that executes takes over its leader's number") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "main"));
  table.OnNewTask(NewTask(11, 10, "worker"));
  exec_event exec{};
  exec.tid = exec.tgid = 10;
  exec.old_tid = 11;
  SetText(exec.comm, "other");
  table.OnExec(exec, {"other"});
  CHECK(table.size() == 1);
  CHECK(table.Get(10).name.view() == "other");
}

TEST_CASE("A process goes with its last thread") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "main"));
  table.OnNewTask(NewTask(11, 10, "worker"));
  CHECK(table.OnFree(Free(11)));
  perfetto::ProcessTree one;
  table.FillProcessTree(one);
  CHECK(one.processes_size() == 1);
  CHECK(table.OnFree(Free(10)));
  perfetto::ProcessTree none;
  table.FillProcessTree(none);
  CHECK(none.processes_size() == 0);
  CHECK(none.threads_size() == 0);
}

TEST_CASE("What events said is not replaced by the scan of /proc") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "event"));
  table.AddTask(10, 10, "scan", Task::kSleeping);
  CHECK(table.Get(10).name.view() == "event");
}

TEST_CASE("A thread met unknown is asked for once and keeps its state when it is known") {
  TaskTable table;
  table.Get(42).state = Task::kRunning;
  CHECK(table.TakeUnknown(10) == std::vector<int32_t>{42});
  CHECK(table.TakeUnknown(10).empty());
  table.AddTask(42, 40, "late", Task::kSleeping);
  CHECK(table.Get(42).name.view() == "late");
  CHECK(table.Get(42).tgid == 40);
  CHECK(table.Get(42).state == Task::kRunning);
}

TEST_CASE("Threads whose end was lost go when /proc does not have them") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "gone", 100));
  table.OnNewTask(NewTask(11, 11, "here", 100));
  table.OnNewTask(NewTask(12, 12, "newer than the scan", 300));
  table.RemoveAllBut({11}, 200);
  perfetto::ProcessTree tree;
  table.FillProcessTree(tree);
  CHECK(tree.processes_size() == 2);
  CHECK(table.size() == 2);
}

TEST_CASE("The cache never serves a removed thread") {
  TaskTable table;
  table.OnNewTask(NewTask(10, 10, "a"));
  table.Get(10);
  CHECK(table.OnFree(Free(10)));
  CHECK(table.Get(10).is_unknown);
  table.OnNewTask(NewTask(10 + 1024, 10 + 1024, "b"));
  CHECK(table.Get(10).is_unknown);
  CHECK(table.Get(10 + 1024).name.view() == "b");
}

}  // namespace
}  // namespace aitrace
