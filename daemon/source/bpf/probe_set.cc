#include "daemon/source/bpf/probe_set.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/mman.h>

#include <bit>

#include "absl/strings/str_join.h"
#include "daemon/source/bpf/bpf_status.h"
#include "probes/block.skel.h"
#include "probes/freq.skel.h"
#include "probes/kmem.skel.h"
#include "probes/sched.skel.h"
#include "probes/task.skel.h"

namespace aitrace {
namespace {

constexpr size_t kMaxLibbpfMessages = 20;

// libbpf's newest complaints, for the error that we return instead of printing.
thread_local std::vector<std::string> libbpf_messages;

int KeepLibbpfMessage(libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN || libbpf_messages.size() >= kMaxLibbpfMessages) return 0;
  char text[512];
  vsnprintf(text, sizeof(text), format, arguments);
  std::string line(text);
  if (!line.empty() && line.back() == '\n') line.pop_back();
  libbpf_messages.push_back(std::move(line));
  return 0;
}

absl::Status LibbpfStatus(int error, const std::string& what) {
  std::string detail = libbpf_messages.empty() ? "" : absl::StrCat(" (", libbpf_messages[0], ")");
  return BpfStatus(error, absl::StrCat(what, detail));
}

// A skeleton with its destructor.
template <typename Skeleton>
struct DestroySkeleton {
  void operator()(Skeleton* skeleton) const { Skeleton::destroy(skeleton); }
};
template <typename Skeleton>
using UniqueSkeleton = std::unique_ptr<Skeleton, DestroySkeleton<Skeleton>>;

// The rings of the slots, mapped.
class SlotRingMapping {
 public:
  SlotRingMapping() = default;
  ~SlotRingMapping() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  SlotRingMapping(const SlotRingMapping&) = delete;
  SlotRingMapping& operator=(const SlotRingMapping&) = delete;

  absl::Status Map(int fd, uint64_t bytes) {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    bytes = (bytes + page - 1) / page * page;
    void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return ErrnoStatus(errno, "map the slot rings");
    memory_ = memory;
    bytes_ = bytes;
    return absl::OkStatus();
  }
  const char* data() const { return static_cast<const char*>(memory_); }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

class AttachedProbes final : public ProbeSet {
 public:
  AttachedProbes(const Probes& config, uint32_t cpus, const EventShards& shards, KernelBtf btf)
      : config_(config), cpus_(cpus), shards_(shards), btf_(std::move(btf)) {}

  absl::Status AttachAll() {
    RETURN_IF_ERROR(AttachSched());
    RETURN_IF_ERROR(AttachTask());
    if (config_.block()) AttachBlock();
    if (config_.frequency()) AttachFrequency();
    if (config_.kmem()) AttachKmem();
    return absl::OkStatus();
  }

  const std::vector<SourceState>& sources() const override { return sources_; }

  std::vector<const slot_ring*> slot_rings() const override {
    std::vector<const slot_ring*> rings;
    for (uint32_t cpu = 0; slots_mapping_.data() != nullptr && cpu < cpus_; ++cpu) {
      const char* ring = slots_mapping_.data() + cpu * SlotRingBytes();
      rings.push_back(reinterpret_cast<const slot_ring*>(ring));
    }
    return rings;
  }
  uint64_t slots() const override { return config_.sched_slots(); }
  uint64_t kernel_bytes() const override {
    return slots_mapping_.data() == nullptr ? 0 : cpus_ * SlotRingBytes();
  }

  std::vector<RecursionMisses> recursion_misses() const override {
    std::vector<RecursionMisses> misses;
    for (const auto& [source, object] : objects_) misses.push_back({source, MissesOf(object)});
    return misses;
  }

 private:
  uint64_t SlotRingBytes() const {
    return sizeof(slot_ring) + config_.sched_slots() * sizeof(slot);
  }

  static uint64_t MissesOf(bpf_object* object) {
    uint64_t misses = 0;
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, object) {
      int fd = bpf_program__fd(program);
      bpf_prog_info info = {};
      uint32_t size = sizeof(info);
      if (fd >= 0 && bpf_obj_get_info_by_fd(fd, &info, &size) == 0) misses += info.recursion_misses;
    }
    return misses;
  }

