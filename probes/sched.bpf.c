// Switches and wakings: the two hottest tracepoints of the kernel. Both fire
// with interrupts off, except for a thread that wakes itself, in which an
// interrupt's waking can nest; so a slot is taken with an atomic add.
#include "probes/probe.h"
// After the types.
#include <bpf/bpf_core_read.h>

// Set by user space before loading.
const volatile __u32 slot_mask = 0;                 // Slots of a ring, a power of two, less one.
const volatile __u32 lap_shift = 0;                 // log2 of the slots.
const volatile bool switch_has_prev_state = false;  // 4th argument, since 5.18.

// Where in a CPU's own memory its run queue and its preemption count are; 0
// where the kernel's BTF does not say.
const volatile __u64 runqueue_offset = 0;
const volatile __u64 preempt_count_offset = 0;

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
  void* shard = cpu_shard();
  struct event_header kick = {};
  if (!shard) return;
  fill_header(&kick, EVENT_KICK);
  // A full buffer has woken its reader already.
  bpf_ringbuf_output(shard, &kick, sizeof(kick), BPF_RB_FORCE_WAKEUP);
}

static __always_inline void put_slot(__u64 type, __u64 body) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct slot_ring* ring = bpf_map_lookup_elem(&slot_rings, &cpu);
  if (!ring) {
    count_drop(EVENT_SLOT);  // A CPU that was plugged in later.
    return;
  }
  __u64 now = bpf_ktime_get_boot_ns() & SLOT_TIME_MASK;
  __u64 index = __sync_fetch_and_add(&ring->head, 1);
  volatile struct slot* slot = &ring->slots[index & slot_mask];
  slot->body = body;
  slot->stamp =
      ((index >> lap_shift) & SLOT_LAP_MASK) << SLOT_LAP_SHIFT | type << SLOT_TYPE_SHIFT | now;
  if ((index & (slot_mask >> 1)) == 0 && index) kick_reader();
}

static __always_inline void send_slot(__u64 type, __u64 body) {
  struct slot_event* event = reserve_event(struct slot_event, EVENT_SLOT);
  if (!event) return;
  event->slot.stamp = type << SLOT_TYPE_SHIFT | (event->header.boot_ns & SLOT_TIME_MASK);
  event->slot.body = body;
  submit_event(event);
}

static __always_inline __u64 thread_bits(struct task_struct* task) {
  return ((__u64)task->pid & SLOT_PID_MASK) | (__u64)(__u8)task->prio << SLOT_PRIO_SHIFT;
}

static __always_inline __u64 raw_state(__u64* ctx, struct task_struct* prev) {
  if (switch_has_prev_state) return ctx[3];
  if (bpf_core_field_exists(prev->__state)) return prev->__state;
  return ((struct task_struct___before_5_14*)prev)->state;
}

static __always_inline __u64 switch_body(__u64* ctx) {
  struct task_struct* prev = (struct task_struct*)ctx[1];
  struct task_struct* next = (struct task_struct*)ctx[2];
  __u64 state = raw_state(ctx, prev) & 0xffff;
  __u64 body = thread_bits(next) | state << SLOT_STATE_SHIFT |
               (__u64)((__u8)ctx[0] != 0) << SLOT_PREEMPT_SHIFT;
  if (state & TASK_DEAD) body |= (__u64)(__u8)prev->exit_state << SLOT_EXIT_STATE_SHIFT;
  return body;
}

static __always_inline __u64 interrupt_flags(void) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct slot_ring* ring = bpf_map_lookup_elem(&slot_rings, &cpu);
  int count = 0;
  __u64 flags = 0;
  if (!ring || !ring->preempt_count_address) return 0;
  bpf_probe_read_kernel(&count, sizeof(count), (const void*)ring->preempt_count_address);
  if (count & PREEMPT_HARDIRQ_MASK) flags |= WAKING_HARDIRQ;
  if (count & PREEMPT_SOFTIRQ_SERVING) flags |= WAKING_SOFTIRQ;
  return flags;
}

static __always_inline __u64 task_cpu(struct task_struct* task) {
  if (bpf_core_field_exists(task->thread_info.cpu)) return task->thread_info.cpu;
  return ((struct task_struct___before_5_16*)task)->cpu;
}

static __always_inline __u64 waking_body(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  return thread_bits(task) | (task_cpu(task) & 0xffff) << SLOT_CPU_SHIFT |
         interrupt_flags() << SLOT_FLAGS_SHIFT;
}

SEC("tp_btf/sched_switch")
int slot_sched_switch(__u64* ctx) {
  put_slot(SLOT_SWITCH, switch_body(ctx));
  return 0;
}

SEC("tp_btf/sched_waking")
int slot_sched_waking(__u64* ctx) {
  put_slot(SLOT_WAKING, waking_body(ctx));
  return 0;
}

// For kernels before 5.12, which have no atomic that returns the old value.
SEC("?tp_btf/sched_switch")
int event_sched_switch(__u64* ctx) {
  send_slot(SLOT_SWITCH, switch_body(ctx));
  return 0;
}

SEC("?tp_btf/sched_waking")
int event_sched_waking(__u64* ctx) {
  send_slot(SLOT_WAKING, waking_body(ctx));
  return 0;
}

// The rest is run by user space, once on each CPU, at the start.

// A CPU's own variables lie at the same offsets from its base as its run
// queue does, which the current thread leads to. (The symbol of the
// preemption count is not one that every kernel exports.)
static __always_inline void find_preempt_count(struct task_struct* task) {
  __u32 cpu = bpf_get_smp_processor_id();
  struct slot_ring* ring = bpf_map_lookup_elem(&slot_rings, &cpu);
  struct rq* rq = BPF_CORE_READ(task, se.cfs_rq, rq);
  if (!ring || !rq || !runqueue_offset || !preempt_count_offset) return;
  if (BPF_CORE_READ(rq, cpu) != cpu) return;
  ring->preempt_count_address = (__u64)rq - runqueue_offset + preempt_count_offset;
}

// A thread that never switches, from before the start until after the end, is
// known to be there all the same.
static __always_inline __u64 running_body(struct task_struct* task) {
  __u64 pid = BPF_CORE_READ(task, pid);
  __u8 prio = BPF_CORE_READ(task, prio);
  return (pid & SLOT_PID_MASK) | (__u64)prio << SLOT_PRIO_SHIFT;
}

SEC("raw_tp")
int slot_running(void* ctx) {
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  find_preempt_count(task);
  put_slot(SLOT_RUNNING, running_body(task));
  return 0;
}

SEC("?raw_tp")
int event_running(void* ctx) {
  struct task_struct* task = (struct task_struct*)bpf_get_current_task();
  find_preempt_count(task);
  send_slot(SLOT_RUNNING, running_body(task));
  return 0;
}
