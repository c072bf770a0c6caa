#include "daemon/writer/file_rotator.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <iostream>

#include "lib/base/file.h"
#include "tests/unit/catch.h"
#include "tests/unit/segments.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

constexpr auto kKeyframe = trace::SegmentInfo::KEYFRAME;

// A ring, a clock and a rotator over one directory.
class Bench {
 public:
  explicit Bench(const std::string& directory) {
    clock.now = {.boot_ns = 100 * kNsPerSecond, .realtime_ns = 2'000'000'000 * kNsPerSecond};
    config.set_directory(directory);
    config.set_min_free_mb(0);
    ring = *SegmentRing::Open(
        {.path = ring_dir.File("ring"), .size_bytes = kMinRingBytes, .boot_id = kTestBootId});
    reader = *SegmentRingReader::Map(*ring->OpenReadOnly());
    Restart();
  }
  void Restart() {
    rotator.emplace(clock, *reader, "node", kTestBootId);
    rotator->Configure(config);
  }
  void Push(trace::SegmentInfo::Kind kind, bool starts_file = false, size_t bytes = 100) {
    uint64_t end_ns = kind == kKeyframe ? clock.now.boot_ns : clock.now.boot_ns + kNsPerSecond;
    trace::SegmentInfo info = MakeInfo(ring->next_sequence(), clock.now.boot_ns, end_ns, kind);
    info.set_starts_file(starts_file);
    REQUIRE(ring->Push(info, MakeSegment(info, bytes)).ok());
    clock.now.realtime_ns += end_ns - clock.now.boot_ns;
    clock.now.boot_ns = end_ns;
  }
  void PushFile(int seconds) {
    Push(kKeyframe, true);
    for (int i = 0; i < seconds; ++i) Push(trace::SegmentInfo::DATA);
  }
  std::vector<RotatedFile> Files() const { return *ListRotatedFiles(config.directory()); }
  WriterStatus Status() const {
    WriterStatus status;
    rotator->FillStatus(status);
    return status;
  }

  TempDir ring_dir{"/dev/shm"};
  FakeClock clock;
  Rotation config;
  std::unique_ptr<SegmentRing> ring;
  std::unique_ptr<SegmentRingReader> reader;
  std::optional<FileRotator> rotator;
};

size_t SegmentsOf(const std::string& path) {
  auto fd = OpenFile(path, O_RDONLY);
  REQUIRE(fd.ok());
  size_t count = 0;
  REQUIRE(ForEachSegment(fd->get(), [&](const FileSegment&) { return ++count > 0; }).ok());
  return count;
}

TEST_CASE("A file starts at each keyframe that says so, and leaves out the others") {
  TempDir dir;
  Bench bench(dir.path());
  bench.PushFile(3);
  bench.Push(kKeyframe);
  bench.Push(trace::SegmentInfo::DATA);
  bench.PushFile(2);
  bench.rotator->Poll();
  bench.rotator->Finish();
  auto files = bench.Files();
  REQUIRE(files.size() == 2);
  CHECK(SegmentsOf(dir.File(files[0].name)) == 5);
  CHECK(SegmentsOf(dir.File(files[1].name)) == 3);
}

TEST_CASE("A writer that is started again writes nothing twice") {
  TempDir dir;
  Bench bench(dir.path());
  bench.PushFile(2);
  bench.rotator->Poll();
  bench.rotator->Finish();
  bench.Restart();
  bench.rotator->Poll();
  bench.rotator->Finish();
  CHECK(bench.Files().size() == 1);
  bench.PushFile(1);
  bench.rotator->Poll();
  bench.rotator->Finish();
  REQUIRE(bench.Files().size() == 2);
  CHECK(SegmentsOf(dir.File(bench.Files()[1].name)) == 2);
}

TEST_CASE("A writer that was killed goes on with its file") {
  TempDir dir;
  Bench bench(dir.path());
  bench.PushFile(2);
  bench.rotator->Poll();
  bench.Restart();  // What it had open is a .partial now, and unlocked.
  bench.Push(trace::SegmentInfo::DATA);
  bench.rotator->Poll();
  bench.rotator->Finish();
  REQUIRE(bench.Files().size() == 1);
  CHECK(SegmentsOf(dir.File(bench.Files()[0].name)) == 4);
  CHECK(bench.Status().salvaged_files() == 1);
}

TEST_CASE("Segments that left the ring unwritten are counted, and a new file starts") {
  TempDir dir;
  Bench bench(dir.path());
  bench.PushFile(1);
  bench.rotator->Poll();
  for (int i = 0; i < 10; ++i) bench.Push(trace::SegmentInfo::DATA, false, 1'000'000);
  bench.PushFile(1);
  bench.rotator->Poll();
  bench.rotator->Finish();
  CHECK(bench.Status().lost_segments() == 10);
  CHECK(bench.Files().size() == 2);
}

TEST_CASE("A directory that cannot be written blocks, and is tried again later") {
  TempDir dir;
  WriteText(dir.File("file"), "in the way");
  Bench bench(dir.File("file/trace"));
  bench.PushFile(1);
  bench.rotator->Poll();
  CHECK(bench.Status().state() == WriterStatus::BLOCKED);
  std::filesystem::remove(dir.File("file"));
  bench.rotator->Poll();  // Too soon.
  CHECK(bench.Status().state() == WriterStatus::BLOCKED);
  bench.clock.now.boot_ns += 2 * kNsPerSecond;
  bench.rotator->Poll();
  CHECK(bench.Status().state() == WriterStatus::WRITING);
  bench.rotator->Finish();
  CHECK(bench.Files().size() == 1);
}

TEST_CASE("A disk with less free space than is to stay free blocks, and says so") {
  TempDir dir;
  Bench bench(dir.path());
  bench.config.set_min_free_mb(1 << 30);
  bench.Restart();
  bench.PushFile(1);
  bench.rotator->Poll();
  CHECK(bench.Status().error().find("min_free_mb") != std::string::npos);
  CHECK(bench.Files().empty());
}

TEST_CASE("A file or directory that somebody removed is made again") {
  TempDir dir;
  Bench bench(dir.File("trace"));
  bench.PushFile(1);
  bench.rotator->Poll();
  std::filesystem::remove_all(dir.File("trace"));
  for (int i = 0; i < 3; ++i) {
    bench.PushFile(1);
    bench.rotator->Poll();
    bench.clock.now.boot_ns += 20 * kNsPerSecond;
    bench.rotator->Poll();
  }
  CHECK(bench.Status().state() == WriterStatus::WRITING);
  bench.rotator->Finish();
  CHECK(bench.Files().size() >= 2);
}

TEST_CASE("A clock that was set back blocks nothing and writes nothing twice") {
  TempDir dir;
  Bench bench(dir.path());
  bench.PushFile(1);
  bench.PushFile(1);
  bench.rotator->Poll();
  bench.clock.now.realtime_ns -= 3600 * kNsPerSecond;
  bench.PushFile(1);
  bench.rotator->Poll();
  bench.rotator->Finish();
  bench.Restart();
  bench.PushFile(1);
  bench.rotator->Poll();
  bench.rotator->Finish();
  CHECK(bench.Status().state() == WriterStatus::WRITING);
  size_t segments = 0;
  for (const RotatedFile& file : bench.Files()) segments += SegmentsOf(dir.File(file.name));
  CHECK(segments == 8);
}

TEST_CASE("Time that is in no file is said in the next one") {
  TempDir dir;
  Bench bench(dir.path());
  bench.PushFile(1);
  bench.rotator->Poll();
  for (int i = 0; i < 10; ++i) bench.Push(trace::SegmentInfo::DATA, false, 1'000'000);
  bench.PushFile(1);
  bench.rotator->Poll();
  bench.rotator->Finish();
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(ReadText(dir.File(bench.Files().back().name))));
  uint64_t gap_ns = 0;
  for (const auto& packet : trace.packet()) {
    const auto& gap = packet.GetExtension(trace::aitrace).gap();
    gap_ns += gap.end_ns() - gap.begin_ns();
  }
  CHECK(gap_ns == 10 * kNsPerSecond);
}

