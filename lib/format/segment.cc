#include "lib/format/segment.h"

#include "lib/format/wire.h"
#include "proto/perfetto/trace.pb.h"

namespace aitrace {
namespace {

constexpr uint32_t kPacketTag = wire::Tag(1, wire::kLengthDelimited);
constexpr size_t kMaxPacketHeaderBytes = 1 + 10;

// The packet at `bytes[offset]`: where its message starts and ends.
struct PacketSpan {
  size_t message = 0;
  size_t end = 0;
};

absl::StatusOr<PacketSpan> ParsePacketHeader(absl::string_view bytes, size_t offset) {
  if (offset >= bytes.size()) return absl::OutOfRangeError("end of trace");
  if (static_cast<uint8_t>(bytes[offset]) != kPacketTag) {
    return absl::DataLossError(absl::StrCat("no packet at byte ", offset));
  }
  absl::string_view rest = bytes.substr(offset + 1, kMaxPacketHeaderBytes);
  wire::VarintResult length = wire::ParseVarint(rest);
  if (length.size == 0) {
    if (rest.size() < kMaxPacketHeaderBytes - 1) return absl::OutOfRangeError("packet cut short");
    return absl::DataLossError(absl::StrCat("bad packet length at byte ", offset));
  }
  if (length.value > kMaxSegmentBytes) {
    return absl::DataLossError(absl::StrCat("packet of ", length.value, " bytes at ", offset));
  }
  PacketSpan span;
  span.message = offset + 1 + length.size;
  span.end = span.message + length.value;
  return span;
}

}  // namespace

std::string EncodeSegment(trace::SegmentInfo info, absl::string_view body) {
  info.set_body_bytes(static_cast<uint32_t>(body.size()));
  perfetto::TracePacket packet;
  *packet.MutableExtension(trace::aitrace)->mutable_segment() = std::move(info);
  std::string bytes;
  wire::AppendLengthDelimited(1, packet.SerializeAsString(), bytes);
  bytes.append(body.data(), body.size());
  return bytes;
}

absl::StatusOr<SegmentView> ParseSegmentInfo(absl::string_view bytes, size_t offset) {
  ASSIGN_OR_RETURN(PacketSpan span, ParsePacketHeader(bytes, offset));
  if (span.end > bytes.size()) return absl::OutOfRangeError("segment header cut short");
  perfetto::TracePacket packet;
  if (!packet.ParseFromArray(bytes.data() + span.message,
                             static_cast<int>(span.end - span.message)) ||
      !packet.GetExtension(trace::aitrace).has_segment()) {
    return absl::DataLossError(absl::StrCat("no segment at byte ", offset));
  }
  SegmentView view;
  view.info = packet.GetExtension(trace::aitrace).segment();
  view.offset = offset;
  view.size = span.end - offset + view.info.body_bytes();
  if (view.size > kMaxSegmentBytes) {
    return absl::DataLossError(absl::StrCat("segment of ", view.size, " bytes at ", offset));
  }
  return view;
}

absl::StatusOr<SegmentView> ParseSegment(absl::string_view bytes, size_t offset) {
  ASSIGN_OR_RETURN(SegmentView view, ParseSegmentInfo(bytes, offset));
  if (view.size > bytes.size() - offset) return absl::OutOfRangeError("segment cut short");
  return view;
}

size_t WholePacketsPrefix(absl::string_view bytes) {
  size_t end = 0;
  while (true) {
    absl::StatusOr<PacketSpan> span = ParsePacketHeader(bytes, end);
    if (!span.ok() || span->end > bytes.size()) return end;
    end = span->end;
  }
}

}  // namespace aitrace
