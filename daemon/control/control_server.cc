#include "daemon/control/control_server.h"

#include <grp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <list>
#include <optional>

#include "lib/base/clock.h"
#include "lib/control/frames.h"

namespace aitrace {
namespace {

constexpr int kBacklog = 4096;
constexpr size_t kMaxQueuedReplies = 4096;
constexpr size_t kMaxRequestsInFlight = 64;
constexpr mode_t kDirectoryMode = 0755;
constexpr mode_t kGroupMode = 0660;
constexpr mode_t kRootMode = 0600;
constexpr uint64_t kSweepMs = 1000;

struct Queued {
  control::Reply reply;
  UniqueFd fd;
};

// One connection. Dropped at once when it breaks the protocol or does not read.
struct Client {
  UniqueFd socket;
  Peer peer;
  EventSource source;
  std::deque<Queued> queue;
  uint64_t active_ns = 0;  // MONOTONIC: of its last request or reply.
  size_t in_flight = 0;    // Requests without their last reply.
  bool is_gone = false;
};

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX};
  memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

UniqueFd NewSocket() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::optional<gid_t> FindGroup(const std::string& name) {
  const group* entry = getgrnam(name.c_str());
  if (entry == nullptr) return std::nullopt;
  return entry->gr_gid;
}

// The groups that the peer had when it connected, the primary one first.
std::vector<gid_t> GroupsOf(int socket, gid_t primary) {
  socklen_t bytes = 0;
  getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, nullptr, &bytes);  // Only says how many.
  std::vector<gid_t> groups(bytes / sizeof(gid_t));
  if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) groups.clear();
  groups.push_back(primary);
  return groups;
}

bool IsLast(const control::Reply& reply) {
  return reply.has_error() || reply.has_status() || reply.has_trace() || reply.has_done();
}

control::Reply ErrorReply(absl::StatusCode code, const std::string& message) {
  control::Reply reply;
  reply.mutable_error()->set_code(static_cast<int>(code));
  reply.mutable_error()->set_message(message);
  return reply;
}

class Server;

// Outlives server and client: whoever answers late answers into nothing.
class ClientSink final : public ReplySink {
 public:
  ClientSink(Server& server, std::weak_ptr<Server*> alive, std::weak_ptr<Client> client)
      : server_(server), alive_(std::move(alive)), client_(std::move(client)) {}
  void Send(const control::Reply& reply) override { SendTrace(reply, UniqueFd()); }
  void SendTrace(const control::Reply& reply, UniqueFd trace) override;

 private:
  Server& server_;
  std::weak_ptr<Server*> alive_;
  std::weak_ptr<Client> client_;
};

class Server final : public ControlServer {
 public:
  Server(EventLoop& loop, ControlBackend& backend, Options options, Limits limits)
      : loop_(loop), backend_(backend), options_(std::move(options)), limits_(limits) {}

  ~Server() override {
    if (is_bound_) unlink(options_.socket_path.c_str());
  }

