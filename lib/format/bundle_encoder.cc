#include "lib/format/bundle_encoder.h"

#include <algorithm>

namespace aitrace {
namespace {

// Field numbers of Perfetto's schema.
constexpr uint32_t kTracePacket = 1;
constexpr uint32_t kPacketFtraceEvents = 1;
constexpr uint32_t kPacketSequenceId = 10;
constexpr uint32_t kBundleCpu = 1;
constexpr uint32_t kBundleEvent = 2;
constexpr uint32_t kBundleLostEvents = 3;
constexpr uint32_t kBundleCompactSched = 4;
constexpr uint32_t kBundlePreviousEnd = 10;
constexpr uint32_t kEventTimestamp = 1;
constexpr uint32_t kEventPid = 2;
constexpr uint32_t kInternTable = 5;

constexpr uint32_t kSequenceId = 1;

void AppendVarintField(uint32_t field, uint64_t value, std::string& out) {
  wire::AppendVarint(wire::Tag(field, wire::kVarint), out);
  wire::AppendVarint(value, out);
}

}  // namespace

BundleEncoder::BundleEncoder(uint32_t cpu) : cpu_(cpu) {}

void BundleEncoder::SetCoveredUntil(uint64_t ts) {
  covered_until_ = std::max(covered_until_, ts);
  floor_switch_ts_ = std::max(floor_switch_ts_, ts);
  floor_waking_ts_ = std::max(floor_waking_ts_, ts);
}

uint32_t BundleEncoder::Intern(const TaskName& name) {
  CachedName& cached = cache_[name.id % cache_.size()];
  if (cached.id == name.id && cached.bundle == bundle_) return cached.index;
  // A name that fell out of the cache is interned again; readers do not mind.
  cached = {.id = name.id, .bundle = bundle_, .index = names_};
  wire::AppendLengthDelimited(kInternTable, name.view(), intern_table_);
  return names_++;
}

void BundleEncoder::AddSwitch(uint64_t ts, int32_t prev_state, int32_t next_pid, int32_t next_prio,
                              const TaskName& next_name) {
  ts = std::max(ts, floor_switch_ts_);
  switch_ts_.Add(ts - delta_switch_ts_);
  switch_state_.Add(static_cast<uint64_t>(prev_state));
  switch_pid_.Add(static_cast<uint64_t>(next_pid));
  switch_prio_.Add(static_cast<uint64_t>(static_cast<int64_t>(next_prio)));
  switch_name_.Add(Intern(next_name));
  delta_switch_ts_ = floor_switch_ts_ = ts;
  last_ts_ = std::max(last_ts_, ts);
  ++switches_;
}

void BundleEncoder::AddWaking(uint64_t ts, int32_t pid, int32_t target_cpu, int32_t prio,
                              uint32_t flags, const TaskName& name) {
  ts = std::max(ts, floor_waking_ts_);
  waking_ts_.Add(ts - delta_waking_ts_);
  waking_pid_.Add(static_cast<uint64_t>(pid));
  waking_cpu_.Add(static_cast<uint64_t>(target_cpu));
  waking_prio_.Add(static_cast<uint64_t>(static_cast<int64_t>(prio)));
  waking_name_.Add(Intern(name));
  waking_flags_.Add(flags & 0x7f);
  delta_waking_ts_ = floor_waking_ts_ = ts;
  last_ts_ = std::max(last_ts_, ts);
  ++wakings_;
}

void BundleEncoder::AddEvent(uint64_t ts, int32_t current_pid, uint32_t field,
                             const EventBody& body) {
  std::array<uint8_t, 4 * wire::kMaxVarintBytes> head;
  uint8_t* end = wire::WriteVarint(wire::Tag(kEventTimestamp, wire::kVarint), head.data());
  end = wire::WriteVarint(ts, end);
  end = wire::WriteVarint(wire::Tag(kEventPid, wire::kVarint), end);
  end = wire::WriteVarint(static_cast<uint32_t>(current_pid), end);
  end = wire::WriteVarint(wire::Tag(field, wire::kLengthDelimited), end);
  end = wire::WriteVarint(body.view().size(), end);
  size_t head_bytes = static_cast<size_t>(end - head.data());

  wire::AppendVarint(wire::Tag(kBundleEvent, wire::kLengthDelimited), events_);
  wire::AppendVarint(head_bytes + body.view().size(), events_);
  events_.append(reinterpret_cast<char*>(head.data()), head_bytes);
  events_.append(body.view().data(), body.view().size());
  last_ts_ = std::max(last_ts_, ts);
}

void BundleEncoder::AppendCompactSched(std::string& out) const {
  out.append(intern_table_);
  if (switches_ > 0) {
    wire::AppendLengthDelimited(1, switch_ts_.view(), out);
    wire::AppendLengthDelimited(2, switch_state_.view(), out);
    wire::AppendLengthDelimited(3, switch_pid_.view(), out);
    wire::AppendLengthDelimited(4, switch_prio_.view(), out);
    wire::AppendLengthDelimited(6, switch_name_.view(), out);
  }
  if (wakings_ > 0) {
    wire::AppendLengthDelimited(7, waking_ts_.view(), out);
    wire::AppendLengthDelimited(8, waking_pid_.view(), out);
    wire::AppendLengthDelimited(9, waking_cpu_.view(), out);
    wire::AppendLengthDelimited(10, waking_prio_.view(), out);
    wire::AppendLengthDelimited(11, waking_name_.view(), out);
    wire::AppendLengthDelimited(12, waking_flags_.view(), out);
  }
}

void BundleEncoder::Finish(std::string& out) {
  message_.clear();
  AppendVarintField(kBundleCpu, cpu_, message_);
  if (lost_) AppendVarintField(kBundleLostEvents, 1, message_);
  message_.append(events_);
  if (switches_ + wakings_ > 0) {
    std::string compact;
    AppendCompactSched(compact);
    wire::AppendLengthDelimited(kBundleCompactSched, compact, message_);
  }
  AppendVarintField(kBundlePreviousEnd, covered_until_, message_);

  std::string packet;
  wire::AppendLengthDelimited(kPacketFtraceEvents, message_, packet);
  AppendVarintField(kPacketSequenceId, kSequenceId, packet);
  wire::AppendLengthDelimited(kTracePacket, packet, out);
  Reset();
}

void BundleEncoder::Reset() {
  covered_until_ = std::max(covered_until_, last_ts_);
  last_ts_ = 0;
  lost_ = false;
  switches_ = wakings_ = 0;
  delta_switch_ts_ = delta_waking_ts_ = 0;
  switch_ts_.Clear();
  switch_state_.Clear();
  switch_pid_.Clear();
  switch_prio_.Clear();
  switch_name_.Clear();
  waking_ts_.Clear();
  waking_pid_.Clear();
  waking_cpu_.Clear();
  waking_prio_.Clear();
  waking_name_.Clear();
  waking_flags_.Clear();
  ++bundle_;
  names_ = 0;
  intern_table_.clear();
  events_.clear();
}

}  // namespace aitrace
