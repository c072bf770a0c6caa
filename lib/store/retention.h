// Which files go, so that the rest stays within count, bytes, age and a floor
// of free disk space. A decision only: nothing is removed here.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/store/rotated_files.h"

namespace aitrace {

// 0: no limit of this kind.
struct RetentionLimits {
  uint64_t max_files = 0;
  uint64_t max_bytes = 0;
  uint64_t max_age_ns = 0;
  uint64_t min_free_bytes = 0;
};

// Of `files`, oldest first, how many of the oldest must go. The newest stays
// whatever the limits say, unless it is too old.
size_t FilesToRemove(const std::vector<RotatedFile>& files, const RetentionLimits& limits,
                     uint64_t now_realtime_ns, uint64_t free_bytes);

}  // namespace aitrace
