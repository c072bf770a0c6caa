// What the kernel half hands to user space: the one header that both sides
// share.
//
// Switches and wakings go through per-CPU slot rings in a mapped array, 16
// bytes each, overwritten by design:
//
//   stamp  63..50 lap, 49..48 type, 47..0 boot time in ns (wraps after 78 h;
//          the reader knows the present and so the rest)
//   body   switch: 21..0 next pid, 29..22 next prio, 45..30 prev's raw state,
//                  46 preempted, 54..47 prev's exit state (of a dead thread)
//          waking: 21..0 pid, 29..22 prio, 45..30 target CPU, 53..46 flags
//          running: 21..0 pid, 29..22 prio; said once, at start, of each CPU
//
// A writer takes an index with an atomic add to `head`, stores `body`, then
// `stamp`. A slot belongs to the reader's position when its lap does; one that
// the reader has copied is good unless `head` shows that a writer may have
// begun on it again.
//
// Everything else is an event_header and what follows it, in a BPF ring
// buffer sharded by CPU.
#ifndef AITRACE_PROBES_RECORD_H_
#define AITRACE_PROBES_RECORD_H_

#ifdef __bpf__
#include "probes/core_types.h"
#else
#include <linux/types.h>
#endif

#define SLOT_LAP_BITS 14
#define SLOT_LAP_MASK ((1ULL << SLOT_LAP_BITS) - 1)
#define SLOT_LAP_SHIFT 50
#define SLOT_TYPE_SHIFT 48
#define SLOT_TIME_MASK ((1ULL << SLOT_TYPE_SHIFT) - 1)

#define SLOT_PID_MASK ((1ULL << 22) - 1)
#define SLOT_PRIO_SHIFT 22
#define SLOT_STATE_SHIFT 30
#define SLOT_PREEMPT_SHIFT 46
#define SLOT_EXIT_STATE_SHIFT 47
#define SLOT_CPU_SHIFT 30
#define SLOT_FLAGS_SHIFT 46

enum slot_type {
  SLOT_NONE = 0,
  SLOT_SWITCH = 1,
  SLOT_WAKING = 2,
  SLOT_RUNNING = 3,
};

struct slot {
  __u64 stamp;
  __u64 body;
};

// One CPU's element of the array map; `slots` continues to the element's end.
struct slot_ring {
  __u64 head;                   // Slots ever taken.
  __u64 preempt_count_address;  // The kernel's, of this CPU; 0: not known.
  __u64 unused[6];
  struct slot slots[];
};

// Flags of a waking, as ftrace's common_flags has them.
#define WAKING_HARDIRQ 0x08
#define WAKING_SOFTIRQ 0x10

#define TASK_NAME_BYTES 16
#define FILENAME_BYTES 256
#define ARGS_BYTES 1024

enum event_type {
  EVENT_KICK = 0,  // Nothing happened; a slot ring is half full.
  EVENT_SLOT,      // A slot, from kernels that cannot take slots atomically.
  EVENT_NEWTASK,
  EVENT_WAKEUP_NEW,
  EVENT_RENAME,
  EVENT_FORK,
  EVENT_EXEC,
  EVENT_EXIT,
  EVENT_FREE,
  EVENT_IO_START,
  EVENT_BIO_QUEUE,
  EVENT_RQ_INSERT,
  EVENT_RQ_ISSUE,
  EVENT_RQ_COMPLETE,
  EVENT_IO_DONE,
  EVENT_FREQUENCY,
  EVENT_PAGE_ALLOC,
  EVENT_TYPES,
};

struct event_header {
  __u64 boot_ns;
  __u16 type;
  __u16 cpu;
  __s32 pid;  // The thread that was current.
};

struct slot_event {
  struct event_header header;
  struct slot slot;  // stamp: type and time only.
};

struct newtask_event {
  struct event_header header;
  __s32 tid;
  __s32 tgid;
  __s32 ppid;  // Thread group of the real parent.
  __u32 uid;
  __u64 clone_flags;
  __u64 start_ns;  // Boot clock: with the tid, who it is.
  __s32 oom_score_adj;
  __u32 unused;
  char comm[TASK_NAME_BYTES];
};

// EVENT_WAKEUP_NEW, EVENT_EXIT and EVENT_FREE.
struct task_event {
  struct event_header header;
  __u64 start_ns;
  __s32 tid;
  __s32 tgid;
  __s32 prio;
  __s32 cpu;
  char comm[TASK_NAME_BYTES];
};

struct rename_event {
  struct event_header header;
  __s32 tid;
  __s32 oom_score_adj;
  char old_comm[TASK_NAME_BYTES];
  char new_comm[TASK_NAME_BYTES];
};

struct fork_event {
  struct event_header header;
  __s32 parent_tid;
  __s32 child_tid;
  char parent_comm[TASK_NAME_BYTES];
  char child_comm[TASK_NAME_BYTES];
};

// Sent without the unused tail of `text`.
struct exec_event {
  struct event_header header;
  __s32 tid;
  __s32 tgid;
  __s32 old_tid;
  __u32 uid;
  __u16 filename_bytes;  // With its NUL.
  __u16 args_bytes;      // NUL-separated, cut at ARGS_BYTES.
  __u32 unused;
  char comm[TASK_NAME_BYTES];
  char text[FILENAME_BYTES + ARGS_BYTES];  // The file's name, then the arguments.
};

// EVENT_RQ_COMPLETE and EVENT_IO_DONE, and the start of the other block events.
struct block_event {
  struct event_header header;
  __u64 sector;
  __u32 dev;  // As the kernel holds it: major << 20 | minor.
  __u32 bytes;
  __u32 op_flags;  // cmd_flags or bi_opf.
  __s32 error;     // Of EVENT_RQ_COMPLETE: a blk_status_t or a negative errno.
};

// Those that a thread causes, and so have its name.
struct block_submit_event {
  struct block_event block;
  char comm[TASK_NAME_BYTES];
};

struct frequency_event {
  struct event_header header;
  __u32 khz;
  __u32 cpu;
};

struct page_alloc_event {
  struct event_header header;
  __u32 order;
  __u32 gfp_flags;
  __s32 migratetype;
  __u32 unused;
};

// One CPU's element of the mapped array of drop counters, by event_type.
struct drop_counters {
  __u64 dropped[EVENT_TYPES];
};

#endif  // AITRACE_PROBES_RECORD_H_
