// The configuration: message aitrace.Config in protobuf text format, checked
// against the rules that config.proto states for each field.
//
// Bound: kMaxConfigBytes a file; at most kMaxErrors errors are told.
// Errors: InvalidArgument, one line each: "file:line:column: what is wrong,
//   what was expected". Nothing is taken from a file that has one.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/base/status.h"
#include "proto/aitrace/config.pb.h"

namespace aitrace {

inline constexpr size_t kMaxConfigBytes = 1024 * 1024;
inline constexpr size_t kMaxConfigErrors = 20;

struct LoadedConfig {
  Config config;       // Every field is set.
  std::string digest;  // Equal for equal configurations.
  std::string path;    // Where it came from.
  bool is_default_path = false;
};

// With `is_default_path` a file that does not exist means the built-in
// defaults; a file that was asked for must be there.
absl::StatusOr<LoadedConfig> LoadConfig(const std::string& path, bool is_default_path);

// `name` stands for the file in errors.
absl::StatusOr<LoadedConfig> ParseConfig(absl::string_view text, const std::string& name);

// In text format, every field said.
std::string PrintConfig(const Config& config);

// The fields, as "ring.size_mb", that differ and cannot change while running.
std::vector<std::string> RestartOnlyChanges(const Config& before, const Config& after);

}  // namespace aitrace
