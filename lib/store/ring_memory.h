// Where a ring lives: memory that outlives the process. A file on a tmpfs, at
// the configured path or below /dev/shm, else a memfd.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lib/base/status.h"
#include "lib/base/unique_fd.h"

namespace aitrace {

// What is asked of the file systems; passed in, so that a test can lie.
struct MemoryProbe {
  struct Space {
    bool is_tmpfs = false;
    uint64_t total_bytes = 0;
    uint64_t free_bytes = 0;
  };
  // Of the file system that holds an existing directory.
  std::function<absl::StatusOr<Space>(const std::string& directory)> space_of;
  std::string shm_directory = "/dev/shm";
  static MemoryProbe System();
};

struct RingMemory {
  UniqueFd fd;
  std::string path;
  std::string file_system;  // "tmpfs" or "memfd".
  std::string note;         // Why elsewhere or smaller than asked; or empty.
  uint64_t size_bytes = 0;
  bool is_new = false;  // Nothing of an earlier process is in it.
};

// Opens or makes the file for `path`. One that exists keeps its size if that
// is `size_bytes`; else it is made anew (`note` says so), all of it allocated.
absl::StatusOr<RingMemory> OpenRingMemory(const std::string& path, uint64_t size_bytes,
                                          const MemoryProbe& probe);

}  // namespace aitrace
