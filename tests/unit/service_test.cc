#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "daemon/service/instance_lock.h"
#include "daemon/service/own_cost.h"
#include "lib/base/clock.h"
#include "lib/base/event_loop.h"
#include "tests/unit/catch.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

TEST_CASE("A second instance is refused, and told who has the lock") {
  TempDir dir;
  auto first = InstanceLock::Acquire(dir.File("run/lock"));
  REQUIRE(first.ok());
  auto second = InstanceLock::Acquire(dir.File("run/lock"));
  REQUIRE(absl::IsFailedPrecondition(second.status()));
  CHECK(second.status().message().find(std::to_string(getpid())) != absl::string_view::npos);
}

TEST_CASE("A killed instance's lock is free at once, whatever its file says") {
  TempDir dir;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  pid_t child = fork();
  if (child == 0) {
    auto lock = InstanceLock::Acquire(dir.File("lock"));
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK_FALSE(InstanceLock::Acquire(dir.File("lock")).ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(InstanceLock::Acquire(dir.File("lock")).ok());
  close(ready[0]);
  close(ready[1]);
}

TEST_CASE("A lock file that is a link is not followed") {
  TempDir dir;
  std::filesystem::create_symlink("/etc/passwd", dir.File("lock"));
  CHECK_FALSE(InstanceLock::Acquire(dir.File("lock")).ok());
}

TEST_CASE("Own cost counts CPU time from the first sample, and memory without what is shared") {
  TempDir root;
  WriteText(root.File(std::to_string(getpid()) + "/status"),
            "Name:\tx\nRssAnon:\t    100 kB\nRssFile:\t     20 kB\nRssShmem:\t   9999 kB\n");
  CostMeter meter(root.path());
  meter.Sample(getpid(), 1'000'000'000);
  CHECK(meter.cpu_ns() == 0);
  CHECK(meter.rss_bytes() == 120 << 10);
  clock_t until = clock() + CLOCKS_PER_SEC / 50;
  while (clock() < until) continue;
  meter.Sample(getpid(), 2'000'000'000);
  CHECK(meter.cpu_ns() >= 20'000'000);
  CHECK(meter.cpu_percent() > 1);
}

TEST_CASE("The cost of a process that is gone is nothing") {
  CostMeter meter;
  meter.Sample(-1, 1);
  meter.Sample(-1, 2);
  CHECK(meter.cpu_percent() == 0);
  CHECK(meter.rss_bytes() == 0);
}

TEST_CASE("An event source may drop itself while it runs") {
  auto loop = EventLoop::Create();
  REQUIRE(loop.ok());
  std::unique_ptr<EventSource> source;
  int fired = 0;
  source = std::make_unique<EventSource>(*(*loop)->AddPeriodic(1, [&] {
    ++fired;
    source.reset();
  }));
  auto end = (*loop)->AddDelayed(20, [&] { (*loop)->Exit(5); });
  REQUIRE(end.ok());
  CHECK(*(*loop)->Run() == 5);
  CHECK(fired == 1);
}

TEST_CASE("A periodic source fires again and again, a delayed one once") {
  auto loop = EventLoop::Create();
  REQUIRE(loop.ok());
  int periodic = 0;
  int delayed = 0;
  auto often = (*loop)->AddPeriodic(1, [&] {
    if (++periodic == 20) (*loop)->Exit(0);
  });
  auto once = (*loop)->AddDelayed(1, [&] { ++delayed; });
  REQUIRE((*loop)->Run().ok());
  CHECK(periodic == 20);
  CHECK(delayed == 1);
}

}  // namespace
}  // namespace aitrace
