#include "daemon/writer/writer_client.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/strip.h"
#include "lib/base/file.h"
#include "lib/control/frames.h"

namespace aitrace {
namespace {

constexpr int kWriterFd = 3;
constexpr uint64_t kTickMs = 1000;
constexpr uint64_t kJobTimeoutNs = 60 * kNsPerSecond;
constexpr uint64_t kFirstRestartMs = 100;
constexpr uint64_t kMaxRestartMs = 10'000;
// Silent for longer, the writer is said to be stuck.
constexpr uint64_t kSilentNs = 3 * kNsPerSecond;

class Client final : public WriterClient {
 public:
  Client(EventLoop& loop, const Clock& clock, Options options)
      : loop_(loop), clock_(clock), options_(std::move(options)) {}

  ~Client() override {
    if (pid_ > 0) kill(pid_, SIGKILL);
    // One that hangs in a file system goes when that lets it.
    if (pid_ > 0) waitpid(pid_, nullptr, WNOHANG);
  }

  absl::Status Init() {
    RETURN_IF_ERROR(Spawn());
    ASSIGN_OR_RETURN(tick_, loop_.AddPeriodic(kTickMs, [this] { Tick(); }));
    return absl::OkStatus();
  }

  void Configure(const Config& config, const std::string& config_digest) override {
    options_.config = config;
    options_.config_digest = config_digest;
    // A writer that does not read gets it with its restart.
    SendConfigure(-1).IgnoreError();
  }

  void Dump(WriterRequest::Dump dump, OnProgress on_progress, OnOpened on_opened) override {
    WriterRequest request;
    *request.mutable_dump() = std::move(dump);
    Submit(std::move(request), {.on_progress = std::move(on_progress), .on_opened = on_opened});
  }
  void List(OnSnapshots on_snapshots) override {
    WriterRequest request;
    request.mutable_list();
    Submit(std::move(request), {.on_snapshots = std::move(on_snapshots)});
  }
  void Show(const std::string& id, OnSnapshots on_snapshot) override {
    WriterRequest request;
    request.mutable_show()->set_id(id);
    Submit(std::move(request), {.on_snapshots = std::move(on_snapshot)});
  }
  void Remove(const std::string& id, OnDone on_done) override {
    WriterRequest request;
    request.mutable_remove()->set_id(id);
    Submit(std::move(request), {.on_done = std::move(on_done)});
  }
  void Open(const std::string& id, OnOpened on_opened) override {
    WriterRequest request;
    request.mutable_open()->set_id(id);
    Submit(std::move(request), {.on_opened = std::move(on_opened)});
  }

  WriterStatus status() const override {
    WriterStatus status = status_;
    status.set_pid(pid_);
    status.set_restarts(restarts_);
    uint64_t silent_ns = clock_.BootNs() - heard_ns_;
    status.set_silent_ns(silent_ns);
    if (silent_ns > kSilentNs) status.set_stuck_in(WhereStuck());
    return status;
  }

  void Finish(uint64_t timeout_ms, OnDone on_done) override {
    is_finishing_ = true;
    finished_ = std::move(on_done);
    WriterRequest request;
    request.mutable_finish();
    request.set_job(next_job_++);
    if (pid_ <= 0) return Finished(absl::OkStatus());
    if (!SendFrame(channel_.get(), request).ok()) return GiveUp();
    auto timer = loop_.AddDelayed(timeout_ms, [this] { GiveUp(); });
    if (timer.ok()) finish_timer_ = *std::move(timer);
  }

 private:
  struct Job {
    OnProgress on_progress;
    OnOpened on_opened;
    OnSnapshots on_snapshots;
    OnDone on_done;
    std::vector<SnapshotInfo> snapshots;
    uint64_t heard_ns = 0;
  };

  absl::Status Spawn() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
      return ErrnoStatus(errno, "socketpair");
    }
    channel_.reset(ends[0]);
    UniqueFd writers_end(ends[1]);
    RETURN_IF_ERROR(Exec(writers_end.get()));
    heard_ns_ = clock_.BootNs();
    ASSIGN_OR_RETURN(replies_,
                     loop_.AddIo(channel_.get(), EPOLLIN, [this](uint32_t) { Receive(); }));
    ASSIGN_OR_RETURN(UniqueFd ring, options_.open_ring());
    return SendConfigure(ring.get());
  }

