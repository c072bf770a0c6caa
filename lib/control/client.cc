#include "lib/control/client.h"

#include <grp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "lib/control/frames.h"

namespace aitrace {
namespace {

std::string GroupOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return "";
  const group* entry = getgrgid(info.st_gid);
  return entry != nullptr ? entry->gr_name : std::to_string(info.st_gid);
}

absl::Status ConnectError(int error, const std::string& path) {
  if (error == EACCES || error == EPERM) {
    std::string group = GroupOf(path);
    return absl::PermissionDeniedError(
        absl::StrCat(path, ": this user may not talk to aitraced (run as root, or join the group",
                     group.empty() ? "" : absl::StrCat(" ", group), ": usermod -aG ",
                     group.empty() ? "aitrace" : group, " USER, and log in again)"));
  }
  return absl::UnavailableError(absl::StrCat("no aitraced answers at ", path, ": ", strerror(error),
                                             " (systemctl status aitraced; --socket PATH names "
                                             "another)"));
}

bool IsLast(const control::Reply& reply) {
  return reply.has_error() || reply.has_status() || reply.has_trace() || reply.has_done();
}

}  // namespace

absl::StatusOr<ControlClient> ControlClient::Connect(const std::string& socket_path) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (socket_path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(socket_path, ": too long for a socket"));
  }
  memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return ErrnoStatus(errno, "socket");
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  if (connect(socket.get(), where, sizeof(address)) != 0) return ConnectError(errno, socket_path);
  return ControlClient(std::move(socket));
}

absl::Status ControlClient::Call(
    const control::Request& request, unsigned timeout_s,
    const std::function<void(const control::Reply&, UniqueFd)>& on_reply) {
  RETURN_IF_ERROR(SendFrame(socket_.get(), request));
  while (true) {
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    int ready = poll(&waiting, 1, static_cast<int>(timeout_s * 1000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("aitraced has not answered for ", timeout_s, " s"));
    }
    control::Reply reply;
    UniqueFd fd;
    RETURN_IF_ERROR(ReceiveFrame(socket_.get(), kMaxReplyBytes, reply, fd));
    if (reply.has_error()) {
      auto code = static_cast<absl::StatusCode>(reply.error().code());
      return absl::Status(code, reply.error().message());
    }
    on_reply(reply, std::move(fd));
    if (IsLast(reply)) return absl::OkStatus();
  }
}

}  // namespace aitrace
