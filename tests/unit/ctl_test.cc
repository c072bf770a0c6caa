#include <fcntl.h>

#include <cstdlib>

#include "ctl/commands.h"
#include "ctl/output_file.h"
#include "ctl/text.h"
#include "ctl/time_args.h"
#include "lib/base/file.h"
#include "tests/unit/catch.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kNoon = 1'796'133'600 * kSecond;  // 2026-12-01 14:00 UTC

TEST_CASE("Durations are numbers with a unit") {
  CHECK(*ParseDuration("90s") == 90 * kSecond);
  CHECK(*ParseDuration("15m") == 900 * kSecond);
  CHECK(*ParseDuration("2h") == 7200 * kSecond);
  CHECK(*ParseDuration("1d") == 86400 * kSecond);
  CHECK(*ParseDuration("500ms") == kSecond / 2);
  CHECK(*ParseDuration("1.5s") == kSecond * 3 / 2);
  for (const char* text : {"", "3", "s", "-1s", "1 s", "1w", "nan s", "1e99h", "0x10s", "infs"}) {
    CHECK(absl::IsInvalidArgument(ParseDuration(text).status()));
  }
}

TEST_CASE("Times are local, ISO 8601 with a zone, or seconds since the epoch") {
  setenv("TZ", "Europe/Berlin", 1);  // UTC+1 in December.
  tzset();
  CHECK(*ParseTime("15:30", kNoon) == kNoon + 1800 * kSecond);
  CHECK(*ParseTime("15:30:05", kNoon) == kNoon + 1805 * kSecond);
  CHECK(*ParseTime("2026-12-01 15:00:00", kNoon) == kNoon);
  CHECK(*ParseTime("2026-12-01T15:00", kNoon) == kNoon);
  CHECK(*ParseTime("2026-12-01T14:00:00Z", kNoon) == kNoon);
  CHECK(*ParseTime("2026-12-01T14:00:00.25Z", kNoon) == kNoon + kSecond / 4);
  CHECK(*ParseTime("2026-12-01T16:00:00+02:00", kNoon) == kNoon);
  CHECK(*ParseTime("2026-12-01T09:00:00-0500", kNoon) == kNoon);
  CHECK(*ParseTime("@1796133600.5", kNoon) == kNoon + kSecond / 2);
  for (const char* text : {"", "@", "@x", "@1.2.3", "25:00", "2026-13-01 00:00", "noon", "14:00x",
                           "2026-12-01T14:00:00+99:00", "@-5"}) {
    CHECK(absl::IsInvalidArgument(ParseTime(text, kNoon).status()));
  }
  unsetenv("TZ");
  tzset();
}

TEST_CASE("Hostile text colours no terminal and is still recognisable") {
  CHECK(Printable("a\x1b[31mb") == "a\\x1b[31mb");
  CHECK(Printable("new\nline") == "new\\x0aline");
  CHECK(Printable("ev\xffil") == "ev\\xffil");
  CHECK(Printable("\xc2\x9b") == "\\xc2\\x9b");           // A C1 control.
  CHECK(Printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // Half a surrogate pair.
  CHECK(Printable("\xe4\xbd\xa0") == "\xe4\xbd\xa0");
  CHECK(Printable("\xe4\xbd") == "\\xe4\\xbd");
}

TEST_CASE("Numbers are shown as people read them") {
  CHECK(FormatCount(0) == "0");
  CHECK(FormatCount(999) == "999");
  CHECK(FormatCount(1234567) == "1,234,567");
  CHECK(FormatBytes(1023) == "1023 B");
  CHECK(FormatBytes(3 << 19) == "1.5 MiB");
  CHECK(FormatDurationNs(252 * kSecond) == "4 min 12 s");
}

TEST_CASE("Tables line up on their widest cells") {
  CHECK(FormatTable({{"A", "N"}, {"long", "1"}, {"b", "100"}}, {false, true}) ==
        "A       N\nlong    1\nb     100\n");
}

std::string Trace(const TempDir& dir, size_t bytes) {
  WriteText(dir.File("trace"), std::string(bytes, 't'));
  return dir.File("trace");
}

absl::Status Copy(const std::string& from, const std::string& to) {
  auto fd = OpenFile(from, O_RDONLY);
  REQUIRE(fd.ok());
  return CopyTrace(fd->get(), to, {}).status();
}

TEST_CASE("A trace is copied whole, and replaces a file only then") {
  TempDir dir;
  std::string trace = Trace(dir, 10'000'000);
  WriteText(dir.File("out"), "old");
  REQUIRE(Copy(trace, dir.File("out")).ok());
  CHECK(ReadText(dir.File("out")) == ReadText(trace));
  std::filesystem::create_directory(dir.File("d"));
  CHECK_FALSE(Copy(trace, dir.File("d")).ok());
  CHECK_FALSE(Copy(trace, dir.File("none/out")).ok());
}

TEST_CASE("A full device is an error, and leaves no file") {
  TempDir dir;
  absl::Status status = Copy(Trace(dir, 1000), "/dev/full");
  CHECK(absl::IsResourceExhausted(status));
  CHECK(Copy(Trace(dir, 1000), "/dev/null").ok());
}

control::Status ExampleStatus() {
  control::Status status;
  status.set_version("1.0");
  status.set_host("node\x1b");
  status.set_kernel("6.1");
  status.set_pid(7);
  status.set_uptime_ns(3'600 * kSecond);
  status.set_config_path("/etc/x");
  auto& source = *status.add_sources();
  source.set_name("sched");
  source.set_events(1000);
  source.set_lost(5);
  auto& loss = *status.add_loss();
  loss.set_source("sched");
  loss.set_cause(trace::Loss::OVERWRITTEN);
  loss.set_cpu(3);
  loss.set_begin_ns(kSecond);
  loss.set_end_ns(2 * kSecond);
  loss.set_count(5);
  return status;
}

TEST_CASE("The status shows what is lost, by source, cause, CPU and time") {
  std::string text = FormatStatus(ExampleStatus(), false);
  CHECK(text.find("lost: 5\n") != std::string::npos);
  CHECK(text.find("5 overwritten of sched, cpu 3, from 1.000 s to 2.000 s") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("BLOCKED") == std::string::npos);
}

TEST_CASE("The status shows a blocked and a silent writer, and since when") {
  control::Status status = ExampleStatus();
  status.mutable_writer()->set_state(WriterStatus::BLOCKED);
  status.mutable_writer()->set_error("No space left on device");
  CHECK(FormatStatus(status, false).find("BLOCKED: since ") != std::string::npos);
  status.mutable_writer()->set_silent_ns(9 * kSecond);
  status.mutable_writer()->set_stuck_in("frozen");
  CHECK(FormatStatus(status, false).find("BLOCKED: no answer for 9.0 s: frozen") !=
        std::string::npos);
}

TEST_CASE("A snapshot that covers less than was asked says so") {
  SnapshotInfo info;
  info.set_id("x");
  info.set_covered_note("the first 4 s are missing");
  CHECK(FormatSnapshot(info).find("but: the first 4 s are missing") != std::string::npos);
}

}  // namespace
}  // namespace aitrace
