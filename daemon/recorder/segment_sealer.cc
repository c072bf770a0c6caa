#include "daemon/recorder/segment_sealer.h"

#include "lib/format/wire.h"

namespace aitrace {
namespace {

constexpr uint32_t kTracePacket = 1;
constexpr uint32_t kSequenceId = 1;

void AddClock(perfetto::BuiltinClock id, uint64_t ns, perfetto::ClockSnapshot& snapshot) {
  auto& clock = *snapshot.add_clocks();
  clock.set_clock_id(id);
  clock.set_timestamp(ns);
}

std::string Serialize(const perfetto::TracePacket& packet) {
  std::string bytes;
  wire::AppendLengthDelimited(kTracePacket, packet.SerializeAsString(), bytes);
  return bytes;
}

}  // namespace

perfetto::TracePacket ClockPacket(const ClockReading& now) {
  perfetto::TracePacket packet;
  packet.set_timestamp(now.boot_ns);
  packet.set_trusted_packet_sequence_id(kSequenceId);
  packet.set_sequence_flags(perfetto::TracePacket::SEQ_INCREMENTAL_STATE_CLEARED);
  auto& snapshot = *packet.mutable_clock_snapshot();
  AddClock(perfetto::BUILTIN_CLOCK_REALTIME, now.realtime_ns, snapshot);
  AddClock(perfetto::BUILTIN_CLOCK_MONOTONIC, now.monotonic_ns, snapshot);
  AddClock(perfetto::BUILTIN_CLOCK_BOOTTIME, now.boot_ns, snapshot);
  AddClock(perfetto::BUILTIN_CLOCK_MONOTONIC_RAW, now.monotonic_raw_ns, snapshot);
  snapshot.set_primary_trace_clock(perfetto::BUILTIN_CLOCK_BOOTTIME);
  return packet;
}

SegmentSealer::SegmentSealer(const Clock& clock, SegmentRing& ring, std::string boot_id,
                             std::unique_ptr<PacketCompressor> compressor)
    : clock_(clock),
      ring_(ring),
      boot_id_(std::move(boot_id)),
      compressor_(std::move(compressor)),
      begin_ns_(clock.BootNs()) {}

void SegmentSealer::AddPacket(const perfetto::TracePacket& packet) {
  perfetto::TracePacket with_sequence = packet;
  with_sequence.set_trusted_packet_sequence_id(kSequenceId);
  body_ += Serialize(with_sequence);
}

void SegmentSealer::AddLosses(std::vector<trace::Loss> losses) {
  if (losses.empty()) return;
  perfetto::TracePacket packet;
  packet.set_timestamp(losses.front().end_ns());
  auto& out = *packet.MutableExtension(trace::aitrace);
  for (trace::Loss& loss : losses) *out.add_loss() = std::move(loss);
  AddPacket(packet);
}

void SegmentSealer::SetCompressor(std::unique_ptr<PacketCompressor> compressor) {
  compressor_ = std::move(compressor);
}

void SegmentSealer::Push(trace::SegmentInfo info, absl::string_view packets) {
  ClockReading now = clock_.Read();
  std::string raw = Serialize(ClockPacket(now));
  raw.append(packets.data(), packets.size());
  packed_.clear();
  compressor_->Append(raw, packed_);
  info.set_sequence(ring_.next_sequence());
  info.set_begin_realtime_ns(now.realtime_ns - (now.boot_ns - info.begin_ns()));
  info.set_boot_id(boot_id_);
  std::string segment = EncodeSegment(info, packed_);
  info.set_body_bytes(static_cast<uint32_t>(packed_.size()));
  if (!ring_.Push(info, segment).ok()) {
    ++stats_.refused_segments;
    return;
  }
  ++stats_.segments;
  stats_.raw_bytes += raw.size();
  stats_.packed_bytes += segment.size();
}

void SegmentSealer::Seal(uint64_t end_ns) {
  trace::SegmentInfo info;
  info.set_kind(trace::SegmentInfo::DATA);
  info.set_begin_ns(begin_ns_);
  info.set_end_ns(end_ns);
  Push(std::move(info), body_);
  Restart(end_ns);
}

void SegmentSealer::Restart(uint64_t begin_ns) {
  body_.clear();
  begin_ns_ = begin_ns;
}

void SegmentSealer::PushKeyframe(const std::string& packets, uint64_t at_ns, bool starts_file) {
  trace::SegmentInfo info;
  info.set_kind(trace::SegmentInfo::KEYFRAME);
  info.set_begin_ns(at_ns);
  info.set_end_ns(at_ns);
  if (starts_file) info.set_starts_file(true);
  Push(std::move(info), packets);
}

}  // namespace aitrace
