// Which bytes make up a dump. A decision only: nothing is copied here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/store/rotated_files.h"
#include "lib/store/segment_ring.h"
#include "proto/aitrace/snapshot.pb.h"

namespace aitrace {

// A rotated file, as far as a plan needs to know it.
struct PlannedFile {
  std::string path;
  std::vector<FileSegment> segments;
};

// A run of bytes of one file.
struct FilePiece {
  std::string path;
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct DumpPlan {
  std::vector<FilePiece> files;     // First these, in order,
  std::vector<RingRecord> records;  // then these.
  uint64_t segments = 0;
  uint64_t bytes = 0;
  uint64_t begin_ns = 0;  // Covered, BOOTTIME.
  uint64_t end_ns = 0;
  bool has_hole = false;  // Segments between files and ring are in neither.
};

// `files` oldest first, all of one boot; `records` of that boot too, or empty.
// The window is [from_ns, to_ns], BOOTTIME.
DumpPlan PlanDump(const std::vector<PlannedFile>& files, const std::vector<RingRecord>& records,
                  uint64_t from_ns, uint64_t to_ns);

}  // namespace aitrace
