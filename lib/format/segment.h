// The segment: the unit in which a trace is sealed, kept, written and copied.
//
//   TracePacket { aitrace.segment: SegmentInfo, trusted_packet_sequence_id }
//   body_bytes of further TracePackets, compressed or not
//
// A segment is self-contained but for names: it opens with a clock snapshot
// and a cleared sequence state, and a run of DATA segments is a whole trace
// when a KEYFRAME stands in front of it. Concatenating segments needs no
// decoding, so files and snapshots are made by copying bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/base/status.h"
#include "proto/aitrace/trace.pb.h"

namespace aitrace {

// The most that a segment may hold, headers included: what a reader must be
// ready for, and the bound that makes a damaged length detectable.
inline constexpr size_t kMaxSegmentBytes = 64 * 1024 * 1024;

// The bytes of a segment: the SegmentInfo packet (body_bytes filled in), then `body`.
std::string EncodeSegment(trace::SegmentInfo info, absl::string_view body);

// Where a segment stands in a run of trace bytes.
struct SegmentView {
  trace::SegmentInfo info;
  size_t offset = 0;  // Of its first packet.
  size_t size = 0;    // Of all its packets.
};

// The segment whose SegmentInfo packet starts at `bytes[offset]`; the body need
// not be there. Errors as ParseSegment.
absl::StatusOr<SegmentView> ParseSegmentInfo(absl::string_view bytes, size_t offset);

// The most that a SegmentInfo packet takes.
inline constexpr size_t kMaxSegmentInfoBytes = 256;

// The segment that starts at `bytes[offset]`, which need not be there whole:
// OutOfRange when `bytes` ends within it or at `offset`, DataLoss when what stands
// there is no segment.
absl::StatusOr<SegmentView> ParseSegment(absl::string_view bytes, size_t offset);

// The length of the longest prefix of `bytes` that is whole TracePackets.
size_t WholePacketsPrefix(absl::string_view bytes);

}  // namespace aitrace