  // Opens a source's skeleton and gives it what all probes share. A tracepoint
  // that this kernel lacks is left out, its name added to `missing`.
  template <typename Skeleton>
  absl::StatusOr<UniqueSkeleton<Skeleton>> Open(std::vector<std::string>& missing) {
    libbpf_messages.clear();
    UniqueSkeleton<Skeleton> skeleton(Skeleton::open());
    if (skeleton == nullptr) return LibbpfStatus(errno, "open the probes");
    skeleton->rodata->shard_mask = shards_.shard_mask();
    skeleton->rodata->wake_mark_bytes = shards_.wake_mark_bytes();
    bpf_map__reuse_fd(skeleton->maps.events, shards_.buffers_fd());
    bpf_map__reuse_fd(skeleton->maps.drops, shards_.drops_fd());
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, skeleton->obj) {
      std::string section = bpf_program__section_name(program);
      if (section.find('/') == std::string::npos) continue;  // Run by us, not attached.
      std::string tracepoint = section.substr(section.find('/') + 1);
      if (btf_.HasTracepoint(tracepoint)) continue;
      bpf_program__set_autoload(program, false);
      missing.push_back(tracepoint);
    }
    return skeleton;
  }

  template <typename Skeleton>
  absl::Status LoadAndAttach(Skeleton* skeleton) {
    if (int error = Skeleton::load(skeleton); error != 0) {
      return LibbpfStatus(-error, "load the probes");
    }
    if (int error = Skeleton::attach(skeleton); error != 0) {
      return LibbpfStatus(-error, "attach the probes");
    }
    return absl::OkStatus();
  }

  template <typename Skeleton>
  absl::Status Load(const std::string& source, UniqueSkeleton<Skeleton>& skeleton,
                    const std::vector<std::string>& missing) {
    absl::Status status = LoadAndAttach(skeleton.get());
    SourceState state{.name = source, .on = status.ok()};
    if (!status.ok()) {
      state.complete = false;
      state.detail = std::string(status.message());
      skeleton.reset();
    } else if (!missing.empty()) {
      state.complete = false;
      state.detail = absl::StrCat("not in this kernel: ", absl::StrJoin(missing, ", "));
    }
    if (skeleton != nullptr) objects_.emplace_back(source, skeleton->obj);
    sources_.push_back(std::move(state));
    return Annotate(status, source);
  }

  void AddOff(const std::string& source, const std::string& why) {
    sources_.push_back({.name = source, .on = false, .complete = false, .detail = why});
  }

  absl::StatusOr<UniqueSkeleton<sched_probes>> OpenSched(std::vector<std::string>& missing) {
    ASSIGN_OR_RETURN(UniqueSkeleton<sched_probes> sched, Open<sched_probes>(missing));
    sched->rodata->slot_mask = config_.sched_slots() - 1;
    sched->rodata->lap_shift = static_cast<uint32_t>(std::countr_zero(config_.sched_slots()));
    sched->rodata->switch_has_prev_state = btf_.TracepointArguments("sched_switch") >= 4;
    sched->rodata->runqueue_offset = btf_.PerCpuOffset("runqueues");
    sched->rodata->preempt_count_offset = btf_.PreemptCountOffset();
    bpf_map__set_value_size(sched->maps.slot_rings, static_cast<uint32_t>(SlotRingBytes()));
    bpf_map__set_max_entries(sched->maps.slot_rings, cpus_);
    return sched;
  }

  absl::Status AttachSched() {
    std::vector<std::string> missing;
    ASSIGN_OR_RETURN(sched_, OpenSched(missing));
    absl::Status status = LoadAndAttach(sched_.get());
    if (status.ok()) {
      int rings = bpf_map__fd(sched_->maps.slot_rings);
      status = slots_mapping_.Map(rings, cpus_ * SlotRingBytes());
    }
    SourceState state{.name = "sched", .on = true};
    if (!status.ok()) {
      RETURN_IF_ERROR(AttachSchedAsEvents());
      state.complete = false;
      state.detail =
          absl::StrCat("slot rings cannot be had here, ring buffers are used: ", status.message());
    }
    ReportRunning(status.ok() ? sched_->progs.slot_running : sched_->progs.event_running);
    if (!KnowsInterrupts()) {
      absl::StrAppend(&state.detail, state.detail.empty() ? "" : "; ",
                      "wakings from interrupts are not told from those of the thread interrupted: "
                      "this kernel's BTF does not say where its preemption count is");
      state.complete = false;
    }
    objects_.emplace_back("sched", sched_->obj);
    sources_.push_back(std::move(state));
    return absl::OkStatus();
  }

