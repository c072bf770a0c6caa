// The writer process: everything of the recorder that touches a disk.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <optional>

#include "daemon/writer/dump_job.h"
#include "daemon/writer/file_rotator.h"
#include "daemon/writer/writer_client.h"
#include "lib/base/boot_id.h"
#include "lib/control/frames.h"
#include "lib/store/snapshot_store.h"

namespace aitrace {
namespace {

constexpr uint64_t kPollMs = 500;
constexpr uint64_t kStatusMs = 1000;
constexpr int kNice = 5;

// The recording's own writing is not to be the noise that it records.
void LowerPriority() {
  setpriority(PRIO_PROCESS, 0, kNice);
  // From the kernel's ioprio.h, which C++ cannot include.
  constexpr int kWhoProcess = 1;
  constexpr int kBestEffortLowest = 2 << 13 | 7;
  syscall(SYS_ioprio_set, kWhoProcess, 0, kBestEffortLowest);
}

std::string HostName() {
  utsname names{};
  uname(&names);  // Cannot fail with a valid buffer.
  return names.nodename;
}

WriterReply ReplyTo(uint64_t job) {
  WriterReply reply;
  reply.set_job(job);
  return reply;
}

class Writer {
 public:
  explicit Writer(UniqueFd channel) : channel_(std::move(channel)) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(loop_, EventLoop::Create());
    ASSIGN_OR_RETURN(boot_id_, ReadBootId());
    ASSIGN_OR_RETURN(EventSource requests,
                     loop_->AddIo(channel_.get(), EPOLLIN, [this](uint32_t) { Receive(); }));
    ASSIGN_OR_RETURN(EventSource poll, loop_->AddPeriodic(kPollMs, [this] { Poll(); }));
    ASSIGN_OR_RETURN(EventSource status, loop_->AddPeriodic(kStatusMs, [this] { SendStatus(); }));
    return loop_->Run().status();
  }

 private:
  void Receive() {
    while (true) {
      WriterRequest request;
      UniqueFd fd;
      absl::Status status = ReceiveFrame(channel_.get(), kMaxReplyBytes, request, fd);
      if (absl::IsNotFound(status)) return;
      // The recorder is gone; so is the reason to be here.
      if (!status.ok()) return loop_->Exit(1);
      Handle(request, std::move(fd));
    }
  }

  void Handle(const WriterRequest& request, UniqueFd fd) {
    absl::Status status = Dispatch(request, std::move(fd));
    if (status.ok()) return;
    WriterReply reply = ReplyTo(request.job());
    reply.mutable_error()->set_code(static_cast<int>(status.code()));
    reply.mutable_error()->set_message(std::string(status.message()));
    Send(reply);
  }

  absl::Status Dispatch(const WriterRequest& request, UniqueFd fd) {
    if (request.has_configure()) return Configure(request.configure(), std::move(fd));
    if (!rotator_.has_value()) return absl::FailedPreconditionError("not configured");
    switch (request.request_case()) {
      case WriterRequest::kDump:
        return RunDumpJob(request.job(), request.dump());
      case WriterRequest::kList:
        return List(request.job());
      case WriterRequest::kShow:
        return Show(request.job(), request.show().id());
      case WriterRequest::kOpen:
        return Open(request.job(), request.open().id());
      case WriterRequest::kRemove:
        RETURN_IF_ERROR(snapshots_->Remove(request.remove().id()));
        EnforceSnapshots();
        return SendDone(request.job());
      case WriterRequest::kFinish:
        return Finish(request.job());
      default:
        return absl::UnimplementedError("unknown request");
    }
  }

  // The first one brings the ring.
  absl::Status Configure(const WriterRequest::Configure& request, UniqueFd ring) {
    config_ = request.config();
    config_digest_ = request.config_digest();
    if (ring) {
      ASSIGN_OR_RETURN(ring_, SegmentRingReader::Map(std::move(ring)));
      rotator_.emplace(clock_, *ring_, HostName(), boot_id_);
    }
    if (!rotator_.has_value()) return absl::FailedPreconditionError("no ring");
    rotator_->Configure(config_.rotation());
    snapshots_.emplace(config_.snapshots().directory());
    snapshots_ready_ = false;
    return absl::OkStatus();
  }

  void Poll() {
    if (!rotator_.has_value()) return;
    rotator_->Poll();
    if (snapshots_ready_) return;
    // Tried again with the next poll; a dump says what is wrong.
    snapshots_ready_ = snapshots_->Init().ok();
    if (snapshots_ready_) EnforceSnapshots();
  }

  void EnforceSnapshots() {
    auto usage = snapshots_->Enforce({.max_count = config_.snapshots().keep_count(),
                                      .max_bytes = config_.snapshots().keep_mb() << 20});
    if (!usage.ok()) return;  // Tried again after the next dump.
    snapshots_usage_ = *usage;
    SendStatus();
  }

