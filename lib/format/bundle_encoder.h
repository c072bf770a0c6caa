// Encodes one CPU's events into FtraceEventBundle packets: switches and wakings
// as compact_sched, column by column, everything else as FtraceEvents.
//
// Cost: no allocation per event; columns are written in place and copied once,
//   when the bundle is finished.
// Bound: kMaxBundleEvents of each compact kind and kMaxEventBytes of others;
//   full() says when to Finish(). About 140 KiB per encoder.
// Threading: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lib/format/wire.h"

namespace aitrace {

// A thread's name at one time. Ids are never used twice, so that an encoder
// can tell by the id alone that it has interned this name already.
struct TaskName {
  uint64_t id = 0;
  char bytes[16] = {};  // As the kernel holds it; NUL-terminated.
  absl::string_view view() const { return bytes; }
};

// The fields of one FtraceEvent's inner message, in place. Takes what fits:
// every event that aitrace writes has a bound below kBytes.
class EventBody {
 public:
  static constexpr size_t kBytes = 640;

  EventBody& Varint(uint32_t field, uint64_t value) {
    end_ = wire::WriteVarint(wire::Tag(field, wire::kVarint), end_);
    end_ = wire::WriteVarint(value, end_);
    return *this;
  }
  // Negative int32 and int64 values take ten bytes, as protobuf has it.
  EventBody& Int(uint32_t field, int64_t value) {
    return Varint(field, static_cast<uint64_t>(value));
  }
  EventBody& Bytes(uint32_t field, absl::string_view bytes) {
    end_ = wire::WriteVarint(wire::Tag(field, wire::kLengthDelimited), end_);
    end_ = wire::WriteVarint(bytes.size(), end_);
    memcpy(end_, bytes.data(), bytes.size());
    end_ += bytes.size();
    return *this;
  }
  absl::string_view view() const {
    return {reinterpret_cast<const char*>(bytes_.data()),
            static_cast<size_t>(end_ - bytes_.data())};
  }

 private:
  std::array<uint8_t, kBytes> bytes_;
  uint8_t* end_ = bytes_.data();
};

class BundleEncoder {
 public:
  static constexpr size_t kMaxBundleEvents = 2048;
  static constexpr size_t kMaxEventBytes = 64 * 1024;

  explicit BundleEncoder(uint32_t cpu);

  // Times are BOOTTIME ns. One that lies before the last of its kind on this
  // CPU (an interrupt's waking nested in another) is moved up to it.
  void AddSwitch(uint64_t ts, int32_t prev_state, int32_t next_pid, int32_t next_prio,
                 const TaskName& next_name);
  void AddWaking(uint64_t ts, int32_t pid, int32_t target_cpu, int32_t prio, uint32_t flags,
                 const TaskName& name);
  // `field` is the event's number in FtraceEvent.
  void AddEvent(uint64_t ts, int32_t current_pid, uint32_t field, const EventBody& body);

  // From here on, events of this CPU are missing before what is added next.
  // Call on an empty encoder.
  void MarkLost() { lost_ = true; }
  // Everything of this CPU up to `ts` has been said: in an earlier bundle, or,
  // at a file's start, because the file starts there.
  void SetCoveredUntil(uint64_t ts);

  bool empty() const { return switches_ == 0 && wakings_ == 0 && events_.empty() && !lost_; }
  bool full() const {
    return switches_ == kMaxBundleEvents || wakings_ == kMaxBundleEvents ||
           events_.size() >= kMaxEventBytes;
  }
  // Appends the bundle's TracePacket to `out` and starts the next one.
  void Finish(std::string& out);

 private:
  // One packed array: room for kMaxBundleEvents values of up to kValueBytes.
  template <size_t kValueBytes>
  class Column {
   public:
    void Add(uint64_t value) { end_ = wire::WriteVarint(value, end_); }
    absl::string_view view() const {
      return {reinterpret_cast<const char*>(bytes_.get()),
              static_cast<size_t>(end_ - bytes_.get())};
    }
    void Clear() { end_ = bytes_.get(); }

   private:
    std::unique_ptr<uint8_t[]> bytes_{new uint8_t[kMaxBundleEvents * kValueBytes]};
    uint8_t* end_ = bytes_.get();
  };

  struct CachedName {
    uint64_t id = 0;
    uint32_t bundle = 0;
    uint32_t index = 0;
  };

  uint32_t Intern(const TaskName& name);
  void AppendCompactSched(std::string& out) const;
  void Reset();

  const uint32_t cpu_;
  bool lost_ = false;
  uint64_t covered_until_ = 0;  // previous_bundle_end_timestamp.
  uint64_t last_ts_ = 0;        // The newest event of this bundle.
  uint64_t floor_switch_ts_ = 0;
  uint64_t floor_waking_ts_ = 0;

  size_t switches_ = 0;
  uint64_t delta_switch_ts_ = 0;  // What the next switch's stamp is relative to.
  Column<10> switch_ts_;
  Column<2> switch_state_;
  Column<4> switch_pid_;
  Column<10> switch_prio_;
  Column<2> switch_name_;

  size_t wakings_ = 0;
  uint64_t delta_waking_ts_ = 0;
  Column<10> waking_ts_;
  Column<4> waking_pid_;
  Column<3> waking_cpu_;
  Column<10> waking_prio_;
  Column<2> waking_name_;
  Column<1> waking_flags_;

  uint32_t bundle_ = 1;  // Which bundle a cached name's index belongs to.
  uint32_t names_ = 0;
  std::string intern_table_;
  std::array<CachedName, 256> cache_{};

  std::string events_;
  std::string message_;  // Scratch of Finish().
};

}  // namespace aitrace
