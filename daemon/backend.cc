#include "daemon/backend.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_format.h"

namespace aitrace {
namespace {

constexpr uint64_t kMaxPostNs = 3600 * kNsPerSecond;

control::Reply ErrorReply(const absl::Status& status) {
  control::Reply reply;
  reply.mutable_error()->set_code(static_cast<int>(status.code()));
  reply.mutable_error()->set_message(std::string(status.message()));
  return reply;
}

control::Reply ProgressReply(const char* stage, uint64_t done_bytes, uint64_t total_bytes) {
  control::Reply reply;
  reply.mutable_progress()->set_stage(stage);
  reply.mutable_progress()->set_done_bytes(done_bytes);
  reply.mutable_progress()->set_total_bytes(total_bytes);
  return reply;
}

WriterClient::OnOpened SendOpened(const std::shared_ptr<ReplySink>& sink) {
  return [sink](absl::StatusOr<OpenedSnapshot> opened) {
    if (!opened.ok()) return sink->Send(ErrorReply(opened.status()));
    control::Reply reply;
    *reply.mutable_trace()->mutable_info() = opened->info;
    reply.mutable_trace()->set_path(opened->path);
    sink->SendTrace(reply, std::move(opened->trace));
  };
}

WriterClient::OnSnapshots SendSnapshots(const std::shared_ptr<ReplySink>& sink) {
  return [sink](absl::StatusOr<std::vector<SnapshotInfo>> snapshots) {
    if (!snapshots.ok()) return sink->Send(ErrorReply(snapshots.status()));
    // One a packet: each fits, however many there are.
    for (SnapshotInfo& info : *snapshots) {
      control::Reply reply;
      *reply.mutable_snapshots()->add_snapshot() = std::move(info);
      sink->Send(reply);
    }
    control::Reply done;
    done.mutable_done();
    sink->Send(done);
  };
}

// What is answered for a dump that nobody waits for.
class LogSink final : public ReplySink {
 public:
  void Send(const control::Reply& reply) override {
    if (reply.has_error()) spdlog::error("dump on signal failed: {}", reply.error().message());
  }
  void SendTrace(const control::Reply& reply, UniqueFd) override {
    spdlog::info("dump on signal: {} ({} bytes)", reply.trace().path(),
                 reply.trace().info().trace_bytes());
  }
};

}  // namespace

Backend::Backend(EventLoop& loop, const Clock& clock, Recorder& recorder, WriterClient& writer,
                 Identity identity)
    : loop_(loop),
      clock_(clock),
      recorder_(recorder),
      writer_(writer),
      identity_(std::move(identity)),
      started_ns_(clock.BootNs()) {}

void Backend::SetConfig(const Config& config, const std::string& digest) {
  config_ = config;
  config_digest_ = digest;
  config_error_.clear();
}

void Backend::Handle(const control::Request& request, const Peer& peer,
                     std::shared_ptr<ReplySink> sink) {
  switch (request.request_case()) {
    case control::Request::kStatus: {
      control::Reply reply;
      *reply.mutable_status() = BuildStatus();
      return sink->Send(reply);
    }
    case control::Request::kDump:
      return HandleDump(request.dump(), peer, sink);
    case control::Request::kSnapshotsList:
      return writer_.List(SendSnapshots(sink));
    case control::Request::kSnapshotsShow:
      return writer_.Show(request.snapshots_show().id(), SendSnapshots(sink));
    case control::Request::kSnapshotsExport:
      return writer_.Open(request.snapshots_export().id(), SendOpened(sink));
    case control::Request::kSnapshotsRemove:
      return writer_.Remove(request.snapshots_remove().id(), [sink](const absl::Status& status) {
        control::Reply done;
        done.mutable_done();
        sink->Send(status.ok() ? done : ErrorReply(status));
      });
    case control::Request::REQUEST_NOT_SET:
      break;
  }
  sink->Send(ErrorReply(absl::UnimplementedError(
      "this aitraced does not know the request (is aitracectl newer than aitraced?)")));
}

void Backend::HandleDump(const control::Request::Dump& request, const Peer& peer,
                         const std::shared_ptr<ReplySink>& sink) {
  if (request.post_ns() > kMaxPostNs) {
    return sink->Send(ErrorReply(absl::InvalidArgumentError("--post: at most one hour")));
  }
  WriterRequest::Dump dump;
  *dump.mutable_window() = request.window();
  dump.set_reason("command");
  dump.set_text(request.text());
  dump.set_requested_by(absl::StrFormat("uid %u pid %d", peer.uid, peer.pid));
  if (request.post_ns() == 0) return Dump(std::move(dump), sink);
  DelayDump(request.post_ns() / kNsPerMs, std::move(dump), sink);
}

void Backend::DelayDump(uint64_t delay_ms, WriterRequest::Dump request,
                        const std::shared_ptr<ReplySink>& sink) {
  if (delayed_.size() >= kMaxDelayed) {
    return sink->Send(ErrorReply(absl::ResourceExhaustedError(
        absl::StrCat(kMaxDelayed, " dumps with --post are waiting already"))));
  }
  uint64_t id = next_delayed_++;
  auto run = [this, id, request = std::move(request), sink] {
    auto timer = delayed_.extract(id);  // Lives until this call is over.
    Dump(request, sink);
  };
  absl::StatusOr<EventSource> timer = loop_.AddDelayed(delay_ms, std::move(run));
  if (!timer.ok()) return sink->Send(ErrorReply(timer.status()));
  delayed_.emplace(id, *std::move(timer));
}

// The window's default and its end are taken here, when the dump starts.
void Backend::Dump(WriterRequest::Dump request, const std::shared_ptr<ReplySink>& sink) {
  Window& window = *request.mutable_window();
  if (!window.has_last_ns() && !window.has_files() && !window.has_from_realtime_ns()) {
    window.set_last_ns(config_.dump().last_s() * kNsPerSecond);
  }
  recorder_.Seal([this, request = std::move(request), sink](uint64_t sequence) mutable {
    request.set_through_sequence(sequence);
    for (const trace::Loss& loss : recorder_.stats().recent_loss) *request.add_loss() = loss;
    auto on_progress = [sink](uint64_t done_bytes, uint64_t total_bytes) {
      sink->Send(ProgressReply("copying", done_bytes, total_bytes));
    };
    writer_.Dump(std::move(request), on_progress, SendOpened(sink));
  });
}

void Backend::DumpOnSignal() {
  WriterRequest::Dump request;
  request.set_reason("signal");
  request.set_requested_by("SIGUSR1");
  Dump(std::move(request), std::make_shared<LogSink>());
}

void Backend::MeasureCost() {
  cost_.Sample(getpid(), clock_.BootNs());
  writer_cost_.Sample(writer_.status().pid(), clock_.BootNs());
}

std::string Backend::Summary() const {
  Recorder::Stats stats = recorder_.stats();
  uint64_t lost = 0;
  for (const trace::Loss& loss : stats.loss) lost += loss.count();
  return absl::StrFormat("recording: %d events, %d lost, ring %d of %d MiB", stats.total_events,
                         lost, stats.ring.used_bytes >> 20, stats.ring.size_bytes >> 20);
}

void Backend::FillRing(const Recorder::Stats& stats, control::Status& status) const {
  const SegmentRing::Stats& ring = stats.ring;
  auto& out = *status.mutable_ring();
  out.set_path(ring.path);
  out.set_file_system(ring.file_system);
  out.set_note(ring.note);
  out.set_size_bytes(ring.size_bytes);
  out.set_used_bytes(ring.used_bytes);
  out.set_segments(ring.segments);
  out.set_evicted_segments(ring.evicted_segments);
  out.set_span_ns(ring.newest_end_ns - ring.oldest_begin_ns);
  out.set_recovered_segments(ring.recovered_segments);
  out.set_torn_segments(ring.torn_segments);
}

void Backend::FillCost(const Recorder::Stats& stats, control::Status& status) const {
  auto& cost = *status.mutable_cost();
  cost.set_cpu_percent(cost_.cpu_percent());
  cost.set_writer_cpu_percent(writer_cost_.cpu_percent());
  cost.set_rss_bytes(cost_.rss_bytes());
  cost.set_kernel_buffer_bytes(stats.kernel_buffer_bytes);
  if (stats.total_events == 0) return;
  cost.set_cpu_ns_per_event(static_cast<double>(cost_.cpu_ns()) /
                            static_cast<double>(stats.total_events));
}

control::Status Backend::BuildStatus() const {
  Recorder::Stats stats = recorder_.stats();
  control::Status status;
  status.set_version(AITRACE_VERSION);
  status.set_pid(getpid());
  status.set_host(identity_.host);
  status.set_kernel(identity_.kernel);
  status.set_uptime_ns(clock_.BootNs() - started_ns_);
  status.set_config_path(identity_.config_path);
  status.set_config_digest(config_digest_);
  if (!config_error_.empty()) status.set_config_error(config_error_);
  for (const auto& source : stats.sources) *status.add_sources() = source;
  for (const auto& event : stats.events) *status.add_events() = event;
  for (const auto& loss : stats.loss) *status.add_loss() = loss;
  FillRing(stats, status);
  *status.mutable_writer() = writer_.status();
  FillCost(stats, status);
  if (server_ != nullptr) *status.mutable_clients() = server_->clients();
  for (const std::string& note : stats.notes) status.add_notes(note);
  if (server_ != nullptr && !server_->note().empty()) status.add_notes(server_->note());
  return status;
}

}  // namespace aitrace
