// One dump: chooses the rotated files and ring segments of a window and copies
// them into a snapshot. A trace starts with a keyframe, so it reaches back to
// the newest one before the window, up to ten seconds, or to the start of the
// file that holds the window's start.
//
// Threading: the writer process's one thread.
#pragma once

#include <functional>
#include <string>

#include "lib/base/clock.h"
#include "lib/base/unique_fd.h"
#include "lib/store/segment_ring.h"
#include "lib/store/snapshot_store.h"
#include "proto/aitrace/config.pb.h"
#include "proto/aitrace/writer.pb.h"

namespace aitrace {

struct DumpContext {
  const Clock& clock;
  const SegmentRingReader& ring;
  SnapshotStore& snapshots;
  std::string trace_directory;
  std::string partial_path;  // Of the file being written; empty if none.
  std::string boot_id;
  std::string config_digest;
  // Called now and then while bytes are copied: other work has its turn.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_progress;
};

struct FinishedDump {
  SnapshotInfo info;
  SnapshotWriter snapshot;  // Published, and not yet synced.
};

// NotFound when nothing of the window was kept.
absl::StatusOr<FinishedDump> RunDump(const WriterRequest::Dump& request,
                                     const DumpContext& context);

}  // namespace aitrace
