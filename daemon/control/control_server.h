// The control socket: accepts clients, checks who they are, answers requests.
// A slow, dead or hostile client costs nobody else anything.
//
// Who: root and members of the control group (as primary or supplementary
//   group, by SO_PEERCRED and SO_PEERGROUPS) may read and dump; only root may
//   delete.
// Bound: kMaxClients connections (the oldest idle one gives way), kMaxRequestBytes a request,
//   kMaxQueuedReplies replies waiting for a client that does not read (then it
//   is dropped), kIdleTimeoutMs without a request.
// Threading: the main loop's thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/event_loop.h"
#include "lib/base/status.h"
#include "lib/base/unique_fd.h"
#include "proto/aitrace/control.pb.h"

namespace aitrace {

// Who asks.
struct Peer {
  int pid = 0;
  unsigned uid = 0;
  bool is_root() const { return uid == 0; }
};

// Answers one request: any number of progress replies, then one last reply.
// Keeps working, to no effect, when the client has gone.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual void Send(const control::Reply& reply) = 0;
  virtual void SendTrace(const control::Reply& reply, UniqueFd trace) = 0;
};

// What the server asks of the recorder. Calls return at once; the answer comes
// through `sink`, now or later.
class ControlBackend {
 public:
  virtual ~ControlBackend() = default;
  virtual void Handle(const control::Request& request, const Peer& peer,
                      std::shared_ptr<ReplySink> sink) = 0;
};

class ControlServer {
 public:
  struct Options {
    std::string socket_path;
    std::string group;
    UniqueFd activated;  // A listening socket from the service manager, if any.
  };
  struct Limits {
    size_t max_clients = 256;
    uint64_t idle_timeout_ms = 30'000;
  };

  // Binds and listens. The caller holds the daemon's lock, so a socket file
  // that nobody listens on is a dead daemon's and is replaced; anything there
  // that is not a socket is an error and stays. A group that does not exist
  // leaves the socket to root, and note() says so.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(EventLoop& loop,
                                                              ControlBackend& backend,
                                                              Options options, Limits limits);
  virtual ~ControlServer() = default;  // Removes a socket file that it made.
  virtual control::Status::Clients clients() const = 0;
  virtual std::string note() const = 0;
};

}  // namespace aitrace
