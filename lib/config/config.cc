#include "lib/config/config.h"

#include <fcntl.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>
#include <sys/stat.h>
#include <zlib.h>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/file.h"
#include "lib/config/validate.h"

namespace aitrace {
namespace {

using google::protobuf::TextFormat;

constexpr int kMaxDepth = 16;

// Collects "file:line:column: message" lines.
class ErrorList final : public google::protobuf::io::ErrorCollector {
 public:
  explicit ErrorList(std::string name) : name_(std::move(name)) {}

  // protobuf counts from 0, people from 1; -1: nowhere in particular.
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (lines_.size() < kMaxConfigErrors) lines_.push_back(At(line, column) + message);
  }
  void AddWarning(int line, google::protobuf::io::ColumnNumber column,
                  const std::string& message) override {
    AddError(line, column, message);
  }

  absl::Status status() const {
    if (lines_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
  }

 private:
  std::string At(int line, int column) const {
    if (line < 0) return absl::StrCat(name_, ": ");
    return absl::StrCat(name_, ":", line + 1, ":", column + 1, ": ");
  }
  const std::string name_;
  std::vector<std::string> lines_;
};

// Encodings that an editor may have chosen, told by name.
absl::Status CheckEncoding(absl::string_view text, const std::string& name) {
  const char* found = nullptr;
  if (absl::StartsWith(text, "\xef\xbb\xbf")) found = "a UTF-8 byte order mark";
  if (absl::StartsWith(text, "\xff\xfe") || absl::StartsWith(text, "\xfe\xff")) found = "UTF-16";
  if (found == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s:1:1: the file starts with %s; save it as plain UTF-8 text", name, found));
}

std::string Digest(const Config& config) {
  std::string text = PrintConfig(config);
  auto crc = crc32_z(0, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  return absl::StrFormat("%08x", static_cast<uint32_t>(crc));
}

// The file's bytes, if it is one that can be a configuration: opening a FIFO
// must not hang, and /dev/zero has no end.
absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  if (S_ISDIR(info.st_mode)) return ErrnoStatus(EISDIR, absl::StrCat("read ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  absl::StatusOr<std::string> text = ReadAll(fd.get(), kMaxConfigBytes);
  if (absl::IsResourceExhausted(text.status())) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": too large for a configuration (at most ", kMaxConfigBytes, " bytes)"));
  }
  return text;
}

}  // namespace

absl::StatusOr<LoadedConfig> ParseConfig(absl::string_view text, const std::string& name) {
  RETURN_IF_ERROR(CheckEncoding(text, name));
  ErrorList errors(name);
  TextFormat::ParseInfoTree locations;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&locations);
  parser.SetRecursionLimit(kMaxDepth);
  LoadedConfig loaded{.path = name};
  parser.ParseFromString(std::string(text), &loaded.config);
  RETURN_IF_ERROR(errors.status());
  for (const Violation& violation : Validate(loaded.config, locations)) {
    errors.AddError(violation.line, violation.column, violation.message);
  }
  RETURN_IF_ERROR(errors.status());
  SetAllDefaults(loaded.config);
  loaded.digest = Digest(loaded.config);
  return loaded;
}

absl::StatusOr<LoadedConfig> LoadConfig(const std::string& path, bool is_default_path) {
  absl::StatusOr<std::string> text = ReadConfigFile(path);
  if (absl::IsNotFound(text.status()) && is_default_path) text = "";
  if (!text.ok()) return text.status();
  ASSIGN_OR_RETURN(LoadedConfig loaded, ParseConfig(*text, path));
  loaded.is_default_path = is_default_path;
  return loaded;
}

std::string PrintConfig(const Config& config) {
  Config complete = config;
  SetAllDefaults(complete);
  std::string text;
  TextFormat::PrintToString(complete, &text);
  return text;
}

}  // namespace aitrace
