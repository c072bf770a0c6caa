// Reads /proc/PID/cmdline on a thread of its own: such a read takes the
// process's memory lock, and waits as long as a stuck process holds it. (It
// waits killably, so it never holds up our exit.)
//
// Bound: kMaxQueued processes wait; further ones are counted as skipped.
// Threading: thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/status.h"
#include "proto/aitrace/config.pb.h"

namespace aitrace {

inline constexpr size_t kMaxCmdlineBytes = 4096;
inline constexpr size_t kMaxCmdlineArguments = 64;

// The arguments in a cmdline file's bytes, as far as privacy allows.
std::vector<std::string> ParseCmdline(absl::string_view bytes, Privacy::Cmdline privacy);
// Takes from `cmdline` what privacy forbids.
void ApplyPrivacy(Privacy::Cmdline privacy, std::vector<std::string>& cmdline);

class CmdlineReader {
 public:
  static constexpr size_t kMaxQueued = 65536;
  struct Result {
    int32_t pid = 0;
    std::vector<std::string> cmdline;
  };

  CmdlineReader(std::string proc_root, Privacy::Cmdline privacy);
  // Does not wait for a read that hangs: its thread is left to finish alone.
  ~CmdlineReader();
  CmdlineReader(const CmdlineReader&) = delete;
  CmdlineReader& operator=(const CmdlineReader&) = delete;

  void Ask(int32_t pid);
  std::vector<Result> TakeResults();
  // The process whose read has lasted for over `limit_ns`; 0 if none has.
  int32_t StuckPid(uint64_t now_boot_ns, uint64_t limit_ns) const;
  uint64_t skipped() const;

 private:
  struct Shared;
  static void Run(std::shared_ptr<Shared> shared);

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace aitrace