  absl::Status Exec(int socket) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // The same number on both sides still loses its close-on-exec flag.
    posix_spawn_file_actions_adddup2(&actions, socket, kWriterFd);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    std::string name = "aitraced";
    std::string argument = kWriterArgument;
    char* arguments[] = {name.data(), argument.data(), nullptr};
    int error = posix_spawn(&pid_, "/proc/self/exe", &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error == 0) return absl::OkStatus();
    pid_ = -1;
    return ErrnoStatus(error, "start the writer process");
  }

  absl::Status SendConfigure(int ring) {
    WriterRequest request;
    *request.mutable_configure()->mutable_config() = options_.config;
    request.mutable_configure()->set_config_digest(options_.config_digest);
    return SendFrame(channel_.get(), request, ring);
  }

  void Submit(WriterRequest request, Job job) {
    if (jobs_.size() >= kMaxJobs) {
      return Fail(job, absl::ResourceExhaustedError(
                           absl::StrCat(kMaxJobs, " requests wait for the writer already")));
    }
    request.set_job(next_job_);
    if (absl::Status sent = SendFrame(channel_.get(), request); !sent.ok()) {
      return Fail(job, absl::UnavailableError(
                           absl::StrCat("the writer does not answer (", WhereStuck(), ")")));
    }
    job.heard_ns = clock_.BootNs();
    jobs_.emplace(next_job_++, std::move(job));
  }

  static void Fail(Job& job, const absl::Status& status) {
    if (job.on_opened) job.on_opened(status);
    if (job.on_snapshots) job.on_snapshots(status);
    if (job.on_done) job.on_done(status);
  }

  void Receive() {
    while (true) {
      WriterReply reply;
      UniqueFd fd;
      absl::Status status = ReceiveFrame(channel_.get(), kMaxReplyBytes, reply, fd);
      if (absl::IsNotFound(status)) return;
      if (!status.ok()) return HandleExit();
      heard_ns_ = clock_.BootNs();
      if (reply.has_status()) {
        status_ = reply.status();
      } else {
        HandleReply(reply, std::move(fd));
      }
    }
  }

  void HandleReply(WriterReply& reply, UniqueFd fd) {
    auto found = jobs_.find(reply.job());
    if (found == jobs_.end()) return;  // Timed out before.
    Job& job = found->second;
    job.heard_ns = heard_ns_;
    if (reply.has_progress()) {
      if (job.on_progress) {
        job.on_progress(reply.progress().done_bytes(), reply.progress().total_bytes());
      }
      return;
    }
    if (reply.has_snapshots()) {
      for (SnapshotInfo& info : *reply.mutable_snapshots()->mutable_snapshot()) {
        job.snapshots.push_back(std::move(info));
      }
      return;
    }
    Job last = std::move(job);
    jobs_.erase(found);
    Complete(last, reply, std::move(fd));
  }

  static void Complete(Job& job, WriterReply& reply, UniqueFd fd) {
    if (reply.has_error()) {
      auto code = static_cast<absl::StatusCode>(reply.error().code());
      return Fail(job, absl::Status(code, reply.error().message()));
    }
    if (job.on_snapshots) return job.on_snapshots(std::move(job.snapshots));
    if (job.on_done) return job.on_done(absl::OkStatus());
    if (job.on_opened) {
      job.on_opened(OpenedSnapshot{
          .info = reply.opened().info(), .path = reply.opened().path(), .trace = std::move(fd)});
    }
  }

  void FailAll(const absl::Status& status) {
    auto jobs = std::exchange(jobs_, {});
    for (auto& [id, job] : jobs) Fail(job, status);
  }

  void HandleExit() {
    replies_ = EventSource();
    // It closed its end, so it is exiting: reaped here, or by the next tick.
    waitpid(pid_, nullptr, WNOHANG);
    pid_ = -1;
    FailAll(absl::UnavailableError("the writer process ended; it is being restarted"));
    if (is_finishing_) return Finished(absl::OkStatus());
    ++restarts_;
    uint64_t delay_ms = std::min(kFirstRestartMs << std::min(restarts_, 7u), kMaxRestartMs);
    auto timer = loop_.AddDelayed(delay_ms, [this] {
      if (!Spawn().ok()) HandleExit();
    });
    if (timer.ok()) restart_timer_ = *std::move(timer);
  }

  void Tick() {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
      // Writers of before; the present one shows by its socket.
    }
    uint64_t now_ns = clock_.BootNs();
    std::vector<uint64_t> late;
    for (const auto& [id, job] : jobs_) {
      if (now_ns - job.heard_ns > kJobTimeoutNs) late.push_back(id);
    }
    for (uint64_t id : late) {
      auto job = jobs_.extract(id);
      Fail(job.mapped(), absl::DeadlineExceededError(
                             absl::StrCat("the writer does not answer (", WhereStuck(), ")")));
    }
  }

  // From outside: the writer itself cannot say.
  std::string WhereStuck() const {
    constexpr size_t kMaxBytes = 4096;
    if (pid_ <= 0) return "it is not running";
    absl::StatusOr<std::string> where = ReadFile(absl::StrCat("/proc/", pid_, "/wchan"), kMaxBytes);
    std::string function = where.ok() && *where != "0" ? *where : "unknown";
    return absl::StrCat("its process ", pid_, " waits in the kernel in ", function,
                        ": is the file system of ", options_.config.rotation().directory(), " or ",
                        options_.config.snapshots().directory(), " frozen or unreachable?");
  }

  void GiveUp() {
    kill(pid_, SIGKILL);
    Finished(absl::DeadlineExceededError(absl::StrCat("left behind: ", WhereStuck())));
  }

  void Finished(const absl::Status& status) {
    finish_timer_ = EventSource();
    if (auto done = std::exchange(finished_, nullptr); done != nullptr) done(status);
  }

  EventLoop& loop_;
  const Clock& clock_;
  Options options_;
  UniqueFd channel_;
  EventSource replies_;
  EventSource tick_;
  EventSource restart_timer_;
  EventSource finish_timer_;
  pid_t pid_ = -1;
  uint32_t restarts_ = 0;
  uint64_t heard_ns_ = 0;
  WriterStatus status_;
  std::map<uint64_t, Job> jobs_;
  uint64_t next_job_ = 1;
  bool is_finishing_ = false;
  OnDone finished_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WriterClient>> WriterClient::Start(EventLoop& loop,
                                                                  const Clock& clock,
                                                                  Options options) {
  auto client = std::make_unique<Client>(loop, clock, std::move(options));
  RETURN_IF_ERROR(client->Init());
  return client;
}

}  // namespace aitrace
