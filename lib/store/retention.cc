#include "lib/store/retention.h"

namespace aitrace {

size_t FilesToRemove(const std::vector<RotatedFile>& files, const RetentionLimits& limits,
                     uint64_t now_realtime_ns, uint64_t free_bytes) {
  uint64_t bytes = 0;
  for (const RotatedFile& file : files) bytes += file.bytes;
  size_t removed = 0;
  for (const RotatedFile& file : files) {
    size_t kept = files.size() - removed;
    bool is_too_old =
        limits.max_age_ns > 0 && file.start_realtime_ns + limits.max_age_ns < now_realtime_ns;
    bool is_too_much = (limits.max_files > 0 && kept > limits.max_files) ||
                       (limits.max_bytes > 0 && bytes > limits.max_bytes) ||
                       free_bytes < limits.min_free_bytes;
    if (!is_too_old && (!is_too_much || kept == 1)) return removed;
    ++removed;
    bytes -= file.bytes;
    free_bytes += file.bytes;
  }
  return removed;
}

}  // namespace aitrace
