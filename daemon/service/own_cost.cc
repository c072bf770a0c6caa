#include "daemon/service/own_cost.h"

#include <ctime>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "lib/base/clock.h"
#include "lib/base/file.h"

namespace aitrace {
namespace {

constexpr size_t kMaxFileBytes = 16 * 1024;
}  // namespace

// All threads, those that have ended too, to the nanosecond.
absl::StatusOr<uint64_t> CostMeter::ReadCpuNs(int pid) {
  if (pid <= 0) return absl::NotFoundError("no process");
  clockid_t clock = 0;
  timespec used{};
  if (int error = clock_getcpuclockid(pid, &clock); error != 0) {
    return ErrnoStatus(error, absl::StrCat("CPU clock of process ", pid));
  }
  if (clock_gettime(clock, &used) != 0) {
    return ErrnoStatus(errno, absl::StrCat("CPU time of process ", pid));
  }
  return static_cast<uint64_t>(used.tv_sec) * kNsPerSecond + static_cast<uint64_t>(used.tv_nsec);
}

uint64_t CostMeter::ReadRssBytes(int pid) const {
  auto text = ReadFile(absl::StrCat(proc_root_, "/", pid, "/status"), kMaxFileBytes);
  if (!text.ok()) return 0;
  uint64_t kib = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t value = 0;
    bool counts = words.size() == 3 && (words[0] == "RssAnon:" || words[0] == "RssFile:");
    if (counts && absl::SimpleAtoi(words[1], &value)) kib += value;
  }
  return kib << 10;
}

void CostMeter::Sample(int pid, uint64_t boot_ns) {
  absl::StatusOr<uint64_t> cpu_ns = ReadCpuNs(pid);
  bool is_same = cpu_ns.ok() && pid == pid_ && boot_ns > sampled_ns_ && *cpu_ns >= cpu_ns_;
  cpu_percent_ = is_same ? 100.0 * static_cast<double>(*cpu_ns - cpu_ns_) /
                               static_cast<double>(boot_ns - sampled_ns_)
                         : 0;
  if (pid != pid_) first_cpu_ns_ = cpu_ns.ok() ? *cpu_ns : 0;
  pid_ = pid;
  sampled_ns_ = boot_ns;
  cpu_ns_ = cpu_ns.ok() ? *cpu_ns : 0;
  rss_bytes_ = ReadRssBytes(pid);
}

}  // namespace aitrace
