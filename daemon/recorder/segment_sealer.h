// Collects encoded packets, and seals them into segments of the ring.
//
// Bound: holds what it is given until Seal(); its caller seals in time.
// Threading: the drain thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/format/compression.h"
#include "lib/format/segment.h"
#include "lib/store/segment_ring.h"
#include "proto/aitrace/trace.pb.h"
#include "proto/perfetto/trace.pb.h"

namespace aitrace {

class SegmentSealer {
 public:
  struct Stats {
    uint64_t segments = 0;
    uint64_t raw_bytes = 0;
    uint64_t packed_bytes = 0;
    uint64_t refused_segments = 0;  // By the ring: larger than it can ever hold.
  };

  SegmentSealer(const Clock& clock, SegmentRing& ring, std::string boot_id,
                std::unique_ptr<PacketCompressor> compressor);

  // Where encoded packets are appended.
  std::string& body() { return body_; }
  void AddPacket(const perfetto::TracePacket& packet);
  void AddLosses(std::vector<trace::Loss> losses);
  void SetCompressor(std::unique_ptr<PacketCompressor> compressor);

  // What was collected becomes a DATA segment that ends at `end_ns` and begins
  // where the last one ended. An empty one is pushed too: it says that nothing
  // happened.
  void Seal(uint64_t end_ns);
  // Drops what was collected; the next segment begins at `begin_ns`.
  void Restart(uint64_t begin_ns);
  // Pushes `packets` as a KEYFRAME of `at_ns`. Call right after Seal(at_ns).
  void PushKeyframe(const std::string& packets, uint64_t at_ns, bool starts_file);

  uint64_t begin_ns() const { return begin_ns_; }
  uint64_t last_sequence() const { return ring_.next_sequence() - 1; }
  const Stats& stats() const { return stats_; }

 private:
  void Push(trace::SegmentInfo info, absl::string_view packets);

  const Clock& clock_;
  SegmentRing& ring_;
  const std::string boot_id_;
  std::unique_ptr<PacketCompressor> compressor_;
  uint64_t begin_ns_ = 0;
  std::string body_;
  std::string packed_;
  Stats stats_;
};

// A ClockSnapshot packet that also clears the sequence's incremental state.
perfetto::TracePacket ClockPacket(const ClockReading& now);

}  // namespace aitrace
