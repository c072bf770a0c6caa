#include "daemon/writer/dump_job.h"

#include <chrono>
#include <iostream>

#include "lib/store/rotated_files.h"
#include "tests/unit/catch.h"
#include "tests/unit/segments.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

constexpr uint64_t kNow = 1000 * kNsPerSecond;

// A ring of one-second segments up to kNow, with a keyframe every ten.
class Bench {
 public:
  explicit Bench(uint64_t ring_bytes = kMinRingBytes) {
    clock.now = {.boot_ns = kNow, .realtime_ns = 2'000'000'000 * kNsPerSecond};
    ring = *SegmentRing::Open(
        {.path = shm.File("ring"), .size_bytes = ring_bytes, .boot_id = kTestBootId});
    reader = *SegmentRingReader::Map(*ring->OpenReadOnly());
    REQUIRE(store.Init().ok());
  }
  void Fill(uint64_t seconds, size_t bytes) {
    for (uint64_t i = 0; i < seconds; ++i) {
      uint64_t begin_ns = kNow - (seconds - i) * kNsPerSecond;
      if (i % 10 == 0) Push(MakeInfo(0, begin_ns, begin_ns, trace::SegmentInfo::KEYFRAME), 100);
      Push(MakeInfo(0, begin_ns, begin_ns + kNsPerSecond), bytes);
    }
  }
  void Push(trace::SegmentInfo info, size_t bytes) {
    info.set_sequence(ring->next_sequence());
    REQUIRE(ring->Push(info, MakeSegment(info, bytes)).ok());
  }
  absl::StatusOr<FinishedDump> Dump(WriterRequest::Dump request) {
    request.set_reason("command");
    if (!request.has_through_sequence()) request.set_through_sequence(ring->next_sequence() - 1);
    DumpContext context{.clock = clock,
                        .ring = *reader,
                        .snapshots = store,
                        .trace_directory = dir.File("trace"),
                        .boot_id = kTestBootId};
    context.on_progress = [this](uint64_t done_bytes, uint64_t) { progress_bytes = done_bytes; };
    return RunDump(request, context);
  }

  TempDir dir;
  TempDir shm{"/dev/shm"};
  FakeClock clock;
  SnapshotStore store{dir.File("snapshots")};
  std::unique_ptr<SegmentRing> ring;
  std::unique_ptr<SegmentRingReader> reader;
  uint64_t progress_bytes = 0;
};

WriterRequest::Dump Last(uint64_t seconds) {
  WriterRequest::Dump request;
  request.mutable_window()->set_last_ns(seconds * kNsPerSecond);
  return request;
}

TEST_CASE("A dump from the ring is whole, and says what it covers") {
  Bench bench;
  bench.Fill(60, 1000);
  auto dump = bench.Dump(Last(15));
  REQUIRE(dump.ok());
  CHECK(dump->info.covered().begin_ns() == kNow - 20 * kNsPerSecond);
  CHECK(dump->info.covered().end_ns() == kNow);
  CHECK(dump->info.asked().begin_ns() == kNow - 15 * kNsPerSecond);
  CHECK_FALSE(dump->info.covered_less());
  CHECK(dump->info.segments() == 21);
  std::string bytes = ReadText(bench.store.TracePath(dump->info.id()));
  CHECK(bytes.size() == dump->info.trace_bytes());
  CHECK(WholePacketsPrefix(bytes) == bytes.size());
}

TEST_CASE("A dump that reaches back beyond what was kept says so") {
  Bench bench;
  bench.Fill(20, 1000);
  auto dump = bench.Dump(Last(300));
  REQUIRE(dump.ok());
  CHECK(dump->info.covered_less());
  CHECK(dump->info.covered_note().find("280.0 s") != std::string::npos);
}

TEST_CASE("A window that nothing was kept of is an error, and leaves no snapshot") {
  Bench bench;
  CHECK(absl::IsNotFound(bench.Dump(Last(10)).status()));
  CHECK(bench.store.List()->empty());
}

TEST_CASE("A window from before a restart of the machine is found in the files of that boot") {
  Bench bench;
  bench.Fill(5, 1000);
  // That boot's clock stood at 700 s when it was ten minutes ago.
  uint64_t then_ns = bench.clock.now.realtime_ns - 600 * kNsPerSecond;
  std::string bytes;
  for (uint64_t i = 0; i < 10; ++i) {
    uint64_t begin_ns = (700 + i) * kNsPerSecond;
    trace::SegmentInfo info = MakeInfo(i, begin_ns, begin_ns + kNsPerSecond);
    if (i == 0) info.set_kind(trace::SegmentInfo::KEYFRAME);
    info.set_boot_id(std::string(16, 'e'));
    info.set_begin_realtime_ns(then_ns + i * kNsPerSecond);
    bytes += MakeSegment(info);
  }
  WriteText(bench.dir.File("trace/" + RotatedFileName("n", then_ns)), bytes);
  WriterRequest::Dump request;
  request.mutable_window()->set_from_realtime_ns(then_ns + 2 * kNsPerSecond);
  request.mutable_window()->set_to_realtime_ns(then_ns + 4 * kNsPerSecond);

  auto dump = bench.Dump(request);

  REQUIRE(dump.ok());
  CHECK(dump->info.covered().begin_realtime_ns() == then_ns);
  CHECK(dump->info.covered().end_realtime_ns() == then_ns + 5 * kNsPerSecond);
  CHECK(dump->info.asked().end_realtime_ns() == then_ns + 4 * kNsPerSecond);
  CHECK(dump->info.boot_id() == "65656565656565656565656565656565");
}

TEST_CASE("Segments sealed after the command are not in its dump") {
  Bench bench;
  bench.Fill(20, 1000);
  WriterRequest::Dump request = Last(300);
  request.set_through_sequence(bench.ring->next_sequence() - 3);
  auto dump = bench.Dump(request);
  REQUIRE(dump.ok());
  CHECK(dump->info.covered().end_ns() == kNow - 2 * kNsPerSecond);
}

TEST_CASE("Only losses of the window are told, added up by source, cause and CPU") {
  Bench bench;
  bench.Fill(60, 1000);
  WriterRequest::Dump request = Last(10);
  for (uint64_t ago_s : {50, 5, 4}) {
    auto& loss = *request.add_loss();
    loss.set_source("sched");
    loss.set_cpu(1);
    loss.set_count(10);
    loss.set_begin_ns(kNow - ago_s * kNsPerSecond);
    loss.set_end_ns(kNow - ago_s * kNsPerSecond + 1);
  }
  auto dump = bench.Dump(request);
  REQUIRE(dump.ok());
  REQUIRE(dump->info.loss_size() == 1);
  CHECK(dump->info.loss(0).count() == 20);
}

TEST_CASE("A full ring of 256 MiB is dumped") {
  constexpr uint64_t kRing = 256 << 20;
  Bench bench(kRing);
  bench.Fill(300, 1'000'000);
  REQUIRE(bench.ring->stats().evicted_segments > 0);
  auto begin = std::chrono::steady_clock::now();
  auto dump = bench.Dump(Last(300));
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  REQUIRE(dump.ok());
  std::cout << "a dump of " << dump->info.trace_bytes() << " bytes took " << seconds.count()
            << " s\n";
  CHECK(dump->info.trace_bytes() > kRing * 9 / 10);
  CHECK(bench.progress_bytes > kRing / 2);
}

}  // namespace
}  // namespace aitrace