  absl::Status Init() {
    group_ = FindGroup(options_.group);
    if (!group_.has_value()) {
      note_ = absl::StrCat("group ", options_.group,
                           " does not exist: only root may use the control socket (groupadd "
                           "--system ",
                           options_.group, ", and restart aitraced)");
    }
    if (options_.activated) {
      listener_ = std::move(options_.activated);
    } else {
      RETURN_IF_ERROR(Bind());
    }
    ASSIGN_OR_RETURN(accept_,
                     loop_.AddIo(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); }));
    ASSIGN_OR_RETURN(sweep_, loop_.AddPeriodic(kSweepMs, [this] { DropIdle(); }));
    return absl::OkStatus();
  }

  control::Status::Clients clients() const override {
    control::Status::Clients counts = counts_;
    counts.set_connected(static_cast<uint32_t>(clients_.size()));
    return counts;
  }
  std::string note() const override { return note_; }

  void Reply(const std::shared_ptr<Client>& client, Queued queued) {
    if (client->is_gone) return;
    client->active_ns = NowNs();
    if (IsLast(queued.reply) && client->in_flight > 0) --client->in_flight;
    if (client->queue.size() >= kMaxQueuedReplies) return Drop(client);
    client->queue.push_back(std::move(queued));
    Flush(client);
  }

 private:
  static uint64_t NowNs() { return SystemClock().BootNs(); }

  absl::Status Bind() {
    const std::string& path = options_.socket_path;
    std::string directory = std::filesystem::path(path).parent_path();
    std::error_code error;
    if (std::filesystem::create_directories(directory, error)) {
      chmod(directory.c_str(), kDirectoryMode);
    }
    if (error) return ErrnoStatus(error.value(), absl::StrCat("mkdir ", directory));
    RETURN_IF_ERROR(RemoveStale());
    listener_ = NewSocket();
    if (!listener_) return ErrnoStatus(errno, "socket");
    sockaddr_un address = AddressOf(path);
    mode_t before = umask(0777);  // Nobody connects before the mode is right.
    int bound = bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    int bind_error = errno;
    umask(before);
    if (bound != 0) return ErrnoStatus(bind_error, absl::StrCat("bind ", path));
    is_bound_ = true;
    RETURN_IF_ERROR(SetMode());
    if (listen(listener_.get(), kBacklog) != 0) return ErrnoStatus(errno, "listen");
    return absl::OkStatus();
  }

  absl::Status SetMode() {
    const char* path = options_.socket_path.c_str();
    if (group_.has_value() && chown(path, geteuid(), *group_) != 0) {
      return ErrnoStatus(errno, absl::StrCat("chown ", path));
    }
    if (chmod(path, group_.has_value() ? kGroupMode : kRootMode) != 0) {
      return ErrnoStatus(errno, absl::StrCat("chmod ", path));
    }
    return absl::OkStatus();
  }

  // A socket that nobody listens on is a dead daemon's. Anything else stays.
  absl::Status RemoveStale() {
    const std::string& path = options_.socket_path;
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
    if (!S_ISSOCK(info.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " exists and is not a socket (move it away, or set control.socket)"));
    }
    UniqueFd probe = NewSocket();
    sockaddr_un address = AddressOf(path);
    int connected = connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    if (connected == 0 || errno != ECONNREFUSED) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is in use by another process (stop it, or set control.socket)"));
    }
    if (unlink(path.c_str()) != 0) return ErrnoStatus(errno, absl::StrCat("remove ", path));
    return absl::OkStatus();
  }

  void Accept() {
    while (true) {
      UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        // Out of descriptors: the oldest idle client gives one back.
        if ((errno == EMFILE || errno == ENFILE) && DropOldestIdle()) continue;
        return;
      }
      Add(std::move(socket));
    }
  }

  void Add(UniqueFd socket) {
    ucred credentials{};
    socklen_t bytes = sizeof(credentials);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return;
    if (!IsAllowed(socket.get(), credentials)) return Refuse(socket.get());
    if (clients_.size() >= limits_.max_clients && !DropOldestIdle()) {
      counts_.set_refused(counts_.refused() + 1);
      return;
    }
    auto client = std::make_shared<Client>();
    client->socket = std::move(socket);
    client->peer = {.pid = credentials.pid, .uid = credentials.uid};
    client->active_ns = NowNs();
    std::weak_ptr<Client> weak = client;
    auto source = loop_.AddIo(client->socket.get(), EPOLLIN, [this, weak](uint32_t events) {
      if (auto strong = weak.lock()) HandleEvents(strong, events);
    });
    if (!source.ok()) return;
    client->source = *std::move(source);
    clients_.push_back(std::move(client));
  }

  bool IsAllowed(int socket, const ucred& credentials) const {
    if (credentials.uid == 0 || credentials.uid == geteuid()) return true;
    if (!group_.has_value()) return false;
    std::vector<gid_t> groups = GroupsOf(socket, credentials.gid);
    return std::find(groups.begin(), groups.end(), *group_) != groups.end();
  }

  void Refuse(int socket) {
    counts_.set_refused(counts_.refused() + 1);
    // Who cannot be told need not be.
    SendFrame(socket, ErrorReply(absl::StatusCode::kPermissionDenied,
                                 absl::StrCat("only root and members of group ", options_.group,
                                              " may talk to aitraced (usermod -aG ", options_.group,
                                              " USER, and log in again)")))
        .IgnoreError();
  }

  void HandleEvents(const std::shared_ptr<Client>& client, uint32_t events) {
    if ((events & EPOLLOUT) != 0) Flush(client);
    // Only what is read now: other clients have their turn, too.
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) ReceiveOne(client);
  }

  void ReceiveOne(const std::shared_ptr<Client>& client) {
    if (client->is_gone) return;
    control::Request request;
    UniqueFd unwanted;
    absl::Status status = ReceiveFrame(client->socket.get(), kMaxRequestBytes, request, unwanted);
    if (absl::IsNotFound(status)) return;
    if (absl::IsUnavailable(status)) return Remove(client);
    client->active_ns = NowNs();
    auto sink = std::make_shared<ClientSink>(*this, alive_, client);
    ++client->in_flight;
    if (!status.ok()) {
      sink->Send(ErrorReply(absl::StatusCode::kInvalidArgument, std::string(status.message())));
    } else if (client->in_flight > kMaxRequestsInFlight) {
      sink->Send(ErrorReply(absl::StatusCode::kResourceExhausted, "too many requests at once"));
    } else if (request.has_snapshots_remove() && !client->peer.is_root()) {
      sink->Send(ErrorReply(absl::StatusCode::kPermissionDenied, "only root may delete snapshots"));
    } else {
      counts_.set_served(counts_.served() + 1);
      backend_.Handle(request, client->peer, sink);
    }
  }

  void Flush(const std::shared_ptr<Client>& client) {
    while (!client->queue.empty() && !client->is_gone) {
      Queued& next = client->queue.front();
      absl::Status sent = SendFrame(client->socket.get(), next.reply, next.fd.get());
      if (absl::IsResourceExhausted(sent)) break;
      if (!sent.ok()) return Remove(client);
      client->queue.pop_front();
    }
    if (client->is_gone) return;
    uint32_t events = client->queue.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
    // A client that cannot be watched is swept when it has been idle.
    loop_.SetEvents(client->source, events).IgnoreError();
  }

  void Drop(const std::shared_ptr<Client>& client) {
    counts_.set_dropped(counts_.dropped() + 1);
    Remove(client);
  }

  // `client` is not the list's own reference, which this removes.
  void Remove(const std::shared_ptr<Client>& client) {
    client->is_gone = true;
    client->source = EventSource();
    client->socket.reset();
    client->queue.clear();
    clients_.remove(client);
  }

  // A client that waits for an answer is not idle, unless it does not read.
  bool IsIdle(const Client& client) const { return client.in_flight == 0 || !client.queue.empty(); }

  bool DropOldestIdle() {
    auto oldest = clients_.end();
    for (auto it = clients_.begin(); it != clients_.end(); ++it) {
      bool is_older = oldest == clients_.end() || (*it)->active_ns < (*oldest)->active_ns;
      if (IsIdle(**it) && is_older) oldest = it;
    }
    if (oldest == clients_.end()) return false;
    std::shared_ptr<Client> client = *oldest;
    Drop(client);
    return true;
  }

  void DropIdle() {
    uint64_t limit_ns = limits_.idle_timeout_ms * kNsPerMs;
    uint64_t now_ns = NowNs();
    std::vector<std::shared_ptr<Client>> idle;
    for (const auto& client : clients_) {
      if (IsIdle(*client) && now_ns - client->active_ns > limit_ns) idle.push_back(client);
    }
    for (const auto& client : idle) Drop(client);
  }

  EventLoop& loop_;
  ControlBackend& backend_;
  Options options_;
  const Limits limits_;
  std::shared_ptr<Server*> alive_ = std::make_shared<Server*>(this);
  UniqueFd listener_;
  bool is_bound_ = false;
  std::optional<gid_t> group_;
  std::string note_;
  EventSource accept_;
  EventSource sweep_;
  std::list<std::shared_ptr<Client>> clients_;
  control::Status::Clients counts_;
};

void ClientSink::SendTrace(const control::Reply& reply, UniqueFd trace) {
  auto client = client_.lock();
  if (alive_.expired() || client == nullptr) return;
  server_.Reply(client, {reply, std::move(trace)});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlServer>> ControlServer::Start(EventLoop& loop,
                                                                    ControlBackend& backend,
                                                                    Options options,
                                                                    Limits limits) {
  auto server = std::make_unique<Server>(loop, backend, std::move(options), limits);
  RETURN_IF_ERROR(server->Init());
  return server;
}

}  // namespace aitrace
