// Bytes as hexadecimal text.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace aitrace {

std::string HexFromBytes(absl::string_view bytes);

// Of the hexadecimal digits in `text`; all else (a UUID's dashes) is skipped.
std::string BytesFromHex(absl::string_view text);

}  // namespace aitrace
