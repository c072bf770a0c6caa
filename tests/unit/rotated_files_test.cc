#include "lib/store/rotated_files.h"

#include <fcntl.h>

#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/store/retention.h"
#include "lib/store/utc_time.h"
#include "tests/unit/catch.h"
#include "tests/unit/segments.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

constexpr uint64_t kNoon = 1'796'133'600'000'000'000;  // 2026-12-01 14:00 UTC
const std::string kName = RotatedFileName("node-7", kNoon);

TEST_CASE("A file's name is its host and start, and reads back as the start") {
  CHECK(kName == "aitrace-node-7-20261201T140000.000Z.perfetto-trace");
  CHECK(ParseRotatedFileName(kName) == kNoon);
}

TEST_CASE("A host of any name makes a file name that stays in its directory") {
  std::string name = RotatedFileName("../(none)", kNoon);
  CHECK(name == "aitrace-..__none_-20261201T140000.000Z.perfetto-trace");
  CHECK(ParseRotatedFileName(name) == kNoon);
  CHECK(ParseRotatedFileName(RotatedFileName("", kNoon)) == kNoon);
}

TEST_CASE("Names that we do not make are not ours") {
  for (const char* name : {"x.perfetto-trace", "aitrace-.perfetto-trace",
                           "aitrace-node-7-20261301T140000.000Z.perfetto-trace",
                           "aitrace-node-7-20261201T140000.000Z.perfetto-trace.partial",
                           "aitrace-node-7-20261201T140000.000Z.perfetto-trace.gz",
                           "aitrace-node-7-20261201T1400 0.000Z.perfetto-trace",
                           "aitrace-20261201T140000.000Z.perfetto-trace", "", "aitrace-"}) {
    CHECK_FALSE(ParseRotatedFileName(name).has_value());
  }
}

TEST_CASE("Only regular files with names of ours are listed, oldest first") {
  TempDir dir;
  std::string later = RotatedFileName("a", kNoon + kNsPerSecond);
  WriteText(dir.File(later), "12345");
  WriteText(dir.File(kName), "123");
  WriteText(dir.File("somebody.perfetto-trace"), "x");
  std::filesystem::create_directory(dir.File(RotatedFileName("dir", kNoon)));
  std::filesystem::create_symlink("/etc/passwd", dir.File(RotatedFileName("link", kNoon)));

  auto files = ListRotatedFiles(dir.path());

  REQUIRE(files.ok());
  REQUIRE(files->size() == 2);
  CHECK((*files)[0].name == kName);
  CHECK((*files)[1].bytes == 5);
}

TEST_CASE("A file has its final name only when it is finished") {
  TempDir dir;
  auto file = RotatedFileWriter::Create(dir.path(), kName);
  REQUIRE(file.ok());
  std::string segment = MakeSegment(MakeInfo(1, 10, 20));
  REQUIRE(file->Append(segment).ok());
  CHECK_FALSE(std::filesystem::exists(dir.File(kName)));
  REQUIRE(file->Finish().ok());
  CHECK(ReadText(dir.File(kName)) == segment);
  CHECK_FALSE(std::filesystem::exists(file->partial_path()));
}

TEST_CASE("Finishing never replaces a file") {
  TempDir dir;
  auto file = RotatedFileWriter::Create(dir.path(), kName);
  REQUIRE(file.ok());
  WriteText(dir.File(kName), "precious");
  CHECK(absl::IsAlreadyExists(RotatedFileWriter::Create(dir.path(), kName).status()));
  CHECK(absl::IsAlreadyExists(file->Finish()));
  CHECK(ReadText(dir.File(kName)) == "precious");
}

TEST_CASE("A partial file is resumed behind its last whole segment, wherever it was cut") {
  std::string first = MakeSegment(MakeInfo(1, 10, 20));
  std::string whole = first + MakeSegment(MakeInfo(2, 20, 30));
  for (size_t size = 0; size <= whole.size(); ++size) {
    TempDir dir;
    std::string partial = kName + kPartialSuffix;
    WriteText(dir.File(partial), whole.substr(0, size));
    auto file = RotatedFileWriter::Resume(dir.path(), partial);
    REQUIRE(file.ok());
    size_t want = size == whole.size() ? size : size >= first.size() ? first.size() : 0;
    REQUIRE(file->bytes() == want);
    REQUIRE(file->CutToSegments().ok());
    REQUIRE(file->last_segment().has_value() == (want > 0));
    REQUIRE(std::filesystem::file_size(dir.File(partial)) == want);
  }
}

TEST_CASE("A file cut within a segment keeps that segment's whole packets") {
  TempDir dir;
  std::string partial = kName + kPartialSuffix;
  std::string first = MakeSegment(MakeInfo(1, 10, 20));
  std::string body = MakePackets(21) + MakePackets(22) + MakePackets(23);
  std::string second = EncodeSegment(MakeInfo(2, 20, 30), body);
  WriteText(dir.File(partial), first + second.substr(0, second.size() - 10));
  auto file = RotatedFileWriter::Resume(dir.path(), partial);
  REQUIRE(file.ok());
  REQUIRE(file->FinishTruncated("killed").ok());
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(ReadText(dir.File(kName))));
  REQUIRE(trace.packet_size() == 2 + 3 + 1);
  CHECK(trace.packet(4).timestamp() == 22);
  CHECK(trace.packet(5).GetExtension(trace::aitrace).has_truncation());
}

