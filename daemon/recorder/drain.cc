#include "daemon/recorder/drain.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "daemon/recorder/event_encoder.h"
#include "daemon/source/proc/cmdline_reader.h"

namespace aitrace {
namespace {

// A body this large is sealed in the middle of a step.
constexpr size_t kMaxBodyBytes = 1024 * 1024;

bool ChangesNames(uint16_t type) {
  return type == EVENT_NEWTASK || type == EVENT_RENAME || type == EVENT_EXEC || type == EVENT_FREE;
}

template <typename Event>
const Event& As(const event_header& header) {
  return *reinterpret_cast<const Event*>(&header);
}

}  // namespace

uint64_t Drain::Counts::total() const {
  return std::accumulate(events.begin(), events.end(), switches + wakings);
}

Drain::Drain(const Clock& clock, Privacy::Cmdline privacy, SegmentSealer& sealer, TaskTable& tasks,
             LossLedger& losses)
    : clock_(clock), privacy_(privacy), sealer_(sealer), tasks_(tasks), losses_(losses) {}

void Drain::SetSources(EventShards& shards, const ProbeSet& probes) {
  shards_ = &shards;
  probes_ = &probes;
  std::vector<const slot_ring*> rings = probes.slot_rings();
  for (uint32_t cpu = 0; cpu < shards.drops().size(); ++cpu) {
    const slot_ring* ring = cpu < rings.size() ? rings[cpu] : nullptr;
    streams_.push_back(std::make_unique<CpuStream>(cpu, ring, probes.slots()));
  }
  seen_drops_.assign(shards.drops().begin(), shards.drops().end());
  horizon_ns_ = last_horizon_ns_ = clock_.BootNs();
}

uint64_t Drain::Step() {
  uint64_t before = counts_.total();
  last_horizon_ns_ = horizon_ns_;
  horizon_ns_ = clock_.BootNs();
  for (auto& stream : streams_) stream->Advance(horizon_ns_);
  RetryDeferred();
  // Fails only if a callback does, and ours never does.
  shards_->Consume().IgnoreError();
  CountDrops();
  ApplyOrdered();
  EncodeSlotsUntil(UINT64_MAX);
  for (auto& stream : streams_) horizon_ns_ = std::max(horizon_ns_, stream->last_ns());
  return counts_.total() - before;
}

void Drain::Keep(const event_header& header, size_t size, Arena& arena,
                 std::vector<Waiting>& waiting) {
  size_t words = (size + sizeof(uint64_t) - 1) / sizeof(uint64_t);
  size_t offset = arena.size();
  arena.resize(offset + words);
  memcpy(&arena[offset], &header, size);
  waiting.push_back({.boot_ns = header.boot_ns, .offset = offset, .size = size});
}

void Drain::OnEvent(const event_header& header, size_t size) {
  if (!IsWholeEvent(header, size) || header.cpu >= streams_.size()) {
    ++counts_.malformed;
    return;
  }
  if (header.boot_ns > horizon_ns_) {
    Keep(header, size, deferred_arena_, deferred_);
  } else {
    Dispatch(header, size);
  }
}

void Drain::RetryDeferred() {
  Arena arena = std::exchange(deferred_arena_, {});
  std::vector<Waiting> waiting = std::exchange(deferred_, {});
  for (const Waiting& event : waiting) {
    OnEvent(*reinterpret_cast<const event_header*>(&arena[event.offset]), event.size);
  }
}

void Drain::Dispatch(const event_header& header, size_t size) {
  if (header.type == EVENT_KICK) return;
  if (header.type == EVENT_SLOT) {
    streams_[header.cpu]->Queue(As<slot_event>(header).slot);
  } else if (ChangesNames(header.type)) {
    Keep(header, size, ordered_arena_, ordered_);
  } else {
    Encode(header);
  }
}

void Drain::Encode(const event_header& header) {
  CpuStream& stream = *streams_[header.cpu];
  EncodeEvent(header, stream.bundle());
  ++counts_.events[header.type];
  if (stream.bundle().full()) Flush(stream);
}

void Drain::ApplyOrdered() {
  std::stable_sort(ordered_.begin(), ordered_.end(),
                   [](const Waiting& a, const Waiting& b) { return a.boot_ns < b.boot_ns; });
  for (const Waiting& event : ordered_) {
    const auto& header = *reinterpret_cast<const event_header*>(&ordered_arena_[event.offset]);
    EncodeSlotsUntil(header.boot_ns);
    // An end that comes late would end, for a reader, the number's new owner.
    if (Apply(header)) Encode(header);
  }
  ordered_.clear();
  ordered_arena_.clear();
}

// False for what the trace must not say.
bool Drain::Apply(const event_header& header) {
  switch (header.type) {
    case EVENT_NEWTASK:
      tasks_.OnNewTask(As<newtask_event>(header));
      return true;
    case EVENT_RENAME:
      tasks_.OnRename(As<rename_event>(header));
      return true;
    case EVENT_EXEC:
      ApplyExec(As<exec_event>(header));
      return true;
    default:
      return tasks_.OnFree(As<task_event>(header));
  }
}

// What a process became is said at once, so that it is known by its new
// command line from here on, in every file that has the exec.
void Drain::ApplyExec(const exec_event& exec) {
  std::vector<std::string> cmdline = ExecArguments(exec);
  ApplyPrivacy(privacy_, cmdline);
  tasks_.OnExec(exec, std::move(cmdline));
  perfetto::TracePacket packet;
  packet.set_timestamp(exec.header.boot_ns);
  tasks_.FillProcess(exec.tgid, *packet.mutable_process_tree());
  sealer_.AddPacket(packet);
}

void Drain::EncodeSlotsUntil(uint64_t boot_ns) {
  for (auto& stream : streams_) EncodeSlots(*stream, boot_ns);
}

void Drain::EncodeSlots(CpuStream& stream, uint64_t until_ns) {
  while (true) {
    const DecodedSlot* slot = stream.Peek();
    if (uint64_t lost = stream.TakeLost(); lost > 0) {
      NoteLostSlots(stream, lost, slot != nullptr ? slot->boot_ns : horizon_ns_);
    }
    if (slot == nullptr || slot->boot_ns >= until_ns) return;
    if (slot->type == SLOT_SWITCH) ++counts_.switches;
    if (slot->type == SLOT_WAKING) ++counts_.wakings;
    stream.Take(tasks_);
    if (stream.bundle().full()) Flush(stream);
  }
}

void Drain::NoteLostSlots(CpuStream& stream, uint64_t lost, uint64_t end_ns) {
  losses_.Add("sched", trace::Loss::OVERWRITTEN, static_cast<int32_t>(stream.cpu()), lost,
              std::max(stream.last_ns(), sealer_.begin_ns()), end_ns);
  Flush(stream);
  stream.bundle().MarkLost();
  stream.ForgetRunning();
}

void Drain::CountDrops() {
  for (uint32_t cpu = 0; cpu < streams_.size(); ++cpu) {
    const drop_counters& now = shards_->drops()[cpu];
    bool has_lost = false;
    for (uint16_t type = 0; type < EVENT_TYPES; ++type) {
      uint64_t count = *const_cast<const volatile __u64*>(&now.dropped[type]);
      uint64_t lost = count - std::exchange(seen_drops_[cpu].dropped[type], count);
      if (lost == 0) continue;
      has_lost = true;
      tasks_lost_ |= ChangesNames(type);
      if (type == EVENT_SLOT) streams_[cpu]->ForgetRunning();
      losses_.Add(SourceOf(type), trace::Loss::BUFFER_FULL, static_cast<int32_t>(cpu), lost,
                  last_horizon_ns_, horizon_ns_);
    }
    if (!has_lost) continue;
    Flush(*streams_[cpu]);
    streams_[cpu]->bundle().MarkLost();
  }
}

void Drain::CountRecursionMisses() {
  for (const RecursionMisses& misses : probes_->recursion_misses()) {
    uint64_t& seen = seen_misses_[misses.source];
    uint64_t lost = misses.count - std::exchange(seen, misses.count);
    tasks_lost_ |= lost > 0 && misses.source == "task";
    losses_.Add(misses.source, trace::Loss::RECURSION, LossLedger::kNoCpu, lost, sealer_.begin_ns(),
                horizon_ns_);
  }
}

void Drain::Flush(CpuStream& stream) {
  if (stream.bundle().empty()) return;
  stream.bundle().Finish(sealer_.body());
  if (sealer_.body().size() >= kMaxBodyBytes) sealer_.Seal(horizon_ns_);
}

void Drain::FlushBundles() {
  for (auto& stream : streams_) Flush(*stream);
}

std::vector<RunningThread> Drain::Running() {
  std::vector<RunningThread> running;
  for (auto& stream : streams_) running.push_back(stream->Running(tasks_));
  return running;
}

void Drain::SetCoveredUntilHorizon() {
  for (auto& stream : streams_) stream->bundle().SetCoveredUntil(horizon_ns_);
}

void Drain::ResetCounts() { counts_ = {}; }

}  // namespace aitrace
