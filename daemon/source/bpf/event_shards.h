// The BPF ring buffers for everything but switches and wakings: one for each
// shard of CPUs, the map of them that the probes look into, and the counters
// of what found no room.
//
// Bound: kMaxShards buffers of the configured size.
// Threading: one consumer.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "lib/base/status.h"
#include "lib/base/unique_fd.h"
#include "probes/record.h"

struct ring_buffer;

namespace aitrace {

class EventShards {
 public:
  static constexpr uint32_t kMaxShards = 64;
  // `header` starts `size` valid bytes; size is at least that of the header.
  using OnEvent = std::function<void(const event_header& header, size_t size)>;

  // Buffers for `cpus` CPUs; others share them.
  static absl::StatusOr<std::unique_ptr<EventShards>> Create(uint32_t cpus, uint32_t buffer_bytes,
                                                             OnEvent on_event);
  ~EventShards();
  EventShards(const EventShards&) = delete;
  EventShards& operator=(const EventShards&) = delete;

  // For the probes: the map of buffers, the map of counters, the rodata.
  int buffers_fd() const { return buffers_.get(); }
  int drops_fd() const { return drops_.get(); }
  uint32_t shard_mask() const { return static_cast<uint32_t>(shards_.size()) - 1; }
  uint64_t wake_mark_bytes() const { return buffer_bytes_ / 2; }

  // Becomes readable when a buffer passes the mark or a probe kicks.
  int epoll_fd() const;
  // Hands over all that is there now.
  absl::Status Consume();

  // Of each CPU that there may ever be; only ever grow.
  absl::Span<const drop_counters> drops() const { return {drop_counters_, possible_cpus_}; }
  uint64_t kernel_bytes() const { return static_cast<uint64_t>(buffer_bytes_) * shards_.size(); }

 private:
  EventShards(uint32_t cpus, uint32_t buffer_bytes, OnEvent on_event)
      : cpus_(cpus), buffer_bytes_(buffer_bytes), on_event_(std::move(on_event)) {}
  absl::Status CreateMaps();
  absl::Status MapDrops();
  static int HandleSample(void* self, void* data, size_t size);

  const uint32_t cpus_;
  uint32_t possible_cpus_ = 0;
  const uint32_t buffer_bytes_;
  const OnEvent on_event_;
  std::vector<UniqueFd> shards_;
  UniqueFd buffers_;
  UniqueFd drops_;
  const drop_counters* drop_counters_ = nullptr;
  size_t drops_bytes_ = 0;
  ring_buffer* consumer_ = nullptr;
};

}  // namespace aitrace
