// The in-memory tail of the trace: sealed segments, oldest first, within a
// byte budget, in a shared mapping that outlives the process. The recorder
// pushes for ever and the oldest fall out; the writer process maps it
// read-only and copies. No locks between them: a reader that is too late
// finds out after its copy, and counts.
//
//   offset 0     RingHeader (one page): magic, layout version, boot id, sizes;
//                sequence and offset of the oldest and the next record; checksum
//   offset 4096  records, 64-byte aligned, never wrapped:
//                RecordHeader {magic, sequence, bytes, begin_ns, end_ns, kind,
//                              checksums of header and payload} + segment bytes
//
// Bound: `size_bytes`, allocated whole at creation (a sparse mapping on a full
//   tmpfs would be a SIGBUS).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/base/status.h"
#include "lib/base/unique_fd.h"
#include "proto/aitrace/trace.pb.h"

namespace aitrace {

// What a record says of its segment without decoding it.
struct RingRecord {
  uint64_t sequence = 0;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  trace::SegmentInfo::Kind kind = trace::SegmentInfo::DATA;
  bool starts_file = false;
  uint32_t size_bytes = 0;
  uint64_t position = 0;  // Where the ring holds it; opaque.
};

struct RingOptions {
  std::string path;  // The configured file; its directory is made 0700 if missing.
  uint64_t size_bytes = 0;
  std::string boot_id;  // 16 bytes; a ring of another boot is discarded.
};

// The writing end; one per ring.
class SegmentRing {
 public:
  struct Stats {
    std::string path;         // Where it really is.
    std::string file_system;  // "tmpfs", "memfd".
    std::string note;         // Why it is elsewhere, or smaller, than asked; or empty.
    uint64_t size_bytes = 0;
    uint64_t used_bytes = 0;
    uint64_t segments = 0;
    uint64_t evicted_segments = 0;  // Aged out, as designed; not data loss.
    uint64_t oldest_begin_ns = 0;
    uint64_t newest_end_ns = 0;
    uint64_t recovered_segments = 0;  // Found from an earlier process.
    uint64_t torn_segments = 0;       // Found broken, dropped.
  };

  // Opens the ring at `options.path`, keeping what an earlier process of this
  // boot left in it, or makes a new one. A path that is not on tmpfs is
  // replaced by one below /dev/shm, else by a memfd, and stats().note says so.
  // Shrinks to leave a quarter of the tmpfs free; ResourceExhausted, with the
  // numbers, when not even kMinRingBytes fit.
  static absl::StatusOr<std::unique_ptr<SegmentRing>> Open(const RingOptions& options);
  virtual ~SegmentRing() = default;

  // Appends a segment (EncodeSegment's bytes), evicting the oldest until it
  // fits. Fails with ResourceExhausted, the ring unchanged, if it never can.
  // `info.sequence` must be next_sequence().
  virtual absl::Status Push(const trace::SegmentInfo& info, absl::string_view segment) = 0;
  virtual uint64_t next_sequence() const = 0;

  // End of the newest recovered segment; 0 when none was recovered.
  virtual uint64_t recovered_end_ns() const = 0;
  virtual Stats stats() const = 0;
  // For the writer process: a read-only descriptor of the ring's memory.
  virtual absl::StatusOr<UniqueFd> OpenReadOnly() const = 0;
};

inline constexpr uint64_t kMinRingBytes = 4 * 1024 * 1024;

// The reading end, in another process or the same one.
class SegmentRingReader {
 public:
  static absl::StatusOr<std::unique_ptr<SegmentRingReader>> Map(UniqueFd ring);
  virtual ~SegmentRingReader() = default;

  // The oldest record with sequence >= `sequence`; NotFound when there is none yet.
  virtual absl::StatusOr<RingRecord> Find(uint64_t sequence) const = 0;
  // Calls `visit` for all records, oldest first, until it returns false.
  virtual void ForEach(const std::function<bool(const RingRecord&)>& visit) const = 0;
  // Copies a record's segment into `out` (replaced). DataLoss when the recorder
  // overwrote it meanwhile, or its checksum is wrong.
  virtual absl::Status Copy(const RingRecord& record, std::string& out) const = 0;
};

}  // namespace aitrace
