#include "lib/control/frames.h"

#include <sys/socket.h>

#include <cstring>
#include <string>
#include <vector>

namespace aitrace {
namespace {

constexpr size_t kMaxDescriptors = 253;  // SCM_MAX_FD: what one message can carry.

// Takes ownership of all descriptors of a received message.
std::vector<UniqueFd> TakeDescriptors(msghdr& header) {
  std::vector<UniqueFd> taken;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      taken.emplace_back(fd);
    }
  }
  return taken;
}

absl::Status SendError() {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
    return absl::ResourceExhaustedError("the other end does not read");
  }
  return absl::UnavailableError(absl::StrCat("send: ", strerror(errno)));
}

}  // namespace

absl::Status SendFrame(int socket, const google::protobuf::MessageLite& message, int fd) {
  std::string bytes = message.SerializeAsString();
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* attached = CMSG_FIRSTHDR(&header);
    attached->cmsg_level = SOL_SOCKET;
    attached->cmsg_type = SCM_RIGHTS;
    attached->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(attached), &fd, sizeof(int));
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0 ? absl::OkStatus() : SendError();
}

absl::Status ReceiveFrame(int socket, size_t max_bytes, google::protobuf::MessageLite& message,
                          UniqueFd& fd) {
  std::string bytes(max_bytes, '\0');
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t got = -1;
  do {
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return absl::NotFoundError("nothing waits");
  }
  if (got < 0) return absl::UnavailableError(absl::StrCat("receive: ", strerror(errno)));
  std::vector<UniqueFd> descriptors = TakeDescriptors(header);
  if (!descriptors.empty()) fd = std::move(descriptors[0]);
  if (got == 0) return absl::UnavailableError("the connection was closed");
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return absl::DataLossError(absl::StrCat("a packet of more than ", max_bytes, " bytes"));
  }
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(got))) {
    return absl::DataLossError("not a message of this protocol");
  }
  return absl::OkStatus();
}

}  // namespace aitrace
