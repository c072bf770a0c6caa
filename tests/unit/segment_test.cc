#include "lib/format/segment.h"

#include "proto/perfetto/trace.pb.h"
#include "tests/unit/catch.h"

namespace aitrace {
namespace {

std::string Packet(uint64_t timestamp) {
  perfetto::Trace trace;
  trace.add_packet()->set_timestamp(timestamp);
  return trace.SerializeAsString();
}

trace::SegmentInfo Info(uint64_t sequence) {
  trace::SegmentInfo info;
  info.set_sequence(sequence);
  info.set_begin_ns(10);
  info.set_end_ns(20);
  return info;
}

TEST_CASE("A segment is found again in a run of segments") {
  std::string bytes = EncodeSegment(Info(1), Packet(11)) + EncodeSegment(Info(2), Packet(12));

  auto first = ParseSegment(bytes, 0);
  REQUIRE(first.ok());
  auto second = ParseSegment(bytes, first->size);
  REQUIRE(second.ok());

  CHECK(first->info.sequence() == 1);
  CHECK(second->info.sequence() == 2);
  CHECK(first->size + second->size == bytes.size());
  CHECK(absl::IsOutOfRange(ParseSegment(bytes, bytes.size()).status()));
}

TEST_CASE("A segment is a run of whole TracePackets to any reader") {
  std::string bytes = EncodeSegment(Info(1), Packet(11));
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(bytes));
  CHECK(trace.packet_size() == 2);
  CHECK(trace.packet(1).timestamp() == 11);
}

TEST_CASE("A segment cut anywhere is out of range, never read past its end") {
  std::string bytes = EncodeSegment(Info(1), Packet(11));
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK(absl::IsOutOfRange(ParseSegment(absl::string_view(bytes.data(), size), 0).status()));
  }
}

TEST_CASE("What is no segment is data loss") {
  CHECK(absl::IsDataLoss(ParseSegment("\xff\xff\xff", 0).status()));
  CHECK(absl::IsDataLoss(ParseSegment(Packet(1), 0).status()));
}

TEST_CASE("The whole-packets prefix ends at the last packet that is all there") {
  std::string one = Packet(11);
  std::string bytes = one + Packet(12);
  for (size_t size = 0; size < bytes.size(); ++size) {
    size_t want = size < one.size() ? 0 : one.size();
    CHECK(WholePacketsPrefix(absl::string_view(bytes.data(), size)) == want);
  }
  CHECK(WholePacketsPrefix(bytes) == bytes.size());
}

}  // namespace
}  // namespace aitrace
