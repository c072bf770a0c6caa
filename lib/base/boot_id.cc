#include "lib/base/boot_id.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "lib/base/file.h"

namespace aitrace {

absl::StatusOr<std::string> ReadBootId() {
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  constexpr size_t kMaxBytes = 64;
  ASSIGN_OR_RETURN(std::string text, ReadFile(kPath, kMaxBytes));
  std::string digits = absl::StrReplaceAll(text, {{"-", ""}, {"\n", ""}});
  if (digits.size() != 2 * kBootIdBytes) {
    return absl::DataLossError(absl::StrCat(kPath, ": not a boot id"));
  }
  return absl::HexStringToBytes(digits);
}

}  // namespace aitrace