TEST_CASE("Another host's files and partial files in the same directory are left alone") {
  TempDir dir;
  std::string theirs = RotatedFileName("other", 1'000'000'000 * kNsPerSecond);
  WriteText(dir.File(theirs), "x");
  auto partial = RotatedFileWriter::Create(dir.path(), RotatedFileName("third", kNsPerSecond));
  REQUIRE(partial.ok());
  Bench bench(dir.path());
  bench.config.set_keep_files(1);
  bench.Restart();
  bench.PushFile(1);
  bench.PushFile(1);
  bench.PushFile(1);
  bench.rotator->Poll();
  CHECK(bench.Status().state() == WriterStatus::WRITING);
  CHECK(std::filesystem::exists(dir.File(theirs)));
  CHECK(std::filesystem::exists(partial->partial_path()));
}

TEST_CASE("Retention works at the start, among foreign things, and removes only its own") {
  TempDir dir;
  for (uint64_t i = 0; i < 1000; ++i) {
    WriteText(dir.File(RotatedFileName("node", (1'000'000'000 + i) * kNsPerSecond)), "x");
  }
  WriteText(dir.File("aitrace-notes.txt"), "mine");
  std::filesystem::create_directory(
      dir.File(RotatedFileName("directory", 1'000'000'000 * kNsPerSecond)));
  Bench bench(dir.path());
  bench.config.set_keep_files(10);
  bench.config.set_keep_hours(0);
  bench.Restart();
  bench.rotator->Poll();
  CHECK(bench.Files().size() == 10);
  CHECK(bench.Files().front().start_realtime_ns == 1'000'000'990 * kNsPerSecond);
  CHECK(std::filesystem::exists(dir.File("aitrace-notes.txt")));
  CHECK(bench.Status().removed_files() == 990);
}

TEST_CASE("A file that cannot be removed stops neither the others' removal nor writing") {
  TempDir dir;
  std::string stuck = dir.File(RotatedFileName("node", 1'000'000'000 * kNsPerSecond));
  for (uint64_t i = 0; i < 5; ++i) {
    WriteText(dir.File(RotatedFileName("node", (1'000'000'000 + i) * kNsPerSecond)), "x");
  }
  auto fd = OpenFile(stuck, O_RDONLY);
  REQUIRE(fd.ok());
  int flags = FS_IMMUTABLE_FL;
  if (ioctl(fd->get(), FS_IOC_SETFLAGS, &flags) != 0) {
    std::cout << "SKIPPED immutable files: this file system or user cannot make one\n";
    return;
  }
  Bench bench(dir.path());
  bench.config.set_keep_files(1);
  bench.Restart();
  bench.PushFile(1);
  bench.rotator->Poll();
  CHECK(bench.Status().state() == WriterStatus::WRITING);
  CHECK(bench.Status().removed_files() == 4);
  CHECK(std::filesystem::exists(stuck));
  flags = 0;
  CHECK(ioctl(fd->get(), FS_IOC_SETFLAGS, &flags) == 0);
}

}  // namespace
}  // namespace aitrace
