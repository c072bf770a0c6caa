// What every probe needs: the shared maps, and how an event gets into its
// CPU's shard. The maps are made by user space and handed to each object.
#ifndef AITRACE_PROBES_PROBE_H_
#define AITRACE_PROBES_PROBE_H_

#include "probes/core_types.h"
// After the types.
#include <bpf/bpf_helpers.h>

#include "probes/record.h"

// Set by user space before loading.
const volatile __u32 shard_mask = 0;       // Shards, a power of two, less one.
const volatile __u64 wake_mark_bytes = 0;  // A shard this full wakes the reader.

// A BPF ring buffer for each shard of CPUs.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
  __uint(max_entries, 1);
  __type(key, __u32);
  __array(
      values, struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
      });
} events SEC(".maps");

// A drop_counters for each CPU.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct drop_counters);
} drops SEC(".maps");

static __always_inline void count_drop(__u32 type) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct drop_counters* counters = bpf_map_lookup_elem(&drops, &cpu);
  if (counters && type < EVENT_TYPES) __sync_fetch_and_add(&counters->dropped[type], 1);
}

static __always_inline void* cpu_shard(void) {
  __u32 shard = bpf_get_smp_processor_id() & shard_mask;
  return bpf_map_lookup_elem(&events, &shard);
}

static __always_inline void fill_header(struct event_header* header, __u32 type) {
  header->boot_ns = bpf_ktime_get_boot_ns();
  header->type = type;
  header->cpu = bpf_get_smp_processor_id();
  header->pid = (__u32)bpf_get_current_pid_tgid();
}

// One wake-up when a shard passes the mark; the reader's timer does the rest.
static __always_inline __u64 wake_flags(void* shard, __u64 size_bytes) {
  __u64 waiting_bytes = bpf_ringbuf_query(shard, BPF_RB_AVAIL_DATA);
  bool passes = waiting_bytes >= wake_mark_bytes && waiting_bytes - size_bytes < wake_mark_bytes;
  return passes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

// Room for an event of type T, its header filled in; NULL, and the
// drop counted, when there is none. Submit it with submit_event().
#define reserve_event(T, event_type)                                  \
  ({                                                                  \
    T* reserved = NULL;                                               \
    void* shard_ = cpu_shard();                                       \
    if (shard_) reserved = bpf_ringbuf_reserve(shard_, sizeof(T), 0); \
    if (reserved)                                                     \
      fill_header((struct event_header*)reserved, event_type);        \
    else                                                              \
      count_drop(event_type);                                         \
    reserved;                                                         \
  })

#define submit_event(event)                                                       \
  do {                                                                            \
    void* shard_ = cpu_shard();                                                   \
    bpf_ringbuf_submit(event, shard_ ? wake_flags(shard_, sizeof(*(event))) : 0); \
  } while (0)

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif  // AITRACE_PROBES_PROBE_H_
