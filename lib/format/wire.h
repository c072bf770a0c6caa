// Protobuf's wire format, byte by byte: what the hot path and the segment
// walker need of it. Everything else uses the generated messages.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace aitrace::wire {

inline constexpr uint32_t kVarint = 0;
inline constexpr uint32_t kLengthDelimited = 2;
inline constexpr size_t kMaxVarintBytes = 10;

constexpr uint32_t Tag(uint32_t field, uint32_t type) { return field << 3 | type; }

// Writes `value` to `out`, which has room for kMaxVarintBytes; returns its end.
inline uint8_t* WriteVarint(uint64_t value, uint8_t* out) {
  while (value >= 0x80) {
    *out++ = static_cast<uint8_t>(value) | 0x80;
    value >>= 7;
  }
  *out++ = static_cast<uint8_t>(value);
  return out;
}

inline void AppendVarint(uint64_t value, std::string& out) {
  uint8_t buffer[kMaxVarintBytes];
  uint8_t* end = WriteVarint(value, buffer);
  out.append(reinterpret_cast<char*>(buffer), static_cast<size_t>(end - buffer));
}

inline void AppendLengthDelimited(uint32_t field, absl::string_view bytes, std::string& out) {
  AppendVarint(Tag(field, kLengthDelimited), out);
  AppendVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

struct VarintResult {
  uint64_t value = 0;
  size_t size = 0;  // 0: cut short, or longer than any varint.
};

inline VarintResult ParseVarint(absl::string_view bytes) {
  VarintResult result;
  for (size_t i = 0; i < bytes.size() && i < kMaxVarintBytes; ++i) {
    uint64_t byte = static_cast<uint8_t>(bytes[i]);
    result.value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      result.size = i + 1;
      return result;
    }
  }
  return {};
}

}  // namespace aitrace::wire
