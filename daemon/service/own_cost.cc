#include "daemon/service/own_cost.h"

#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "lib/base/clock.h"
#include "lib/base/file.h"

namespace aitrace {
namespace {

constexpr size_t kMaxFileBytes = 16 * 1024;
// Of the fields behind the name in /proc/PID/stat, counted from "state".
constexpr size_t kUserTicks = 11;
constexpr size_t kSystemTicks = 12;

}  // namespace

absl::StatusOr<uint64_t> CostMeter::ReadCpuNs(int pid) const {
  std::string path = absl::StrCat(proc_root_, "/", pid, "/stat");
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxFileBytes));
  size_t name_end = text.rfind(')');  // The name may hold anything, ')' too.
  if (name_end == std::string::npos || name_end + 2 > text.size()) {
    return absl::DataLossError(absl::StrCat(path, ": no name in it"));
  }
  std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 2), ' ');
  uint64_t user = 0;
  uint64_t system = 0;
  if (fields.size() <= kSystemTicks || !absl::SimpleAtoi(fields[kUserTicks], &user) ||
      !absl::SimpleAtoi(fields[kSystemTicks], &system)) {
    return absl::DataLossError(absl::StrCat(path, ": too few fields"));
  }
  return (user + system) * (kNsPerSecond / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
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
  pid_ = pid;
  sampled_ns_ = boot_ns;
  cpu_ns_ = cpu_ns.ok() ? *cpu_ns : 0;
  rss_bytes_ = ReadRssBytes(pid);
}

}  // namespace aitrace