  absl::Status RunDumpJob(uint64_t job, const WriterRequest::Dump& request) {
    if (!snapshots_ready_) RETURN_IF_ERROR(snapshots_->Init());
    snapshots_ready_ = true;
    DumpContext context{.clock = clock_,
                        .ring = *ring_,
                        .snapshots = *snapshots_,
                        .trace_directory = config_.rotation().directory(),
                        .partial_path = rotator_->partial_path(),
                        .boot_id = boot_id_,
                        .config_digest = config_digest_};
    context.on_progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
      WriterReply reply = ReplyTo(job);
      reply.mutable_progress()->set_done_bytes(done_bytes);
      reply.mutable_progress()->set_total_bytes(total_bytes);
      Send(reply);
    };
    ASSIGN_OR_RETURN(FinishedDump dump, RunDump(request, context));
    RETURN_IF_ERROR(SendTrace(job, dump.info));
    // Afterwards: whoever asked has it already.
    dump.snapshot.Sync().IgnoreError();
    EnforceSnapshots();
    return absl::OkStatus();
  }

  absl::Status SendTrace(uint64_t job, const SnapshotInfo& info) {
    ASSIGN_OR_RETURN(UniqueFd trace, snapshots_->OpenTrace(info.id()));
    WriterReply reply = ReplyTo(job);
    *reply.mutable_opened()->mutable_info() = info;
    reply.mutable_opened()->set_path(snapshots_->TracePath(info.id()));
    Send(reply, trace.get());
    return absl::OkStatus();
  }

  // One a message: each fits, however many there are.
  absl::Status SendSnapshots(uint64_t job, std::vector<SnapshotInfo> snapshots) {
    for (SnapshotInfo& info : snapshots) {
      WriterReply reply = ReplyTo(job);
      *reply.mutable_snapshots()->add_snapshot() = std::move(info);
      reply.mutable_snapshots()->set_more(true);
      Send(reply);
    }
    return SendDone(job);
  }

  absl::Status List(uint64_t job) {
    ASSIGN_OR_RETURN(std::vector<SnapshotInfo> snapshots, snapshots_->List());
    return SendSnapshots(job, std::move(snapshots));
  }

  absl::Status Show(uint64_t job, const std::string& id) {
    ASSIGN_OR_RETURN(SnapshotInfo info, snapshots_->Show(id));
    return SendSnapshots(job, {info});
  }

  absl::Status Open(uint64_t job, const std::string& id) {
    absl::StatusOr<SnapshotInfo> info = snapshots_->Show(id);
    if (!info.ok()) return info.status();
    return SendTrace(job, *info);
  }

  absl::Status SendDone(uint64_t job) {
    WriterReply reply = ReplyTo(job);
    reply.mutable_done();
    Send(reply);
    return absl::OkStatus();
  }

  absl::Status Finish(uint64_t job) {
    rotator_->Finish();
    SendStatus();
    RETURN_IF_ERROR(SendDone(job));
    loop_->Exit(0);
    return absl::OkStatus();
  }

  void SendStatus() {
    if (!rotator_.has_value()) return;
    WriterReply reply;
    WriterStatus& status = *reply.mutable_status();
    rotator_->FillStatus(status);
    status.set_snapshots(snapshots_usage_.count);
    status.set_snapshots_bytes(snapshots_usage_.bytes);
    Send(reply);
  }

  // What cannot be sent at once (a list longer than the socket holds) follows
  // when there is room; a recorder that is gone shows in Receive().
  void Send(const WriterReply& reply, int fd = -1) {
    pending_.push_back({reply, UniqueFd(fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1)});
    Flush();
  }

  void Flush() {
    while (!pending_.empty()) {
      const Pending& next = pending_.front();
      if (!SendFrame(channel_.get(), next.reply, next.fd.get()).ok()) break;
      pending_.pop_front();
    }
    if (pending_.empty()) return flush_.reset();
    if (flush_.has_value()) return;
    constexpr uint64_t kRetryMs = 5;
    auto timer = loop_->AddPeriodic(kRetryMs, [this] { Flush(); });
    if (timer.ok()) flush_ = *std::move(timer);
  }

  struct Pending {
    WriterReply reply;
    UniqueFd fd;
  };

  const SystemClock clock_;
  UniqueFd channel_;
  std::unique_ptr<EventLoop> loop_;
  std::string boot_id_;
  Config config_;
  std::string config_digest_;
  std::unique_ptr<SegmentRingReader> ring_;
  std::optional<FileRotator> rotator_;
  std::optional<SnapshotStore> snapshots_;
  bool snapshots_ready_ = false;
  SnapshotStore::Usage snapshots_usage_;
  std::deque<Pending> pending_;
  std::optional<EventSource> flush_;
};

}  // namespace

int RunWriter(UniqueFd fd) {
  // Its recorder's end is its own; a hang in a file system outlasts both.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "aitrace-writer");
  fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) signal(number, SIG_IGN);
  LowerPriority();
  return Writer(std::move(fd)).Run().ok() ? 0 : 1;
}

}  // namespace aitrace
