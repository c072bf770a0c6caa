// Frames of the control socket: SOCK_SEQPACKET, one protobuf message a packet,
// at most one descriptor beside it.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstdint>

#include "lib/base/status.h"
#include "lib/base/unique_fd.h"

namespace aitrace {

inline constexpr size_t kMaxRequestBytes = 64 * 1024;
inline constexpr size_t kMaxReplyBytes = 128 * 1024;

// Unavailable when the other end has gone, ResourceExhausted when the packet
// would have to wait and the socket does not block.
absl::Status SendFrame(int socket, const google::protobuf::MessageLite& message, int fd = -1);

// The next packet, at most `max_bytes` long. `fd` gets its first descriptor;
// further ones are closed. NotFound when none waits and the socket does not
// block, Unavailable when the other end has closed, DataLoss for a packet that
// is too long or not a message of this type.
absl::Status ReceiveFrame(int socket, size_t max_bytes, google::protobuf::MessageLite& message,
                          UniqueFd& fd);

}  // namespace aitrace
