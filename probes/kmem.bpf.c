// Page allocations: all large ones (a large kmalloc is one of these), and a
// sample of the rest. Every kmalloc would be 20 times the volume of switches.
#include "probes/probe.h"

// Set by user space before loading.
const volatile __u32 large_order = 4;
const volatile __u32 sample_every = 256;  // 0: no small ones.

// Small allocations seen, per CPU.
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u64);
} seen SEC(".maps");

static __always_inline bool is_sampled(void) {
  __u32 zero = 0;
  __u64* count = bpf_map_lookup_elem(&seen, &zero);
  if (!count || sample_every == 0) return false;
  if (++*count < sample_every) return false;
  *count = 0;
  return true;
}

SEC("tp_btf/mm_page_alloc")
int mm_page_alloc(__u64* ctx) {
  __u32 order = ctx[1];
  if (order < large_order && !is_sampled()) return 0;
  struct page_alloc_event* event = reserve_event(struct page_alloc_event, EVENT_PAGE_ALLOC);
  if (!event) return 0;
  event->order = order;
  event->gfp_flags = ctx[2];
  event->migratetype = ctx[3];
  event->unused = 0;
  submit_event(event);
  return 0;
}