  // One interrupt a CPU, once. A CPU that is offline has nothing to say.
  void ReportRunning(bpf_program* program) {
    for (uint32_t cpu = 0; cpu < cpus_; ++cpu) {
      LIBBPF_OPTS(bpf_test_run_opts, options);
      options.flags = BPF_F_TEST_RUN_ON_CPU;
      options.cpu = cpu;
      bpf_prog_test_run_opts(bpf_program__fd(program), &options);
    }
  }

  // Whether the first CPU found its preemption count; the others are alike.
  bool KnowsInterrupts() const {
    std::vector<char> element(bpf_map__value_size(sched_->maps.slot_rings));
    uint32_t cpu = 0;
    int rings = bpf_map__fd(sched_->maps.slot_rings);
    if (bpf_map_lookup_elem(rings, &cpu, element.data()) != 0) return false;
    return reinterpret_cast<const slot_ring*>(element.data())->preempt_count_address != 0;
  }

  absl::Status AttachSchedAsEvents() {
    std::vector<std::string> missing;
    ASSIGN_OR_RETURN(sched_, OpenSched(missing));
    bpf_map__set_value_size(sched_->maps.slot_rings, sizeof(slot_ring) + 2 * sizeof(slot));
    bpf_program__set_autoload(sched_->progs.slot_sched_switch, false);
    bpf_program__set_autoload(sched_->progs.slot_sched_waking, false);
    bpf_program__set_autoload(sched_->progs.slot_running, false);
    bpf_program__set_autoload(sched_->progs.event_sched_switch, true);
    bpf_program__set_autoload(sched_->progs.event_sched_waking, true);
    bpf_program__set_autoload(sched_->progs.event_running, true);
    return Annotate(LoadAndAttach(sched_.get()), "sched");
  }

  absl::Status AttachTask() {
    std::vector<std::string> missing;
    ASSIGN_OR_RETURN(task_, Open<task_probes>(missing));
    return Load("task", task_, missing);
  }

  // Sources that may be missing: the state says so, and recording goes on.
  void AttachBlock() {
    std::vector<std::string> missing;
    auto opened = Open<block_probes>(missing);
    if (!opened.ok()) return AddOff("block", std::string(opened.status().message()));
    block_ = *std::move(opened);
    block_->rodata->request_is_second = btf_.TracepointArguments("block_rq_issue") >= 2;
    // Where requests are reported from their start, bios need not be.
    if (btf_.HasTracepoint("block_io_start")) {
      bpf_program__set_autoload(block_->progs.block_bio_queue, false);
    }
    Load("block", block_, missing).IgnoreError();  // Said in the source's state.
  }

  void AttachFrequency() {
    std::vector<std::string> missing;
    auto opened = Open<freq_probes>(missing);
    if (!opened.ok()) return AddOff("freq", std::string(opened.status().message()));
    freq_ = *std::move(opened);
    if (access("/sys/devices/system/cpu/cpu0/cpufreq", F_OK) != 0) {
      return AddOff("freq", "no frequency source: this machine has no cpufreq driver");
    }
    Load("freq", freq_, missing).IgnoreError();  // Said in the source's state.
  }

  void AttachKmem() {
    std::vector<std::string> missing;
    auto opened = Open<kmem_probes>(missing);
    if (!opened.ok()) return AddOff("kmem", std::string(opened.status().message()));
    kmem_ = *std::move(opened);
    kmem_->rodata->large_order = config_.kmem_large_order();
    kmem_->rodata->sample_every = config_.kmem_sample();
    Load("kmem", kmem_, missing).IgnoreError();  // Said in the source's state.
  }

  const Probes config_;
  const uint32_t cpus_;
  const EventShards& shards_;
  const KernelBtf btf_;
  std::vector<SourceState> sources_;
  std::vector<std::pair<std::string, bpf_object*>> objects_;
  UniqueSkeleton<sched_probes> sched_;
  UniqueSkeleton<task_probes> task_;
  UniqueSkeleton<block_probes> block_;
  UniqueSkeleton<freq_probes> freq_;
  UniqueSkeleton<kmem_probes> kmem_;
  SlotRingMapping slots_mapping_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ProbeSet>> ProbeSet::Attach(const Probes& config, uint32_t cpus,
                                                           const EventShards& shards) {
  libbpf_set_print(KeepLibbpfMessage);
  ASSIGN_OR_RETURN(KernelBtf btf, KernelBtf::Load());
  auto probes = std::make_unique<AttachedProbes>(config, cpus, shards, std::move(btf));
  RETURN_IF_ERROR(probes->AttachAll());
  return probes;
}

}  // namespace aitrace
