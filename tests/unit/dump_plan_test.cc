#include "daemon/writer/dump_plan.h"

#include "tests/unit/catch.h"
#include "tests/unit/segments.h"

namespace aitrace {
namespace {

constexpr auto kKeyframe = trace::SegmentInfo::KEYFRAME;

RingRecord Record(uint64_t sequence, uint64_t begin_ns, uint64_t end_ns) {
  RingRecord record{.sequence = sequence, .begin_ns = begin_ns, .end_ns = end_ns, .size_bytes = 7};
  if (begin_ns == end_ns) record.kind = kKeyframe;
  return record;
}

// A keyframe every 30, a data segment every 10.
std::vector<RingRecord> Records(uint64_t from, uint64_t to) {
  std::vector<RingRecord> records;
  for (uint64_t at = from; at < to; at += 10) {
    if (at % 30 == 0) records.push_back(Record(2 * at, at, at));
    records.push_back(Record(2 * at + 1, at, at + 10));
  }
  return records;
}

PlannedFile File(const std::string& path, uint64_t from, uint64_t to) {
  PlannedFile file{.path = path};
  uint64_t offset = 0;
  for (const RingRecord& record : Records(from, to)) {
    if (record.kind == kKeyframe && record.begin_ns != from) continue;
    file.segments.push_back(
        {MakeInfo(record.sequence, record.begin_ns, record.end_ns, record.kind), offset, 50});
    offset += 50;
  }
  return file;
}

TEST_CASE("A window in the ring starts at the newest keyframe before it") {
  DumpPlan plan = PlanDump({}, Records(0, 120), 75, UINT64_MAX);
  CHECK(plan.files.empty());
  CHECK(plan.begin_ns == 60);
  CHECK(plan.end_ns == 120);
  CHECK(plan.records.front().kind == kKeyframe);
  for (size_t i = 1; i < plan.records.size(); ++i) CHECK(plan.records[i].kind != kKeyframe);
}

TEST_CASE("A window that ends before now leaves out what came after it") {
  DumpPlan plan = PlanDump({}, Records(0, 120), 35, 55);
  CHECK(plan.begin_ns == 30);
  CHECK(plan.end_ns == 60);
}

TEST_CASE("A window beyond the ring starts in the file that holds its start") {
  std::vector<PlannedFile> files = {File("a", 0, 30), File("b", 30, 60), File("c", 60, 90)};
  // The ring has lost all before 80, and no keyframe stands before 90.
  DumpPlan plan = PlanDump(files, Records(80, 150), 40, UINT64_MAX);
  REQUIRE(plan.files.size() == 2);
  CHECK(plan.files[0].path == "b");
  CHECK(plan.files[0].offset == 0);
  CHECK(plan.begin_ns == 30);
  CHECK(plan.end_ns == 150);
  CHECK_FALSE(plan.has_hole);
  CHECK(plan.records.front().begin_ns == 80);
}

TEST_CASE("What files and ring both have is taken once") {
  std::vector<PlannedFile> files = {File("a", 0, 100)};
  std::vector<RingRecord> records = Records(40, 120);
  DumpPlan plan = PlanDump(files, records, 0, UINT64_MAX);
  CHECK(plan.files.size() == 1);
  CHECK(plan.records.front().sequence == records.front().sequence);
  CHECK_FALSE(plan.has_hole);
}

TEST_CASE("Time that neither files nor ring have is a hole, and the ring part starts anew") {
  DumpPlan plan = PlanDump({File("a", 0, 30)}, Records(100, 150), 0, UINT64_MAX);
  CHECK(plan.has_hole);
  CHECK(plan.records.front().kind == kKeyframe);
  CHECK(plan.records.front().begin_ns == 120);
}

TEST_CASE("Without files a window before the ring gets what the ring has") {
  DumpPlan plan = PlanDump({}, Records(40, 120), 0, UINT64_MAX);
  CHECK(plan.begin_ns == 60);
  CHECK(plan.end_ns == 120);
}

TEST_CASE("An empty ring and no files give nothing") {
  CHECK(PlanDump({}, {}, 0, UINT64_MAX).segments == 0);
  CHECK(PlanDump({File("a", 0, 30)}, {}, 100, UINT64_MAX).segments == 0);
}

TEST_CASE("Files alone will do when the ring is empty") {
  DumpPlan plan = PlanDump({File("a", 0, 30), File("b", 30, 60)}, {}, 35, UINT64_MAX);
  CHECK(plan.files.size() == 1);
  CHECK(plan.begin_ns == 30);
}

}  // namespace
}  // namespace aitrace
