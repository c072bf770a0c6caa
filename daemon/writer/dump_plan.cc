#include "daemon/writer/dump_plan.h"

#include <algorithm>

namespace aitrace {
namespace {

bool IsKeyframe(const RingRecord& record) { return record.kind == trace::SegmentInfo::KEYFRAME; }

// Where a trace of the window can start within the ring: the newest keyframe
// at or before `from_ns`, else the oldest one; records.size() if there is none.
size_t RingStart(const std::vector<RingRecord>& records, uint64_t from_ns) {
  size_t start = records.size();
  for (size_t i = 0; i < records.size(); ++i) {
    if (!IsKeyframe(records[i])) continue;
    if (start != records.size() && records[i].begin_ns > from_ns) break;
    start = i;
  }
  return start;
}

bool RingCovers(const std::vector<RingRecord>& records, uint64_t from_ns) {
  size_t start = RingStart(records, from_ns);
  return start < records.size() && records[start].begin_ns <= from_ns;
}

void Cover(uint64_t begin_ns, uint64_t end_ns, DumpPlan& plan) {
  if (plan.segments++ == 0) plan.begin_ns = begin_ns;
  plan.end_ns = std::max(plan.end_ns, end_ns);
}

void AddSegment(const std::string& path, const FileSegment& segment, DumpPlan& plan) {
  Cover(segment.info.begin_ns(), segment.info.end_ns(), plan);
  plan.bytes += segment.size;
  FilePiece* last = plan.files.empty() ? nullptr : &plan.files.back();
  if (last != nullptr && last->path == path && last->offset + last->size == segment.offset) {
    last->size += segment.size;
  } else {
    plan.files.push_back({path, segment.offset, segment.size});
  }
}

// The files from the one that holds `from_ns` on, as far as the ring does not
// have the same segments. Returns where the newest one taken ends; 0 if none was.
uint64_t AddFiles(const std::vector<PlannedFile>& files, uint64_t from_ns, uint64_t to_ns,
                  uint64_t ring_sequence, DumpPlan& plan) {
  uint64_t newest = 0;
  for (const PlannedFile& file : files) {
    if (file.segments.empty() || file.segments.back().info.end_ns() < from_ns) continue;
    for (const FileSegment& segment : file.segments) {
      bool is_in_ring = segment.info.sequence() >= ring_sequence;
      if (is_in_ring || segment.info.begin_ns() > to_ns) return newest;
      AddSegment(file.path, segment, plan);
      newest = segment.info.end_ns();
    }
  }
  return newest;
}

void AddRecords(const std::vector<RingRecord>& records, size_t start, uint64_t to_ns,
                DumpPlan& plan) {
  for (size_t i = start; i < records.size(); ++i) {
    const RingRecord& record = records[i];
    if (record.begin_ns > to_ns) return;
    // As in a file: a keyframe is only needed where a trace starts.
    if (IsKeyframe(record) && i > start && !record.starts_file) continue;
    Cover(record.begin_ns, record.end_ns, plan);
    plan.bytes += record.size_bytes;
    plan.records.push_back(record);
  }
}

}  // namespace

DumpPlan PlanDump(const std::vector<PlannedFile>& files, const std::vector<RingRecord>& records,
                  uint64_t from_ns, uint64_t to_ns) {
  DumpPlan plan;
  if (RingCovers(records, from_ns)) {
    AddRecords(records, RingStart(records, from_ns), to_ns, plan);
    return plan;
  }
  uint64_t ring_sequence = records.empty() ? UINT64_MAX : records.front().sequence;
  uint64_t newest = AddFiles(files, from_ns, to_ns, ring_sequence, plan);
  // A ring that goes on where the files end needs no keyframe first: within a
  // run, each segment begins when the one before it ends.
  bool goes_on = newest > 0 && !records.empty() && newest == records.front().begin_ns;
  size_t start = goes_on ? 0 : RingStart(records, from_ns);
  size_t before = plan.records.size();
  AddRecords(records, start, to_ns, plan);
  plan.has_hole = newest > 0 && !goes_on && plan.records.size() > before;
  return plan;
}

}  // namespace aitrace
