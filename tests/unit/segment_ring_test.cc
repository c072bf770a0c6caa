#include "lib/store/segment_ring.h"

#include <sys/wait.h>

#include <csignal>
#include <random>
#include <thread>

#include "lib/store/ring_memory.h"
#include "tests/unit/catch.h"
#include "tests/unit/segments.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

constexpr uint64_t kSize = kMinRingBytes;

std::unique_ptr<SegmentRing> OpenRing(const TempDir& dir, uint64_t size_bytes = kSize,
                                      const std::string& boot_id = kTestBootId) {
  auto ring =
      SegmentRing::Open({.path = dir.File("ring"), .size_bytes = size_bytes, .boot_id = boot_id});
  REQUIRE(ring.ok());
  return *std::move(ring);
}

std::unique_ptr<SegmentRingReader> Reader(const SegmentRing& ring) {
  auto fd = ring.OpenReadOnly();
  REQUIRE(fd.ok());
  auto reader = SegmentRingReader::Map(*std::move(fd));
  REQUIRE(reader.ok());
  return *std::move(reader);
}

void Push(SegmentRing& ring, uint64_t begin_ns, size_t bytes = 100) {
  trace::SegmentInfo info = MakeInfo(ring.next_sequence(), begin_ns, begin_ns + 10);
  REQUIRE(ring.Push(info, MakeSegment(info, bytes)).ok());
}

std::vector<uint64_t> BeginTimes(const SegmentRingReader& reader) {
  std::vector<uint64_t> times;
  reader.ForEach([&](const RingRecord& record) {
    times.push_back(record.begin_ns);
    return true;
  });
  return times;
}

TEST_CASE("The ring gives segments back byte for byte") {
  TempDir dir("/dev/shm");
  auto ring = OpenRing(dir);
  trace::SegmentInfo info = MakeInfo(ring->next_sequence(), 5, 15, trace::SegmentInfo::KEYFRAME);
  info.set_starts_file(true);
  std::string segment = MakeSegment(info);
  REQUIRE(ring->Push(info, segment).ok());

  auto reader = Reader(*ring);
  auto record = reader->Find(0);
  REQUIRE(record.ok());
  CHECK(record->kind == trace::SegmentInfo::KEYFRAME);
  CHECK(record->starts_file);
  CHECK(record->end_ns == 15);
  std::string copy;
  REQUIRE(reader->Copy(*record, copy).ok());
  CHECK(copy == segment);
  CHECK(absl::IsNotFound(reader->Find(record->sequence + 1).status()));
}

