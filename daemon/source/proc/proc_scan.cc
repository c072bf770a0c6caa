#include "daemon/source/proc/proc_scan.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "lib/base/clock.h"
#include "lib/base/file.h"

namespace aitrace {
namespace {

constexpr size_t kMaxStatBytes = 16 * 1024;
constexpr uint64_t kKthreadFlag = 0x00200000;  // PF_KTHREAD of the kernel's sched.h.
// Behind the name, counted from "state".
constexpr size_t kPpidField = 1;
constexpr size_t kFlagsField = 6;
constexpr size_t kStartField = 19;

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::Status ForEachNumber(const std::string& directory,
                           const std::function<void(int32_t)>& visit) {
  std::unique_ptr<DIR, CloseDirectory> entries(opendir(directory.c_str()));
  if (entries == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", directory));
  while (const dirent* entry = readdir(entries.get())) {
    int32_t number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number) && number > 0) visit(number);
  }
  return absl::OkStatus();
}

std::optional<ProcStat> ReadStat(const std::string& directory) {
  absl::StatusOr<std::string> text = ReadFile(absl::StrCat(directory, "/stat"), kMaxStatBytes);
  if (!text.ok()) return std::nullopt;  // It has ended.
  absl::StatusOr<ProcStat> stat = ParseStat(*text);
  if (!stat.ok()) return std::nullopt;
  return *std::move(stat);
}

void AddThread(const ProcStat& stat, int32_t tgid, ProcScan& scan) {
  scan.threads.push_back({.tid = stat.id, .tgid = tgid, .comm = stat.comm, .state = stat.state});
}

void AddProcess(const std::string& directory, const ProcStat& stat, ProcScan& scan) {
  struct stat info {};
  uint32_t uid = ::stat(directory.c_str(), &info) == 0 ? info.st_uid : 0;
  uint64_t ns_per_tick = kNsPerSecond / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  scan.processes.push_back({.pid = stat.id,
                            .ppid = stat.ppid,
                            .uid = uid,
                            .is_kthread = (stat.flags & kKthreadFlag) != 0,
                            .start_boot_ns = stat.start_ticks * ns_per_tick});
}

void ScanProcess(const std::string& root, int32_t pid, ProcScan& scan) {
  std::string directory = absl::StrCat(root, "/", pid);
  std::optional<ProcStat> leader = ReadStat(directory);
  if (!leader.has_value()) return;
  AddProcess(directory, *leader, scan);
  // A process that ends meanwhile has fewer threads, that is all.
  ForEachNumber(absl::StrCat(directory, "/task"), [&](int32_t tid) {
    std::optional<ProcStat> stat = ReadStat(absl::StrCat(directory, "/task/", tid));
    if (stat.has_value()) AddThread(*stat, pid, scan);
  }).IgnoreError();
}

}  // namespace

absl::StatusOr<ProcStat> ParseStat(absl::string_view text) {
  size_t name_begin = text.find('(');
  size_t name_end = text.rfind(')');
  if (name_begin == absl::string_view::npos || name_end == absl::string_view::npos ||
      name_end < name_begin || name_end + 2 > text.size()) {
    return absl::DataLossError("stat: no name in it");
  }
  ProcStat stat;
  stat.comm = std::string(text.substr(name_begin + 1, name_end - name_begin - 1));
  std::vector<absl::string_view> fields = absl::StrSplit(text.substr(name_end + 2), ' ');
  bool is_good = fields.size() > kStartField && !fields[0].empty() &&
                 absl::SimpleAtoi(text.substr(0, name_begin), &stat.id) &&
                 absl::SimpleAtoi(fields[kPpidField], &stat.ppid) &&
                 absl::SimpleAtoi(fields[kFlagsField], &stat.flags) &&
                 absl::SimpleAtoi(fields[kStartField], &stat.start_ticks);
  if (!is_good) return absl::DataLossError("stat: too few fields, or not numbers");
  stat.state = fields[0][0];
  return stat;
}

absl::StatusOr<ProcScan> ScanTasks(const std::string& root) {
  ProcScan scan;
  RETURN_IF_ERROR(ForEachNumber(root, [&](int32_t pid) { ScanProcess(root, pid, scan); }));
  return scan;
}

ProcScan ScanThread(const std::string& root, int32_t tid) {
  ProcScan scan;
  // /proc/TID is there for every thread, and its status names the group.
  std::string directory = absl::StrCat(root, "/", tid);
  absl::StatusOr<std::string> status = ReadFile(absl::StrCat(directory, "/status"), kMaxStatBytes);
  std::optional<ProcStat> thread = ReadStat(absl::StrCat(directory, "/task/", tid));
  if (!status.ok() || !thread.has_value()) return scan;
  constexpr char kTgid[] = "\nTgid:\t";
  size_t at = status->find(kTgid);
  int32_t tgid = at == std::string::npos ? 0 : atoi(status->c_str() + at + sizeof(kTgid) - 1);
  if (tgid <= 0) return scan;
  AddThread(*thread, tgid, scan);
  std::string leader_directory = absl::StrCat(root, "/", tgid);
  std::optional<ProcStat> leader = ReadStat(leader_directory);
  if (leader.has_value()) AddProcess(leader_directory, *leader, scan);
  return scan;
}

}  // namespace aitrace
