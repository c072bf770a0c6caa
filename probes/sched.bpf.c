// Switches and wakings: the two hottest tracepoints of the kernel. Both fire
// with interrupts off, except for a thread that wakes itself, in which an
// interrupt's waking can nest; so a slot is taken with an atomic add.
#include "probes/probe.h"
// After the types.
#include <bpf/bpf_core_read.h>

// Set by user space before loading.
const volatile __u32 slot_mask = 0;   // Slots of a ring, a power of two, less one.
const volatile __u32 lap_shift = 0;   // log2 of the slots.
const volatile bool switch_has_prev_state = false;  // 4th argument, since 5.18.

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

#define PREEMPT_HARDIRQ_MASK 0xf0000
#define PREEMPT_SOFTIRQ_SERVING 0x100
#define TASK_DEAD 0x80

// A slot_ring for each CPU; user space sets the sizes.
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(map_flags, BPF_F_MMAPABLE);
  __uint(max_entries, 1);
  __uint(key_size, sizeof(__u32));
  __uint(value_size, sizeof(struct slot_ring) + 2 * sizeof(struct slot));
} slot_rings SEC(".maps");

static __always_inline void kick_reader(void) {
  void *shard = cpu_shard();
  struct event_header kick = {};
  if (!shard) return;
  fill_header(&kick, EVENT_KICK);
  // A full buffer has woken its reader already.
  bpf_ringbuf_output(shard, &kick, sizeof(kick), BPF_RB_FORCE_WAKEUP);
}

static __always_inline void put_slot(__u64 type, __u64 body) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct slot_ring *ring = bpf_map_lookup_elem(&slot_rings, &cpu);
  if (!ring) return;
  __u64 now = bpf_ktime_get_boot_ns() & SLOT_TIME_MASK;
  __u64 index = __sync_fetch_and_add(&ring->head, 1);
  volatile struct slot *slot = &ring->slots[index & slot_mask];
  slot->body = body;
  slot->stamp =
      ((index >> lap_shift) & SLOT_LAP_MASK) << SLOT_LAP_SHIFT | type << SLOT_TYPE_SHIFT | now;
  if ((index & (slot_mask >> 1)) == 0 && index) kick_reader();
}

static __always_inline void send_slot(__u64 type, __u64 body) {
  struct slot_event *event = reserve_event(struct slot_event, EVENT_SLOT);
  if (!event) return;
  event->slot.stamp = type << SLOT_TYPE_SHIFT | (event->header.boot_ns & SLOT_TIME_MASK);
  event->slot.body = body;
  submit_event(event);
}

static __always_inline __u64 thread_bits(struct task_struct *task) {
  return ((__u64)task->pid & SLOT_PID_MASK) | (__u64)(__u8)task->prio << SLOT_PRIO_SHIFT;
}

static __always_inline __u64 raw_state(__u64 *ctx, struct task_struct *prev) {
  if (switch_has_prev_state) return ctx[3];
  if (bpf_core_field_exists(prev->__state)) return prev->__state;
  return ((struct task_struct___before_5_14 *)prev)->state;
}

static __always_inline __u64 switch_body(__u64 *ctx) {
  struct task_struct *prev = (struct task_struct *)ctx[1];
  struct task_struct *next = (struct task_struct *)ctx[2];
  __u64 state = raw_state(ctx, prev) & 0xffff;
  __u64 body = thread_bits(next) | state << SLOT_STATE_SHIFT |
               (__u64)((__u8)ctx[0] != 0) << SLOT_PREEMPT_SHIFT;
  if (state & TASK_DEAD) body |= (__u64)(__u8)prev->exit_state << SLOT_EXIT_STATE_SHIFT;
  return body;
}

static __always_inline int preempt_count(void) {
  if (&__preempt_count) {
    return *(const int *)bpf_this_cpu_ptr(&__preempt_count);
  }
  if (&pcpu_hot) {
    return ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
  }
  return 0;
}

static __always_inline __u64 interrupt_flags(void) {
  int count = preempt_count();
  __u64 flags = 0;
  if (count & PREEMPT_HARDIRQ_MASK) flags |= WAKING_HARDIRQ;
  if (count & PREEMPT_SOFTIRQ_SERVING) flags |= WAKING_SOFTIRQ;
  return flags;
}

static __always_inline __u64 task_cpu(struct task_struct *task) {
  if (bpf_core_field_exists(task->thread_info.cpu)) return task->thread_info.cpu;
  return ((struct task_struct___before_5_16 *)task)->cpu;
}

static __always_inline __u64 waking_body(__u64 *ctx) {
  struct task_struct *task = (struct task_struct *)ctx[0];
  return thread_bits(task) | (task_cpu(task) & 0xffff) << SLOT_CPU_SHIFT |
         interrupt_flags() << SLOT_FLAGS_SHIFT;
}

SEC("tp_btf/sched_switch")
int slot_sched_switch(__u64 *ctx) {
  put_slot(SLOT_SWITCH, switch_body(ctx));
  return 0;
}

SEC("tp_btf/sched_waking")
int slot_sched_waking(__u64 *ctx) {
  put_slot(SLOT_WAKING, waking_body(ctx));
  return 0;
}

// For kernels before 5.12, which have no atomic that returns the old value.
SEC("?tp_btf/sched_switch")
int event_sched_switch(__u64 *ctx) {
  send_slot(SLOT_SWITCH, switch_body(ctx));
  return 0;
}

SEC("?tp_btf/sched_waking")
int event_sched_waking(__u64 *ctx) {
  send_slot(SLOT_WAKING, waking_body(ctx));
  return 0;
}