TEST_CASE("The ring evicts the oldest segments to fit new ones, and counts them") {
  TempDir dir("/dev/shm");
  auto ring = OpenRing(dir);
  for (uint64_t i = 0; i < 100; ++i) Push(*ring, i, 100'000);

  std::vector<uint64_t> times = BeginTimes(*Reader(*ring));
  SegmentRing::Stats stats = ring->stats();
  CHECK(times.back() == 99);
  CHECK(times.size() == stats.segments);
  CHECK(stats.segments + stats.evicted_segments == 100);
  CHECK(stats.oldest_begin_ns == times.front());
  CHECK(stats.used_bytes <= stats.size_bytes);
  for (size_t i = 1; i < times.size(); ++i) CHECK(times[i] == times[i - 1] + 1);
}

TEST_CASE("A segment that can never fit is refused and changes nothing") {
  TempDir dir("/dev/shm");
  auto ring = OpenRing(dir);
  Push(*ring, 1);
  trace::SegmentInfo info = MakeInfo(ring->next_sequence(), 2, 3);
  CHECK(absl::IsResourceExhausted(ring->Push(info, MakeSegment(info, kSize))));
  CHECK(BeginTimes(*Reader(*ring)) == std::vector<uint64_t>{1});
}

TEST_CASE("A reader that is lapped is told so") {
  TempDir dir("/dev/shm");
  auto ring = OpenRing(dir);
  Push(*ring, 1, 1000);
  auto reader = Reader(*ring);
  auto record = reader->Find(0);
  REQUIRE(record.ok());
  for (uint64_t i = 0; i < 100; ++i) Push(*ring, i, 100'000);
  std::string copy;
  CHECK(absl::IsDataLoss(reader->Copy(*record, copy)));
}

TEST_CASE("A reader beside a writer at full speed gets whole segments or an error") {
  TempDir dir("/dev/shm");
  auto ring = OpenRing(dir);
  auto reader = Reader(*ring);
  std::atomic<bool> is_done = false;
  std::thread writer([&] {
    for (uint64_t i = 0; i < 3000; ++i) Push(*ring, i, 10'000 + i * 7 % 90'000);
    is_done = true;
  });
  uint64_t next = 0;
  uint64_t whole = 0;
  bool is_wrong = false;
  while (!is_done || reader->Find(next).ok()) {
    auto record = reader->Find(next);
    if (!record.ok()) continue;
    std::string copy;
    if (reader->Copy(*record, copy).ok()) {
      auto view = ParseSegment(copy, 0);
      is_wrong |= !view.ok() || view->info.sequence() != record->sequence;
      ++whole;
    }
    next = record->sequence + 1;
  }
  writer.join();
  CHECK_FALSE(is_wrong);
  CHECK(whole > 0);
}

TEST_CASE("The next process finds what the last one left") {
  TempDir dir("/dev/shm");
  uint64_t next = 0;
  {
    auto ring = OpenRing(dir);
    Push(*ring, 10);
    Push(*ring, 20);
    next = ring->next_sequence();
  }
  auto ring = OpenRing(dir);
  CHECK(ring->stats().recovered_segments == 2);
  CHECK(ring->recovered_end_ns() == 30);
  CHECK(ring->next_sequence() == next);
  Push(*ring, 40);
  CHECK(BeginTimes(*Reader(*ring)) == std::vector<uint64_t>{10, 20, 40});
}

TEST_CASE("Whatever moment a process is killed at, the ring is whole afterwards") {
  TempDir dir("/dev/shm");
  std::mt19937 random(1);
  uint64_t sequence = 0;
  for (int round = 0; round < 30; ++round) {
    pid_t child = fork();
    if (child == 0) {
      auto ring = OpenRing(dir);
      for (uint64_t i = 0;; ++i) Push(*ring, i, 1000 + i * 7919 % 200'000);
    }
    usleep(1000 + random() % 8000);  // Random, not waiting for anything.
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    auto ring = OpenRing(dir);
    CHECK(ring->stats().torn_segments == 0);
    CHECK(ring->next_sequence() >= sequence);
    sequence = ring->next_sequence();
    auto reader = Reader(*ring);
    reader->ForEach([&](const RingRecord& record) {
      std::string copy;
      REQUIRE(reader->Copy(record, copy).ok());
      REQUIRE(ParseSegment(copy, 0).ok());
      return true;
    });
  }
}

TEST_CASE("A ring of another boot or another size is discarded, and said to be") {
  TempDir dir("/dev/shm");
  Push(*OpenRing(dir), 10);
  auto other_boot = OpenRing(dir, kSize, std::string(16, 'c'));
  CHECK(other_boot->stats().recovered_segments == 0);
  CHECK(other_boot->stats().note.find("earlier boot") != std::string::npos);
  Push(*other_boot, 10);
  other_boot.reset();
  auto other_size = OpenRing(dir, 2 * kSize, std::string(16, 'c'));
  CHECK(other_size->stats().recovered_segments == 0);
  CHECK(other_size->stats().note.find("discarded") != std::string::npos);
}

TEST_CASE("Damage anywhere in the ring never crashes, and drops what is damaged") {
  TempDir dir("/dev/shm");
  {
    auto ring = OpenRing(dir);
    for (uint64_t i = 0; i < 20; ++i) Push(*ring, i, 500);
  }
  std::string good = ReadText(dir.File("ring"));
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string bad = good;
    for (int flip = 0; flip < 4; ++flip) {
      bad[random() % (4096 + 20 * 700)] ^= static_cast<char>(1 << random() % 8);
    }
    WriteText(dir.File("ring"), bad);
    auto ring = OpenRing(dir);
    auto reader = Reader(*ring);
    reader->ForEach([&](const RingRecord& record) {
      std::string copy;
      CHECK(reader->Copy(record, copy).ok());
      return true;
    });
    Push(*ring, 100);
  }
}

TEST_CASE("Descriptors of the ring for others are read-only") {
  TempDir dir("/dev/shm");
  auto ring = OpenRing(dir);
  auto fd = ring->OpenReadOnly();
  REQUIRE(fd.ok());
  CHECK(write(fd->get(), "x", 1) < 0);
}

// Where the ring may live.

MemoryProbe Probe(const std::string& shm, bool is_tmpfs, uint64_t free_mb, uint64_t total_mb) {
  MemoryProbe probe;
  probe.shm_directory = shm;
  probe.space_of = [=](const std::string& directory) -> absl::StatusOr<MemoryProbe::Space> {
    bool is_shm = directory == shm;
    return MemoryProbe::Space{
        .is_tmpfs = is_shm || is_tmpfs, .total_bytes = total_mb << 20, .free_bytes = free_mb << 20};
  };
  return probe;
}

TEST_CASE("A path that is not memory is replaced by one that is, and said to be") {
  TempDir dir;
  TempDir shm("/dev/shm");
  auto memory = OpenRingMemory(dir.File("run/ring"), kSize, Probe(shm.path(), false, 100, 100));
  REQUIRE(memory.ok());
  CHECK(memory->path.find(shm.path()) == 0);
  CHECK(memory->note.find("not memory") != std::string::npos);
  CHECK(memory->file_system == "tmpfs");
}

TEST_CASE("A ring that would not leave a quarter free shrinks, with numbers") {
  TempDir dir("/dev/shm");
  auto memory = OpenRingMemory(dir.File("ring"), 64 << 20, Probe("/none", true, 50, 100));
  REQUIRE(memory.ok());
  CHECK(memory->size_bytes == 25 << 20);
  CHECK(memory->note.find("from 64 to 25 MiB") != std::string::npos);
}

TEST_CASE("A ring that cannot fit at all is refused, with numbers, and leaves nothing") {
  TempDir dir("/dev/shm");
  auto memory = OpenRingMemory(dir.File("ring"), 64 << 20, Probe("/none", true, 27, 100));
  REQUIRE(absl::IsResourceExhausted(memory.status()));
  CHECK(memory.status().message().find("27 of 100 MiB") != absl::string_view::npos);
}

TEST_CASE("A ring that is there already is kept, however full the tmpfs has become") {
  TempDir dir("/dev/shm");
  auto before = OpenRingMemory(dir.File("ring"), 64 << 20, Probe("/none", true, 100, 100));
  REQUIRE(before.ok());
  auto fuller = OpenRingMemory(dir.File("ring"), 64 << 20, Probe("/none", true, 0, 100));
  REQUIRE(fuller.ok());
  CHECK_FALSE(fuller->is_new);
  CHECK(fuller->size_bytes == 64 << 20);
}

TEST_CASE("Somebody else's directory in /dev/shm is not used") {
  TempDir dir;
  TempDir shm("/dev/shm");
  MemoryProbe probe = Probe(shm.path(), false, 100, 100);
  auto memory = OpenRingMemory(dir.File("ring"), kSize, probe);
  REQUIRE(memory.ok());
  std::string directory = std::filesystem::path(memory->path).parent_path();
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory_symlink("/tmp", directory);
  CHECK(absl::IsFailedPrecondition(OpenRingMemory(dir.File("ring"), kSize, probe).status()));
  std::filesystem::remove(directory);
  std::filesystem::create_directory(directory);
  std::filesystem::permissions(directory, std::filesystem::perms::all);
  CHECK(absl::IsFailedPrecondition(OpenRingMemory(dir.File("ring"), kSize, probe).status()));
}

TEST_CASE("Without any tmpfs the ring is a memfd, which does not outlive the process") {
  TempDir dir;
  auto memory = OpenRingMemory(dir.File("ring"), kSize, [] {
    MemoryProbe probe = Probe("/none", false, 100, 100);
    probe.space_of = [](const std::string&) -> absl::StatusOr<MemoryProbe::Space> {
      return MemoryProbe::Space{};
    };
    return probe;
  }());
  REQUIRE(memory.ok());
  CHECK(memory->file_system == "memfd");
  CHECK(memory->note.find("does not outlive") != std::string::npos);
}

}  // namespace
}  // namespace aitrace
