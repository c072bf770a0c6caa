#include "lib/config/config.h"

#include <sys/stat.h>

#include "tests/unit/catch.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

std::string ErrorOf(const std::string& text) {
  auto parsed = ParseConfig(text, "f.pbtxt");
  REQUIRE_FALSE(parsed.ok());
  CHECK(absl::IsInvalidArgument(parsed.status()));
  return std::string(parsed.status().message());
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("An empty configuration is the defaults, every field said") {
  auto parsed = ParseConfig("", "f");
  REQUIRE(parsed.ok());
  CHECK(parsed->config.ring().has_size_mb());
  CHECK(parsed->config.ring().size_mb() == 256);
  CHECK(parsed->config.compression() == Config::DEFLATE);
}

TEST_CASE("The shipped file says exactly the defaults") {
  auto shipped = LoadConfig(std::string(AITRACE_SOURCE_DIR) + "/packaging/aitraced.pbtxt", false);
  REQUIRE(shipped.ok());
  CHECK(PrintConfig(shipped->config) == PrintConfig(ParseConfig("", "f")->config));
  CHECK(shipped->digest == ParseConfig("", "f")->digest);
}

TEST_CASE("What is printed parses back to the same") {
  auto parsed = ParseConfig("ring { size_mb: 64 } privacy { cmdline: ARGV0 }", "f");
  REQUIRE(parsed.ok());
  auto again = ParseConfig(PrintConfig(parsed->config), "g");
  REQUIRE(again.ok());
  CHECK(again->digest == parsed->digest);
  CHECK(again->digest != ParseConfig("", "f")->digest);
}

TEST_CASE("Errors name file, line, column and field") {
  CHECK(Has(ErrorOf("ring {\n  size_mb: 64\n  sizemb: 64\n}"), "f.pbtxt:3:"));
  CHECK(Has(ErrorOf("ring {\n  size_mb: 64\n  sizemb: 64\n}"), "sizemb"));
  CHECK(Has(ErrorOf("ring { size_mb: 1 }"), "f.pbtxt:1:8: size_mb: 1 is out of range: 4 to"));
  CHECK(Has(ErrorOf("rotation {\n period_s: 0 }"), "f.pbtxt:2:2: period_s"));
  CHECK(Has(ErrorOf("probes { sched_slots: 1000 }"), "try 512 or 1024"));
}

TEST_CASE("All errors are told, up to a bound") {
  std::string error = ErrorOf("ring { size_mb: 1 } rotation { period_s: 0 }");
  CHECK(Has(error, "size_mb"));
  CHECK(Has(error, "period_s"));
}

TEST_CASE("Zero means no limit where the field says so") {
  CHECK(
      ParseConfig("rotation { keep_files: 0 keep_mb: 0 keep_hours: 0 min_free_mb: 0 }", "f").ok());
}

TEST_CASE("Numbers that are none are refused where they stand") {
  for (const char* value :
       {"-1", "1.5", "\"64\"", "lots", "nan", "64M", "18446744073709551616", ""}) {
    CHECK(Has(ErrorOf(std::string("ring {\nsize_mb: ") + value + "\n}"), "f.pbtxt:"));
  }
}

TEST_CASE("Paths and names that could do harm are refused") {
  for (const char* value :
       {"\"relative\"", "\"/a/../b\"", "\"/a\\nb\"", "\"/a\\000b\"", "\"\"", "\"/\\377\\376\""}) {
    CHECK(Has(ErrorOf(std::string("ring { path: ") + value + " }"), "path"));
  }
  CHECK(Has(ErrorOf("control { socket: \"/" + std::string(120, 'x') + "\" }"), "longer than"));
  CHECK(Has(ErrorOf("control { group: \"a b\" }"), "group"));
  CHECK(Has(ErrorOf("control { group: \"-rf\" }"), "group"));
}

TEST_CASE("A field said twice is refused") {
  CHECK(Has(ErrorOf("ring { size_mb: 64 size_mb: 65 }"), "multiple times"));
}

TEST_CASE("Other encodings are named") {
  CHECK(Has(ErrorOf("\xef\xbb\xbfring { }"), "byte order mark"));
  CHECK(Has(ErrorOf(std::string("\xff\xfer\0i\0", 6)), "UTF-16"));
}

TEST_CASE("Hostile texts end in an error, never in a crash or a hang") {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "ring { ";
  ErrorOf(deep);
  ErrorOf("x {");
  ErrorOf("}");
  ErrorOf("{\"a\":1}");
  ErrorOf(std::string(1000, '\0'));
  std::string binary;
  for (int i = 0; i < 256; ++i) binary += static_cast<char>(i);
  ErrorOf(binary);
}

TEST_CASE("Files that are no configuration are refused without hanging") {
  TempDir dir;
  CHECK(absl::IsNotFound(LoadConfig(dir.File("none"), false).status()));
  CHECK(LoadConfig(dir.File("none"), true).ok());  // The default path: built-in defaults.
  CHECK_FALSE(LoadConfig(dir.path(), false).ok());
  REQUIRE(mkfifo(dir.File("fifo").c_str(), 0600) == 0);
  CHECK_FALSE(LoadConfig(dir.File("fifo"), false).ok());
  CHECK_FALSE(LoadConfig("/dev/zero", false).ok());
  std::filesystem::create_symlink("loop", dir.File("loop"));
  CHECK_FALSE(LoadConfig(dir.File("loop"), false).ok());
  WriteText(dir.File("big"), "# " + std::string(kMaxConfigBytes, 'x'));
  auto big = LoadConfig(dir.File("big"), false);
  REQUIRE_FALSE(big.ok());
  CHECK(Has(std::string(big.status().message()), "too large"));
}

TEST_CASE("Changes that need a restart are found, others are not") {
  Config before = ParseConfig("", "f")->config;
  Config after = ParseConfig("ring { size_mb: 64 } rotation { period_s: 5 }", "f")->config;
  CHECK(RestartOnlyChanges(before, after) == std::vector<std::string>{"ring.size_mb"});
  CHECK(RestartOnlyChanges(before, before).empty());
}

}  // namespace
}  // namespace aitrace
