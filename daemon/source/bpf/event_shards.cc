#include "daemon/source/bpf/event_shards.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "daemon/source/bpf/bpf_status.h"

namespace aitrace {

absl::StatusOr<std::unique_ptr<EventShards>> EventShards::Create(uint32_t cpus,
                                                                 uint32_t buffer_bytes,
                                                                 OnEvent on_event) {
  std::unique_ptr<EventShards> shards(new EventShards(cpus, buffer_bytes, std::move(on_event)));
  RETURN_IF_ERROR(shards->CreateMaps());
  RETURN_IF_ERROR(shards->MapDrops());
  return shards;
}

EventShards::~EventShards() {
  ring_buffer__free(consumer_);
  if (drop_counters_ != nullptr) munmap(const_cast<drop_counters*>(drop_counters_), drops_bytes_);
}

absl::Status EventShards::CreateMaps() {
  uint32_t count = std::min(std::bit_ceil(cpus_), kMaxShards);
  for (uint32_t i = 0; i < count; ++i) {
    int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "aitrace_events", 0, 0, buffer_bytes_, nullptr);
    if (fd < 0) return BpfStatus(errno, "create a BPF ring buffer");
    shards_.emplace_back(fd);
  }
  LIBBPF_OPTS(bpf_map_create_opts, options);
  options.inner_map_fd = static_cast<uint32_t>(shards_[0].get());
  buffers_.reset(bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "aitrace_shards", sizeof(uint32_t),
                                sizeof(uint32_t), count, &options));
  if (!buffers_) return ErrnoStatus(errno, "create the BPF map of ring buffers");
  for (uint32_t i = 0; i < count; ++i) {
    int fd = shards_[i].get();
    if (bpf_map_update_elem(buffers_.get(), &i, &fd, BPF_ANY) != 0) {
      return ErrnoStatus(errno, "fill the BPF map of ring buffers");
    }
    int error = 0;
    if (consumer_ == nullptr) {
      consumer_ = ring_buffer__new(fd, HandleSample, this, nullptr);
      error = consumer_ == nullptr ? -errno : 0;
    } else {
      error = ring_buffer__add(consumer_, fd, HandleSample, this);
    }
    if (error != 0) return ErrnoStatus(-error, "map a BPF ring buffer");
  }
  return absl::OkStatus();
}

absl::Status EventShards::MapDrops() {
  int possible = libbpf_num_possible_cpus();
  if (possible < 0) return ErrnoStatus(-possible, "count the possible CPUs");
  possible_cpus_ = static_cast<uint32_t>(possible);
  LIBBPF_OPTS(bpf_map_create_opts, options);
  options.map_flags = BPF_F_MMAPABLE;
  drops_.reset(bpf_map_create(BPF_MAP_TYPE_ARRAY, "aitrace_drops", sizeof(uint32_t),
                              sizeof(drop_counters), possible_cpus_, &options));
  if (!drops_) return ErrnoStatus(errno, "create the BPF map of drop counters");
  size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  drops_bytes_ = (possible_cpus_ * sizeof(drop_counters) + page - 1) / page * page;
  void* memory = mmap(nullptr, drops_bytes_, PROT_READ, MAP_SHARED, drops_.get(), 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "map the BPF drop counters");
  drop_counters_ = static_cast<const drop_counters*>(memory);
  return absl::OkStatus();
}

int EventShards::HandleSample(void* self, void* data, size_t size) {
  if (size < sizeof(event_header)) return 0;
  static_cast<EventShards*>(self)->on_event_(*static_cast<const event_header*>(data), size);
  return 0;
}

int EventShards::epoll_fd() const { return ring_buffer__epoll_fd(consumer_); }

absl::Status EventShards::Consume() {
  int consumed = ring_buffer__consume(consumer_);
  return consumed < 0 ? ErrnoStatus(-consumed, "read the BPF ring buffers") : absl::OkStatus();
}

}  // namespace aitrace
