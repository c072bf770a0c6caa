// Compresses runs of whole TracePackets into one packet, as Perfetto reads it.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/base/status.h"
#include "proto/aitrace/config.pb.h"

namespace aitrace {

// Owns its codec's state and scratch memory, so that sealing a segment
// allocates nothing anew. Threading: one thread at a time.
class PacketCompressor {
 public:
  static absl::StatusOr<std::unique_ptr<PacketCompressor>> Create(Config::Compression codec);
  virtual ~PacketCompressor() = default;

  // Appends to `out` one TracePacket that holds `packets` compressed, or, for
  // NONE and where compression does not pay, `packets` as they are.
  virtual void Append(absl::string_view packets, std::string& out) = 0;
};

}  // namespace aitrace
