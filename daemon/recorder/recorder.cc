#include "daemon/recorder/recorder.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "daemon/recorder/drain.h"
#include "daemon/recorder/event_encoder.h"
#include "daemon/recorder/names.h"
#include "daemon/recorder/rotation_schedule.h"
#include "daemon/recorder/segment_sealer.h"
#include "lib/base/mutex.h"

namespace aitrace {
namespace {

constexpr uint64_t kSegmentNs = kNsPerSecond;
constexpr uint64_t kKeyframeNs = 10 * kNsPerSecond;
constexpr uint64_t kHousekeepingNs = kNsPerSecond;
// A drain that found fewer events than this waits longer for the next.
constexpr uint64_t kIdleEvents = 256;
constexpr uint64_t kIdlePeriodMs = 250;
// The drain runs little and often; late, it would lose events.
constexpr int kDrainNice = -10;

struct Command {
  enum Kind { kSeal, kConfigure, kStop } kind = kSeal;
  std::function<void(uint64_t)> on_sealed;
  Config config;
};

// CPUs that are there, on or off, have buffers of their own; those that may be
// plugged in later (on some virtual machines hundreds) are only counted.
uint32_t PresentCpus() { return static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)); }

class DrainThread final : public Recorder {
 public:
  DrainThread(EventLoop& loop, const Clock& clock, SegmentRing& ring, Options options)
      : loop_(loop),
        clock_(clock),
        ring_(ring),
        options_(std::move(options)),
        schedule_(options_.config.rotation().period_s() * kNsPerSecond) {}

  ~DrainThread() override { Stop(); }

  absl::Status Init() {
    RETURN_IF_ERROR(OpenWakeups());
    ASSIGN_OR_RETURN(auto compressor, PacketCompressor::Create(options_.config.compression()));
    sealer_.emplace(clock_, ring_, options_.boot_id, std::move(compressor));
    drain_.emplace(clock_, options_.config.privacy().cmdline(), *sealer_, tasks_, losses_);
    const Probes& probes = options_.config.probes();
    uint32_t cpus = PresentCpus();
    auto on_event = [this](const event_header& header, size_t size) {
      drain_->OnEvent(header, size);
    };
    ASSIGN_OR_RETURN(shards_, EventShards::Create(cpus, probes.event_buffer_kb() * 1024, on_event));
    ASSIGN_OR_RETURN(probes_, ProbeSet::Attach(probes, cpus, *shards_));
    drain_->SetSources(*shards_, *probes_);
    names_.emplace(options_.proc_root, options_.config.privacy().cmdline(), tasks_);
    RETURN_IF_ERROR(names_->ScanAll());
    return StartRecording();
  }

  void Seal(std::function<void(uint64_t)> on_sealed) override {
    Send({.kind = Command::kSeal, .on_sealed = std::move(on_sealed)});
  }

  void Configure(const Config& config) override {
    Send({.kind = Command::kConfigure, .config = config});
  }

  void Stop() override {
    if (!thread_.joinable()) return;
    Send({.kind = Command::kStop});
    thread_.join();
  }

  Stats stats() const override {
    MutexLock lock(mutex_);
    return stats_;
  }

