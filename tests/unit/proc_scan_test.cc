#include "daemon/source/proc/proc_scan.h"

#include <sys/stat.h>

#include "daemon/source/proc/cmdline_reader.h"
#include "tests/unit/catch.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

std::string Stat(int id, const std::string& comm, char state = 'S', int ppid = 1,
                 uint64_t flags = 0, uint64_t start = 500) {
  return std::to_string(id) + " (" + comm + ") " + state + " " + std::to_string(ppid) +
         " 1 1 0 -1 " + std::to_string(flags) + " 0 0 0 0 1 2 0 0 20 0 1 0 " +
         std::to_string(start) + " 1000 200\n";
}

void AddThread(const TempDir& root, int pid, int tid, const std::string& comm, char state = 'S') {
  std::string directory = std::to_string(pid);
  if (pid == tid) WriteText(root.File(directory + "/stat"), Stat(tid, comm, state));
  WriteText(root.File(directory + "/task/" + std::to_string(tid) + "/stat"),
            Stat(tid, comm, state));
}

TEST_CASE("A name is all between the first parenthesis and the last") {
  for (const std::string name :
       {"bash", "(a) R 1 2", ")", "x) S 1 (y", "new\nline", "", " ", "ev\xff"}) {
    auto stat = ParseStat(Stat(42, name, 'D', 7, 0x200000, 900));
    REQUIRE(stat.ok());
    CHECK(stat->id == 42);
    CHECK(stat->comm == name);
    CHECK(stat->state == 'D');
    CHECK(stat->ppid == 7);
    CHECK(stat->flags == 0x200000);
    CHECK(stat->start_ticks == 900);
  }
}

TEST_CASE("Text that is no stat file is an error") {
  for (const char* text :
       {"", "42", "42 (", ")(", "42 (x)", "42 (x) ", "42 (x) S 1", "x (y) S 1 2 3"}) {
    CHECK_FALSE(ParseStat(text).ok());
  }
}

TEST_CASE("A scan finds processes and threads, and passes over what ended meanwhile") {
  TempDir root;
  AddThread(root, 10, 10, "main");
  AddThread(root, 10, 11, "worker", 'R');
  std::filesystem::create_directories(root.File("12/task/12"));  // Its files are gone.
  WriteText(root.File("meminfo"), "x");
  auto scan = ScanTasks(root.path());
  REQUIRE(scan.ok());
  REQUIRE(scan->processes.size() == 1);
  CHECK(scan->processes[0].pid == 10);
  CHECK(scan->threads.size() == 2);
}

TEST_CASE("A kernel thread is told by its flag") {
  TempDir root;
  WriteText(root.File("2/stat"), Stat(2, "kthreadd", 'S', 0, 0x00200000));
  auto scan = ScanTasks(root.path());
  REQUIRE(scan.ok());
  CHECK(scan->processes.at(0).is_kthread);
}

TEST_CASE("A /proc that is not there is an error, an empty one is not") {
  TempDir root;
  CHECK(ScanTasks(root.path()).ok());
  CHECK_FALSE(ScanTasks(root.File("none")).ok());
}

TEST_CASE("One thread is found with its process, wherever it is") {
  TempDir root;
  AddThread(root, 10, 10, "main");
  // Of every thread, /proc has a directory that no listing shows.
  WriteText(root.File("11/status"), "Name:\tx\nTgid:\t10\n");
  WriteText(root.File("11/task/11/stat"), Stat(11, "worker"));
  ProcScan scan = ScanThread(root.path(), 11);
  REQUIRE(scan.threads.size() == 1);
  CHECK(scan.threads[0].tgid == 10);
  CHECK(scan.processes.at(0).pid == 10);
  CHECK(ScanThread(root.path(), 99).threads.empty());
}

TEST_CASE("Command lines are split, bounded, and cut as privacy says") {
  std::string bytes("python\0train.py\0--x=\0", 21);
  CHECK(ParseCmdline(bytes, Privacy::FULL) ==
        std::vector<std::string>{"python", "train.py", "--x="});
  CHECK(ParseCmdline(bytes, Privacy::ARGV0) == std::vector<std::string>{"python"});
  CHECK(ParseCmdline(bytes, Privacy::NONE).empty());
  CHECK(ParseCmdline("", Privacy::FULL).empty());
  std::string many;
  for (int i = 0; i < 1000; ++i) many += std::string("a\0", 2);
  CHECK(ParseCmdline(many, Privacy::FULL).size() == kMaxCmdlineArguments);
  CHECK(ParseCmdline(std::string(100'000, 'x'), Privacy::FULL)[0].size() == kMaxCmdlineBytes);
}

TEST_CASE("Command lines are read aside, and a process that is gone has none") {
  TempDir root;
  WriteText(root.File("10/cmdline"), std::string("a\0b\0", 4));
  CmdlineReader reader(root.path(), Privacy::FULL);
  reader.Ask(9);
  reader.Ask(10);
  std::vector<CmdlineReader::Result> results;
  while (results.empty()) results = reader.TakeResults();
  CHECK(results[0].pid == 10);
  CHECK(results[0].cmdline == std::vector<std::string>{"a", "b"});
}

TEST_CASE("A read that hangs is named, and does not hold up the end") {
  TempDir root;
  std::filesystem::create_directories(root.File("10"));
  REQUIRE(mkfifo(root.File("10/cmdline").c_str(), 0600) == 0);  // Nobody ever writes.
  {
    CmdlineReader reader(root.path(), Privacy::FULL);
    reader.Ask(10);
    while (reader.StuckPid(UINT64_MAX, 1) == 0) continue;
    CHECK(reader.StuckPid(UINT64_MAX, 1) == 10);
  }
  // Lets the thread that was left end before the test's directory does.
  WriteText(root.File("10/cmdline"), "x");
}

}  // namespace
}  // namespace aitrace
