// Segments made up for tests: whole packets, and times that fit together.
#pragma once

#include <string>

#include "lib/format/segment.h"
#include "proto/perfetto/trace.pb.h"

namespace aitrace {

inline const std::string kTestBootId(16, 'b');

inline trace::SegmentInfo MakeInfo(uint64_t sequence, uint64_t begin_ns, uint64_t end_ns,
                                   trace::SegmentInfo::Kind kind = trace::SegmentInfo::DATA) {
  trace::SegmentInfo info;
  info.set_kind(kind);
  info.set_sequence(sequence);
  info.set_begin_ns(begin_ns);
  info.set_end_ns(end_ns);
  info.set_begin_realtime_ns(1'000'000'000'000 + begin_ns);
  info.set_boot_id(kTestBootId);
  return info;
}

// A packet of about `bytes` bytes.
inline std::string MakePackets(uint64_t timestamp, size_t bytes = 100) {
  perfetto::Trace out;
  auto& packet = *out.add_packet();
  packet.set_timestamp(timestamp);
  packet.mutable_system_info()->set_tracing_service_version(std::string(bytes, 'x'));
  return out.SerializeAsString();
}

inline std::string MakeSegment(const trace::SegmentInfo& info, size_t bytes = 100) {
  return EncodeSegment(info, MakePackets(info.begin_ns(), bytes));
}

}  // namespace aitrace