 private:
  absl::Status OpenWakeups() {
    wake_drain_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    wake_main_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_drain_ || !wake_main_) return ErrnoStatus(errno, "eventfd");
    ASSIGN_OR_RETURN(main_source_,
                     loop_.AddIo(wake_main_.get(), EPOLLIN, [this](uint32_t) { RunCallbacks(); }));
    return absl::OkStatus();
  }

  // What the kernel gathered while names were read only brings them up to
  // date; recording starts with the first keyframe.
  absl::Status StartRecording() {
    drain_->Step();
    drain_->FlushBundles();
    drain_->ResetCounts();
    losses_ = LossLedger();
    sealer_->Restart(drain_->horizon_ns());
    PushKeyframe(/*starts_file=*/true, RecoveredGap());
    if (sealer_->stats().refused_segments > 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the names of ", tasks_.size(),
                       " threads do not fit into the ring (make ring.size_mb larger)"));
    }
    Housekeep();
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  std::optional<trace::Gap> RecoveredGap() {
    uint64_t end_ns = ring_.recovered_end_ns();
    if (end_ns == 0) return std::nullopt;
    trace::Gap gap;
    gap.set_begin_ns(end_ns);
    gap.set_end_ns(drain_->horizon_ns());
    gap.set_reason("the recorder was not running");
    return gap;
  }

  void PushKeyframe(bool starts_file, std::optional<trace::Gap> gap = std::nullopt) {
    KeyframeInput input{.at_ns = drain_->horizon_ns(), .running = drain_->Running()};
    input.gap = std::move(gap);
    const Probes& probes = options_.config.probes();
    input.capture.set_kmem_sample(probes.kmem_sample());
    input.capture.set_kmem_large_order(probes.kmem_large_order());
    for (const SourceState& source : probes_->sources()) {
      if (source.complete) continue;
      input.capture.add_missing(absl::StrCat(source.name, ": ", source.detail));
    }
    sealer_->PushKeyframe(BuildKeyframe(tasks_, input), input.at_ns, starts_file);
    drain_->SetCoveredUntilHorizon();
    last_keyframe_ns_ = input.at_ns;
    if (starts_file) schedule_.StartFile(clock_.Read());
  }

  void Run() {
    pthread_setname_np(pthread_self(), "aitrace-drain");
    // Refused without CAP_SYS_NICE; the drain then works at normal priority.
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kDrainNice);
    UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
    AddTo(epoll.get(), shards_->epoll_fd());
    AddTo(epoll.get(), wake_drain_.get());
    uint64_t found = 0;
    while (!is_stopping_) {
      epoll_event ready[2];
      epoll_wait(epoll.get(), ready, 2, WaitMs(found));
      found = drain_->Step();
      SealIfDue();
      RunCommands();
    }
  }

  static void AddTo(int epoll, int fd) {
    epoll_event event{.events = EPOLLIN | EPOLLET};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  }

  int WaitMs(uint64_t found) const {
    uint64_t period_ms = options_.config.probes().drain_ms();
    if (found < kIdleEvents) period_ms = std::max(period_ms, kIdlePeriodMs);
    uint64_t now_ns = clock_.BootNs();
    uint64_t next_ns = schedule_.next_boot_ns();
    uint64_t until_ms = next_ns > now_ns ? (next_ns - now_ns) / kNsPerMs + 1 : 0;
    return static_cast<int>(std::min(period_ms, until_ms));
  }

  void SealIfDue() {
    uint64_t now_ns = drain_->horizon_ns();
    bool is_file_due = schedule_.IsDue(now_ns);
    bool is_keyframe_due = is_file_due || now_ns - last_keyframe_ns_ >= kKeyframeNs;
    if (now_ns - last_housekeeping_ns_ >= kHousekeepingNs) Housekeep();
    if (is_keyframe_due || now_ns - sealer_->begin_ns() >= kSegmentNs) SealSegment();
    if (!is_keyframe_due) return;
    if (drain_->TakeTasksLost()) names_->Reconcile(now_ns);
    PushKeyframe(is_file_due);
  }

  void SealSegment() {
    drain_->FlushBundles();
    sealer_->AddLosses(losses_.TakeNew());
    sealer_->Seal(drain_->horizon_ns());
  }

  void Housekeep() {
    names_->ResolveUnknown();
    names_->TakeCmdlines();
    drain_->CountRecursionMisses();
    MeasureRates();
    PublishStats();
    last_housekeeping_ns_ = drain_->horizon_ns();
  }

  void MeasureRates() {
    uint64_t passed_ns = drain_->horizon_ns() - last_housekeeping_ns_;
    for (const SourceState& state : probes_->sources()) {
      Rate& rate = rates_[state.name];
      uint64_t events = CountOf(state.name, drain_->counts());
      rate.per_s = static_cast<double>(events - rate.seen) * kNsPerSecond /
                   static_cast<double>(std::max<uint64_t>(passed_ns, 1));
      rate.seen = events;
    }
  }

  void RunCommands() {
    uint64_t count = 0;
    if (read(wake_drain_.get(), &count, sizeof(count)) < 0) return;  // Nothing was sent.
    std::deque<Command> commands;
    {
      MutexLock lock(mutex_);
      commands.swap(commands_);
    }
    for (Command& command : commands) RunCommand(command);
  }

  void RunCommand(Command& command) {
    if (command.kind == Command::kConfigure) return ApplyConfig(command.config);
    // Commands were sent before this step began or during it.
    drain_->Step();
    SealSegment();
    PublishStats();
    if (command.kind == Command::kStop) is_stopping_ = true;
    if (command.on_sealed == nullptr) return;
    uint64_t sequence = sealer_->last_sequence();
    MutexLock lock(mutex_);
    callbacks_.push_back([sequence, done = std::move(command.on_sealed)] { done(sequence); });
    Wake(wake_main_.get());
  }

  void ApplyConfig(const Config& config) {
    // Created before, with the same codec names; only memory could be short.
    auto compressor = PacketCompressor::Create(config.compression());
    if (compressor.ok()) sealer_->SetCompressor(*std::move(compressor));
    if (config.rotation().period_s() != options_.config.rotation().period_s()) {
      schedule_ = RotationSchedule(config.rotation().period_s() * kNsPerSecond);
      schedule_.StartFile(clock_.Read());
    }
    options_.config = config;
  }

  void PublishStats() {
    Stats stats;
    const Drain::Counts& counts = drain_->counts();
    FillEvents(counts, stats);
    FillSources(counts, stats);
    stats.loss = losses_.Total();
    stats.recent_loss.assign(losses_.recent().begin(), losses_.recent().end());
    stats.ring = ring_.stats();
    stats.total_events = counts.total();
    stats.kernel_buffer_bytes = shards_->kernel_bytes() + probes_->kernel_bytes();
    stats.notes = names_->notes();
    if (uint64_t refused = sealer_->stats().refused_segments; refused > 0) {
      stats.notes.push_back(absl::StrCat(
          refused, " segments were larger than the ring and are lost (raise ring.size_mb)"));
    }
    if (counts.malformed > 0) {
      stats.notes.push_back(absl::StrCat(counts.malformed, " records of the probes were damaged"));
    }
    MutexLock lock(mutex_);
    stats_ = std::move(stats);
  }

  static void FillEvents(const Drain::Counts& counts, Stats& stats) {
    auto add = [&](const char* name, uint64_t count) {
      control::Status::EventCount event;
      event.set_event(name);
      event.set_count(count);
      stats.events.push_back(std::move(event));
    };
    add("sched_switch", counts.switches);
    add("sched_waking", counts.wakings);
    for (uint16_t type = 0; type < EVENT_TYPES; ++type) {
      if (counts.events[type] > 0) add(EventName(type), counts.events[type]);
    }
  }

  void FillSources(const Drain::Counts& counts, Stats& stats) {
    for (const SourceState& state : probes_->sources()) {
      control::Status::Source source;
      source.set_name(state.name);
      source.set_state(!state.on        ? control::Status::Source::OFF
                       : state.complete ? control::Status::Source::ON
                                        : control::Status::Source::DEGRADED);
      source.set_detail(state.detail);
      source.set_events(CountOf(state.name, counts));
      source.set_lost(losses_.TotalOf(state.name));
      source.set_events_per_s(rates_[state.name].per_s);
      stats.sources.push_back(std::move(source));
    }
  }

  static uint64_t CountOf(const std::string& source, const Drain::Counts& counts) {
    uint64_t count = source == "sched" ? counts.switches + counts.wakings : 0;
    for (uint16_t type = EVENT_NEWTASK; type < EVENT_TYPES; ++type) {
      if (source == SourceOf(type)) count += counts.events[type];
    }
    return count;
  }

  void Send(Command command) {
    MutexLock lock(mutex_);
    commands_.push_back(std::move(command));
    Wake(wake_drain_.get());
  }

  static void Wake(int event_fd) {
    uint64_t one = 1;
    // Fails only when it is set already.
    [[maybe_unused]] ssize_t written = write(event_fd, &one, sizeof(one));
  }

  void RunCallbacks() {
    uint64_t count = 0;
    [[maybe_unused]] ssize_t got = read(wake_main_.get(), &count, sizeof(count));
    std::deque<std::function<void()>> callbacks;
    {
      MutexLock lock(mutex_);
      callbacks.swap(callbacks_);
    }
    for (auto& callback : callbacks) callback();
  }

  EventLoop& loop_;
  const Clock& clock_;
  SegmentRing& ring_;
  Options options_;
  UniqueFd wake_drain_;
  UniqueFd wake_main_;
  EventSource main_source_;

  // Of the drain thread, once it runs.
  TaskTable tasks_;
  LossLedger losses_;
  RotationSchedule schedule_;
  std::optional<SegmentSealer> sealer_;
  std::optional<Drain> drain_;
  std::optional<Names> names_;
  std::unique_ptr<EventShards> shards_;
  std::unique_ptr<ProbeSet> probes_;
  uint64_t last_keyframe_ns_ = 0;
  uint64_t last_housekeeping_ns_ = 0;
  struct Rate {
    uint64_t seen = 0;
    double per_s = 0;
  };
  std::map<std::string, Rate> rates_;  // Of the last second, by source.
  bool is_stopping_ = false;

  mutable Mutex mutex_;
  std::deque<Command> commands_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Recorder>> Recorder::Start(EventLoop& loop, const Clock& clock,
                                                          SegmentRing& ring, Options options) {
  auto recorder = std::make_unique<DrainThread>(loop, clock, ring, std::move(options));
  RETURN_IF_ERROR(recorder->Init());
  return recorder;
}

}  // namespace aitrace
