#include "lib/base/hex.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace aitrace {

std::string HexFromBytes(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

std::string BytesFromHex(absl::string_view text) {
  std::string digits;
  for (char c : text) {
    if (absl::ascii_isxdigit(static_cast<unsigned char>(c))) digits += c;
  }
  if (digits.size() % 2 != 0) digits.pop_back();
  return absl::HexStringToBytes(digits);
}

}  // namespace aitrace