TEST_CASE("A truncated file says so at its end, and an empty one goes") {
  TempDir dir;
  std::string partial = kName + kPartialSuffix;
  std::string segment = MakeSegment(MakeInfo(1, 10, 20));
  WriteText(dir.File(partial), segment + "\x0a\xff");
  auto file = RotatedFileWriter::Resume(dir.path(), partial);
  REQUIRE(file.ok());
  REQUIRE(file->FinishTruncated("killed").ok());
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(ReadText(dir.File(kName))));
  const auto& last = trace.packet(trace.packet_size() - 1).GetExtension(trace::aitrace);
  CHECK(last.truncation().cut_bytes() == 2);
  CHECK(last.truncation().reason() == "killed");

  std::string empty = RotatedFileName("e", kNoon) + kPartialSuffix;
  WriteText(dir.File(empty), "\x0a");
  auto nothing = RotatedFileWriter::Resume(dir.path(), empty);
  REQUIRE(nothing.ok());
  REQUIRE(nothing->FinishTruncated("killed").ok());
  CHECK_FALSE(std::filesystem::exists(dir.File(empty)));
}

TEST_CASE("A partial file that its writer holds is left alone") {
  TempDir dir;
  auto file = RotatedFileWriter::Create(dir.path(), kName);
  REQUIRE(file.ok());
  auto other = RotatedFileWriter::Resume(dir.path(), kName + kPartialSuffix);
  CHECK(absl::IsUnavailable(other.status()));
}

TEST_CASE("Bytes that are no segments are walked without harm") {
  TempDir dir;
  for (const std::string& bytes : {std::string("\x0a\xff\xff\xff\xff\x0f"),
                                   std::string(1000, '\x0a'), std::string(1000, '\0')}) {
    WriteText(dir.File("x"), bytes);
    auto fd = OpenFile(dir.File("x"), O_RDONLY);
    REQUIRE(fd.ok());
    auto end = ForEachSegment(fd->get(), [](const FileSegment&) { return true; });
    REQUIRE(end.ok());
    CHECK(*end == 0);
  }
}

// Retention.

std::vector<RotatedFile> Files(const std::vector<uint64_t>& sizes,
                               uint64_t step_ns = kNsPerSecond) {
  std::vector<RotatedFile> files;
  for (size_t i = 0; i < sizes.size(); ++i) {
    uint64_t start_ns = kNoon + i * step_ns;
    files.push_back({RotatedFileName("n", start_ns), start_ns, sizes[i]});
  }
  return files;
}

constexpr uint64_t kMuch = uint64_t{1} << 40;

TEST_CASE("Without limits nothing is removed") {
  CHECK(FilesToRemove(Files({1, 2, 3}), {}, kNoon, 0) == 0);
  CHECK(FilesToRemove({}, {.max_files = 1}, kNoon, kMuch) == 0);
}

TEST_CASE("Each limit removes the oldest files, as few as it needs") {
  auto files = Files({10, 10, 10, 10});
  CHECK(FilesToRemove(files, {.max_files = 3}, kNoon, kMuch) == 1);
  CHECK(FilesToRemove(files, {.max_bytes = 25}, kNoon, kMuch) == 2);
  CHECK(FilesToRemove(files, {.max_age_ns = kNsPerSecond}, kNoon + 2 * kNsPerSecond + 1, kMuch) ==
        2);
  CHECK(FilesToRemove(files, {.min_free_bytes = 15}, kNoon, 0) == 2);
}

TEST_CASE("The newest file stays, whatever the bytes, unless it is too old") {
  auto files = Files({100, 100});
  CHECK(FilesToRemove(files, {.max_bytes = 1}, kNoon, kMuch) == 1);
  CHECK(FilesToRemove(files, {.min_free_bytes = kMuch}, kNoon, 0) == 1);
  CHECK(FilesToRemove(files, {.max_age_ns = 1}, kNoon + kMuch * 1000, kMuch) == 2);
}

TEST_CASE("A clock that jumped back removes nothing by age") {
  CHECK(FilesToRemove(Files({1, 1}), {.max_age_ns = 1}, kNoon - kMuch, kMuch) == 0);
}

TEST_CASE("Ten thousand files are decided at once") {
  std::vector<uint64_t> sizes(10'000, 1);
  CHECK(FilesToRemove(Files(sizes), {.max_files = 1}, kNoon, kMuch) == 9'999);
}

TEST_CASE("UTC times sort as text and read back") {
  CHECK(FormatUtcTime(kNoon + 123 * kNsPerMs) == "20261201T140000.123Z");
  CHECK(ParseUtcTime("20261201T140000.123Z") == kNoon + 123 * kNsPerMs);
  CHECK_FALSE(ParseUtcTime("20261201T146000.123Z").has_value());
  CHECK_FALSE(ParseUtcTime("20261201T140000.123").has_value());
}

}  // namespace
}  // namespace aitrace
