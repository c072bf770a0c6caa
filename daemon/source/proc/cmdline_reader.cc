#include "daemon/source/proc/cmdline_reader.h"

#include <pthread.h>

#include <chrono>

#include "absl/strings/str_split.h"
#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/base/mutex.h"

namespace aitrace {
namespace {

// More than a command line's first kMaxCmdlineBytes is not looked at, but read.
constexpr size_t kMaxFileBytes = 4 * 1024 * 1024;

}  // namespace

// Owned by the reader and by its thread, so that a thread that hangs may
// outlive the reader.
struct CmdlineReader::Shared {
  Shared(std::string root, Privacy::Cmdline mode) : proc_root(std::move(root)), privacy(mode) {}

  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return is_stopping || !queue.empty();
  }

  const std::string proc_root;
  const Privacy::Cmdline privacy;
  mutable Mutex mutex;
  ConditionVariable changed;  // Work has come, or the thread is done.
  bool is_stopping ABSL_GUARDED_BY(mutex) = false;
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  std::deque<int32_t> queue ABSL_GUARDED_BY(mutex);
  std::vector<Result> results ABSL_GUARDED_BY(mutex);
  int32_t reading_pid ABSL_GUARDED_BY(mutex) = 0;
  uint64_t reading_since_ns ABSL_GUARDED_BY(mutex) = 0;
  uint64_t skipped ABSL_GUARDED_BY(mutex) = 0;
};

void ApplyPrivacy(Privacy::Cmdline privacy, std::vector<std::string>& cmdline) {
  if (privacy == Privacy::NONE) cmdline.clear();
  if (privacy == Privacy::ARGV0 && cmdline.size() > 1) cmdline.resize(1);
}

std::vector<std::string> ParseCmdline(absl::string_view bytes, Privacy::Cmdline privacy) {
  bytes = bytes.substr(0, kMaxCmdlineBytes);
  if (!bytes.empty() && bytes.back() == '\0') bytes.remove_suffix(1);
  std::vector<std::string> cmdline;
  if (!bytes.empty()) cmdline = absl::StrSplit(bytes, absl::MaxSplits('\0', kMaxCmdlineArguments));
  if (cmdline.size() > kMaxCmdlineArguments) cmdline.resize(kMaxCmdlineArguments);
  ApplyPrivacy(privacy, cmdline);
  return cmdline;
}

CmdlineReader::CmdlineReader(std::string proc_root, Privacy::Cmdline privacy)
    : shared_(std::make_shared<Shared>(std::move(proc_root), privacy)), thread_(Run, shared_) {}

CmdlineReader::~CmdlineReader() {
  constexpr std::chrono::milliseconds kPatience(200);
  bool is_done = false;
  {
    MutexLock lock(shared_->mutex);
    shared_->is_stopping = true;
    shared_->changed.notify_all();
    is_done = shared_->changed.wait_for(lock, kPatience, [this] { return shared_->is_done; });
  }
  if (is_done) {
    thread_.join();
  } else {
    thread_.detach();  // Hangs in the kernel; `shared_` stays for it.
  }
}

void CmdlineReader::Run(std::shared_ptr<Shared> shared) {
  pthread_setname_np(pthread_self(), "aitrace-cmdline");
  MutexLock lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock, [&] { return shared->HasWork(); });
    if (shared->is_stopping) break;
    int32_t pid = shared->queue.front();
    shared->queue.pop_front();
    shared->reading_pid = pid;
    shared->reading_since_ns = SystemClock().BootNs();
    lock.unlock();
    auto bytes = ReadFile(absl::StrCat(shared->proc_root, "/", pid, "/cmdline"), kMaxFileBytes);
    std::vector<std::string> cmdline;
    if (bytes.ok()) cmdline = ParseCmdline(*bytes, shared->privacy);
    lock.lock();
    shared->reading_pid = 0;
    if (!cmdline.empty()) shared->results.push_back({pid, std::move(cmdline)});
  }
  shared->is_done = true;
  shared->changed.notify_all();
}

void CmdlineReader::Ask(int32_t pid) {
  if (shared_->privacy == Privacy::NONE) return;
  MutexLock lock(shared_->mutex);
  if (shared_->queue.size() >= kMaxQueued) {
    ++shared_->skipped;
    return;
  }
  shared_->queue.push_back(pid);
  shared_->changed.notify_all();
}

std::vector<CmdlineReader::Result> CmdlineReader::TakeResults() {
  MutexLock lock(shared_->mutex);
  return std::exchange(shared_->results, {});
}

int32_t CmdlineReader::StuckPid(uint64_t now_boot_ns, uint64_t limit_ns) const {
  MutexLock lock(shared_->mutex);
  bool is_stuck = shared_->reading_pid != 0 && now_boot_ns - shared_->reading_since_ns > limit_ns;
  return is_stuck ? shared_->reading_pid : 0;
}

uint64_t CmdlineReader::skipped() const {
  MutexLock lock(shared_->mutex);
  return shared_->skipped;
}

}  // namespace aitrace
