#include "daemon/control/control_server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <thread>

#include "lib/base/clock.h"
#include "lib/control/client.h"
#include "lib/control/frames.h"
#include "tests/unit/catch.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

// Answers status at once, a dump with a descriptor, and never a list.
class FakeBackend final : public ControlBackend {
 public:
  void Handle(const control::Request& request, const Peer&,
              std::shared_ptr<ReplySink> sink) override {
    if (request.has_snapshots_list()) {
      waiting.push_back(std::move(sink));
      return;
    }
    control::Reply reply;
    if (request.has_dump()) {
      reply.mutable_trace()->set_path("/trace");
      return sink->SendTrace(reply, UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
    }
    reply.mutable_status()->set_version("test");
    sink->Send(reply);
  }
  std::vector<std::shared_ptr<ReplySink>> waiting;
};

// A server on a thread of its own.
class ServerThread {
 public:
  explicit ServerThread(const std::string& path, ControlServer::Limits limits = {}) {
    loop_ = *EventLoop::Create();
    stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    source_ = *loop_->AddIo(stop_.get(), EPOLLIN, [this](uint32_t) { loop_->Exit(0); });
    auto server =
        ControlServer::Start(*loop_, backend_, {.socket_path = path, .group = "root"}, limits);
    status = server.status();
    if (server.ok()) server_ = *std::move(server);
    thread_ = std::thread([this] { loop_->Run().IgnoreError(); });
  }
  ~ServerThread() {
    uint64_t one = 1;
    CHECK(write(stop_.get(), &one, sizeof(one)) == sizeof(one));
    thread_.join();
  }
  absl::Status status;

 private:
  std::unique_ptr<EventLoop> loop_;
  UniqueFd stop_;
  EventSource source_;
  FakeBackend backend_;
  std::unique_ptr<ControlServer> server_;
  std::thread thread_;
};

UniqueFd Connect(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
  REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return socket;
}

control::Request StatusRequest() {
  control::Request request;
  request.mutable_status();
  return request;
}

absl::Status AskStatus(const std::string& path, std::string* version = nullptr) {
  auto client = ControlClient::Connect(path);
  if (!client.ok()) return client.status();
  return client->Call(StatusRequest(), 5, [&](const control::Reply& reply, UniqueFd) {
    if (version != nullptr) *version = reply.status().version();
  });
}

size_t OpenDescriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST_CASE("A request gets its reply, and a trace its descriptor") {
  TempDir dir;
  ServerThread server(dir.File("s"));
  REQUIRE(server.status.ok());
  std::string version;
  REQUIRE(AskStatus(dir.File("s"), &version).ok());
  CHECK(version == "test");
  control::Request dump;
  dump.mutable_dump();
  UniqueFd trace;
  auto client = ControlClient::Connect(dir.File("s"));
  REQUIRE(client.ok());
  REQUIRE(client->Call(dump, 5, [&](const control::Reply&, UniqueFd fd) { trace = std::move(fd); })
              .ok());
  CHECK(static_cast<bool>(trace));
}

TEST_CASE("Garbage gets an error, and the next client its answer") {
  TempDir dir;
  ServerThread server(dir.File("s"));
  for (size_t size : {1u, 100u, 65536u, 100'000u}) {
    UniqueFd socket = Connect(dir.File("s"));
    std::string garbage(size, '\xff');
    REQUIRE(send(socket.get(), garbage.data(), garbage.size(), 0) == static_cast<ssize_t>(size));
    control::Reply reply;
    UniqueFd fd;
    REQUIRE(ReceiveFrame(socket.get(), kMaxReplyBytes, reply, fd).ok());
    CHECK(reply.has_error());
    CHECK(AskStatus(dir.File("s")).ok());
  }
}

TEST_CASE("Silent clients give way to new ones when there are too many") {
  TempDir dir;
  ServerThread server(dir.File("s"), {.max_clients = 8});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(Connect(dir.File("s")));
  CHECK(AskStatus(dir.File("s")).ok());
}

TEST_CASE("A client that waits for an answer is not pushed out by newcomers") {
  TempDir dir;
  ServerThread server(dir.File("s"), {.max_clients = 4});
  UniqueFd waiting = Connect(dir.File("s"));
  control::Request list;
  list.mutable_snapshots_list();
  REQUIRE(SendFrame(waiting.get(), list).ok());
  for (int i = 0; i < 20; ++i) CHECK(AskStatus(dir.File("s")).ok());
  char byte = 0;
  CHECK(recv(waiting.get(), &byte, 1, MSG_DONTWAIT) < 0);
  CHECK(errno == EAGAIN);
}

TEST_CASE("A client that never reads holds up nobody") {
  TempDir dir;
  ServerThread server(dir.File("s"));
  UniqueFd deaf = Connect(dir.File("s"));
  fcntl(deaf.get(), F_SETFL, O_NONBLOCK);
  for (int i = 0; i < 5000; ++i) SendFrame(deaf.get(), StatusRequest()).IgnoreError();
  CHECK(AskStatus(dir.File("s")).ok());
}

TEST_CASE("Descriptors that nobody asked for are closed, and clients that go leave nothing") {
  TempDir dir;
  ServerThread server(dir.File("s"));
  REQUIRE(AskStatus(dir.File("s")).ok());
  size_t before = OpenDescriptors();
  for (int i = 0; i < 50; ++i) {
    UniqueFd socket = Connect(dir.File("s"));
    REQUIRE(SendFrame(socket.get(), StatusRequest(), STDIN_FILENO).ok());
    if (i % 2 == 0) continue;  // Goes before the answer.
    control::Reply reply;
    UniqueFd fd;
    REQUIRE(ReceiveFrame(socket.get(), kMaxReplyBytes, reply, fd).ok());
  }
  for (int i = 0; i < 20; ++i) REQUIRE(AskStatus(dir.File("s")).ok());
  CHECK(OpenDescriptors() <= before + 2);
}

TEST_CASE("The socket is the group's, and gone when its server is") {
  TempDir dir;
  {
    ServerThread server(dir.File("run/s"));
    struct stat info {};
    REQUIRE(stat(dir.File("run/s").c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0660);
  }
}

TEST_CASE("A dead server's socket is replaced, a live one's and a file are not") {
  TempDir dir;
  {
    UniqueFd dead(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address{.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", dir.File("s").c_str());
    REQUIRE(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ServerThread first(dir.File("s"));
  REQUIRE(first.status.ok());
  ServerThread second(dir.File("s"));
  CHECK(absl::IsFailedPrecondition(second.status));
  CHECK(AskStatus(dir.File("s")).ok());
  WriteText(dir.File("file"), "precious");
  ServerThread third(dir.File("file"));
  CHECK(absl::IsFailedPrecondition(third.status));
  CHECK(ReadText(dir.File("file")) == "precious");
}

TEST_CASE("Where nobody listens the client says so") {
  TempDir dir;
  auto client = ControlClient::Connect(dir.File("none"));
  REQUIRE(absl::IsUnavailable(client.status()));
  CHECK(client.status().message().find(dir.File("none")) != absl::string_view::npos);
}

}  // namespace
}  // namespace aitrace
