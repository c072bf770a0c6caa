#include "daemon/daemon.h"

#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_join.h"
#include "daemon/backend.h"
#include "daemon/control/control_server.h"
#include "daemon/recorder/recorder.h"
#include "daemon/service/instance_lock.h"
#include "daemon/service/service_manager.h"
#include "daemon/writer/writer_client.h"
#include "lib/base/boot_id.h"
#include "lib/store/segment_ring.h"

namespace aitrace {
namespace {

constexpr uint64_t kTickMs = 1000;
// The service manager kills after 10 s; a writer stuck in a frozen file system
// is left behind well before that.
constexpr uint64_t kFinishTimeoutMs = 3000;

Backend::Identity MakeIdentity(const LoadedConfig& config) {
  utsname names{};
  uname(&names);  // Cannot fail with a valid buffer.
  return {.host = names.nodename, .kernel = names.release, .config_path = config.path};
}

class Daemon {
 public:
  explicit Daemon(LoadedConfig config) : config_(std::move(config)) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(loop_, EventLoop::Create());
    RETURN_IF_ERROR(CatchSignals());
    ASSIGN_OR_RETURN(lock_, InstanceLock::Acquire(config_.config.control().socket() + ".lock"));
    RETURN_IF_ERROR(StartRecording());
    RETURN_IF_ERROR(StartServing());
    // Loading the probes took the kernel's type information, several MiB, and
    // gave it back: to the heap, and with this to the host.
    malloc_trim(0);
    manager_.Ready();
    spdlog::info("recording to the ring at {} ({} MiB)", recorder_->stats().ring.path,
                 recorder_->stats().ring.size_bytes >> 20);
    return loop_->Run().status();
  }

 private:
  // Before any thread is started, so that none of them takes a signal.
  absl::Status CatchSignals() {
    signal(SIGPIPE, SIG_IGN);
    auto catch_signal = [this](int number, std::function<void()> action) -> absl::Status {
      ASSIGN_OR_RETURN(EventSource source, loop_->AddSignal(number, std::move(action)));
      sources_.push_back(std::move(source));
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(catch_signal(SIGTERM, [this] { Stop(); }));
    RETURN_IF_ERROR(catch_signal(SIGINT, [this] { Stop(); }));
    RETURN_IF_ERROR(catch_signal(SIGHUP, [this] { Reload(); }));
    return catch_signal(SIGUSR1, [this] {
      if (backend_ != nullptr) backend_->DumpOnSignal();
    });
  }

  absl::Status StartRecording() {
    ASSIGN_OR_RETURN(std::string boot_id, ReadBootId());
    RingOptions ring{.path = config_.config.ring().path(),
                     .size_bytes = uint64_t{config_.config.ring().size_mb()} << 20,
                     .boot_id = boot_id};
    ASSIGN_OR_RETURN(ring_, SegmentRing::Open(ring));
    Recorder::Options options{.config = config_.config, .boot_id = boot_id};
    ASSIGN_OR_RETURN(recorder_, Recorder::Start(*loop_, clock_, *ring_, std::move(options)));
    LogStart();
    WriterClient::Options writer{.config = config_.config,
                                 .config_digest = config_.digest,
                                 .open_ring = [this] { return ring_->OpenReadOnly(); }};
    ASSIGN_OR_RETURN(writer_, WriterClient::Start(*loop_, clock_, std::move(writer)));
    return absl::OkStatus();
  }

  void LogStart() const {
    SegmentRing::Stats ring = ring_->stats();
    if (!ring.note.empty()) spdlog::warn("ring: {}", ring.note);
    if (ring.recovered_segments > 0) {
      spdlog::info("ring: {} segments of an earlier run are kept", ring.recovered_segments);
    }
    for (const auto& source : recorder_->stats().sources) {
      if (source.detail().empty()) continue;
      spdlog::warn("source {}: {}", source.name(), source.detail());
    }
  }

  absl::Status StartServing() {
    backend_ =
        std::make_unique<Backend>(*loop_, clock_, *recorder_, *writer_, MakeIdentity(config_));
    backend_->SetConfig(config_.config, config_.digest);
    ControlServer::Options options{.socket_path = config_.config.control().socket(),
                                   .group = config_.config.control().group(),
                                   .activated = manager_.TakeSocket("control")};
    ASSIGN_OR_RETURN(server_, ControlServer::Start(*loop_, *backend_, std::move(options), {}));
    backend_->SetServer(server_.get());
    backend_->MeasureCost();  // Of recording: what the start took does not count.
    ASSIGN_OR_RETURN(EventSource tick, loop_->AddPeriodic(kTickMs, [this] { Tick(); }));
    sources_.push_back(std::move(tick));
    return absl::OkStatus();
  }

  void Tick() {
    backend_->MeasureCost();
    manager_.Status(backend_->Summary());
    // The watchdog hears of the drain, not only of this loop: it is fed when
    // a seal that was asked for has been done.
    if (!manager_.has_watchdog()) return;
    recorder_->Seal([this](uint64_t) { manager_.FeedWatchdog(); });
  }

  // All or nothing.
  void Reload() {
    manager_.Reloading();
    absl::Status status = ApplyNewConfig();
    manager_.Ready();
    if (status.ok()) {
      spdlog::info("configuration reloaded ({})", config_.digest);
      return;
    }
    std::string message(status.message());
    spdlog::error("reload refused, nothing was changed: {}", message);
    if (backend_ != nullptr) backend_->SetConfigError(message);
  }

  absl::Status ApplyNewConfig() {
    ASSIGN_OR_RETURN(LoadedConfig next, LoadConfig(config_.path, config_.is_default_path));
    std::vector<std::string> fixed = RestartOnlyChanges(config_.config, next.config);
    if (!fixed.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          absl::StrJoin(fixed, ", "), " cannot change while running (systemctl restart aitraced)"));
    }
    config_ = std::move(next);
    recorder_->Configure(config_.config);
    writer_->Configure(config_.config, config_.digest);
    backend_->SetConfig(config_.config, config_.digest);
    return absl::OkStatus();
  }

  // What happened until now is sealed and written; the socket answers until
  // the end.
  void Stop() {
    if (is_stopping_) return;
    is_stopping_ = true;
    manager_.Stopping();
    if (recorder_ != nullptr) recorder_->Stop();
    if (writer_ == nullptr) return loop_->Exit(0);
    writer_->Finish(kFinishTimeoutMs, [this](const absl::Status& status) {
      if (!status.ok()) spdlog::warn("writer: {}", std::string(status.message()));
      loop_->Exit(0);
    });
  }

  LoadedConfig config_;
  const SystemClock clock_;
  ServiceManager manager_;
  // In the order in which they are built; taken down in reverse.
  std::unique_ptr<EventLoop> loop_;
  std::vector<EventSource> sources_;
  InstanceLock lock_;
  std::unique_ptr<SegmentRing> ring_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<WriterClient> writer_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ControlServer> server_;
  bool is_stopping_ = false;
};

}  // namespace

absl::Status RunDaemon(LoadedConfig config) { return Daemon(std::move(config)).Run(); }

}  // namespace aitrace
