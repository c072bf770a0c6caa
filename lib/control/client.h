// A client of the control socket: one request, its replies. Blocks.
#pragma once

#include <functional>
#include <string>

#include "lib/base/status.h"
#include "lib/base/unique_fd.h"
#include "proto/aitrace/control.pb.h"

namespace aitrace {

class ControlClient {
 public:
  // Unavailable when no daemon listens there, PermissionDenied when this user
  // may not; the message says what to do.
  static absl::StatusOr<ControlClient> Connect(const std::string& socket_path);

  // Sends `request` and hands each reply to `on_reply` until the last. A reply
  // that says error becomes this call's status; the daemon's silence for
  // `timeout_s` is DeadlineExceeded.
  absl::Status Call(const control::Request& request, unsigned timeout_s,
                    const std::function<void(const control::Reply&, UniqueFd)>& on_reply);

 private:
  explicit ControlClient(UniqueFd socket) : socket_(std::move(socket)) {}
  UniqueFd socket_;
};

}  // namespace aitrace
