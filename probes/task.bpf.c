// The lives and names of threads and processes.
#include "probes/probe.h"
// After the types.
#include <bpf/bpf_core_read.h>

static __always_inline void copy_comm(char* to, struct task_struct* task) {
  bpf_probe_read_kernel_str(to, TASK_NAME_BYTES, task->comm);
}

static __always_inline int send_task_event(struct task_struct* task, __u32 type) {
  struct task_event* event = reserve_event(struct task_event, type);
  if (!event) return 0;
  event->tid = task->pid;
  event->tgid = task->tgid;
  event->start_ns = task->start_boottime;
  event->prio = task->prio;
  event->cpu = 0;
  copy_comm(event->comm, task);
  if (type == EVENT_WAKEUP_NEW) {
    if (bpf_core_field_exists(task->thread_info.cpu))
      event->cpu = task->thread_info.cpu;
    else
      event->cpu = ((struct task_struct___before_5_16*)task)->cpu;
  }
  submit_event(event);
  return 0;
}

SEC("tp_btf/task_newtask")
int task_newtask(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  struct newtask_event* event = reserve_event(struct newtask_event, EVENT_NEWTASK);
  if (!event) return 0;
  event->tid = task->pid;
  event->tgid = task->tgid;
  event->ppid = BPF_CORE_READ(task, real_parent, tgid);
  event->uid = BPF_CORE_READ(task, cred, uid.val);
  event->clone_flags = ctx[1];
  event->start_ns = task->start_boottime;
  event->oom_score_adj = BPF_CORE_READ(task, signal, oom_score_adj);
  event->unused = 0;
  copy_comm(event->comm, task);
  submit_event(event);
  return 0;
}

SEC("tp_btf/sched_wakeup_new")
int sched_wakeup_new(__u64* ctx) {
  return send_task_event((struct task_struct*)ctx[0], EVENT_WAKEUP_NEW);
}

SEC("tp_btf/task_rename")
int task_rename(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  struct rename_event* event = reserve_event(struct rename_event, EVENT_RENAME);
  if (!event) return 0;
  event->tid = task->pid;
  event->oom_score_adj = BPF_CORE_READ(task, signal, oom_score_adj);
  copy_comm(event->old_comm, task);
  bpf_probe_read_kernel_str(event->new_comm, TASK_NAME_BYTES, (const void*)ctx[1]);
  submit_event(event);
  return 0;
}

SEC("tp_btf/sched_process_fork")
int sched_process_fork(__u64* ctx) {
  struct task_struct* parent = (struct task_struct*)ctx[0];
  struct task_struct* child = (struct task_struct*)ctx[1];
  struct fork_event* event = reserve_event(struct fork_event, EVENT_FORK);
  if (!event) return 0;
  event->parent_tid = parent->pid;
  event->child_tid = child->pid;
  copy_comm(event->parent_comm, parent);
  copy_comm(event->child_comm, child);
  submit_event(event);
  return 0;
}

// Where an exec event is put together before its length is known.
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct exec_event);
} exec_scratch SEC(".maps");

// The file's name and the arguments, behind each other; returns their bytes.
static __always_inline __u32 fill_exec_text(struct exec_event* event, struct task_struct* task,
                                            struct linux_binprm* bprm) {
  long name_bytes = bpf_probe_read_kernel_str(event->text, FILENAME_BYTES, bprm->filename);
  __u32 used = name_bytes > 0 ? (__u32)name_bytes : 0;
  if (used > FILENAME_BYTES) used = FILENAME_BYTES;
  event->filename_bytes = used;
  event->args_bytes = 0;

  __u64 start = BPF_CORE_READ(task, mm, arg_start);
  __u64 bytes = BPF_CORE_READ(task, mm, arg_end) - start;
  if (bytes > ARGS_BYTES - 1) bytes = ARGS_BYTES - 1;
  // The memory was written by this very exec, so it is there.
  if (bpf_probe_read_user(&event->text[used], bytes & (ARGS_BYTES - 1), (const void*)start)) {
    return used;
  }
  event->args_bytes = bytes;
  return used + bytes;
}

SEC("tp_btf/sched_process_exec")
int sched_process_exec(__u64* ctx) {
  struct task_struct* task = (struct task_struct*)ctx[0];
  __u32 zero = 0;
  struct exec_event* event = bpf_map_lookup_elem(&exec_scratch, &zero);
  void* shard = cpu_shard();
  if (!event || !shard) return 0;
  fill_header(&event->header, EVENT_EXEC);
  event->tid = task->pid;
  event->tgid = task->tgid;
  event->old_tid = (__s32)ctx[1];
  event->uid = BPF_CORE_READ(task, cred, uid.val);
  copy_comm(event->comm, task);
  __u32 text_bytes = fill_exec_text(event, task, (struct linux_binprm*)ctx[2]);
  if (text_bytes > sizeof(event->text)) text_bytes = sizeof(event->text);
  __u64 size = sizeof(*event) - sizeof(event->text) + text_bytes;
  if (bpf_ringbuf_output(shard, event, size, wake_flags(shard, size))) count_drop(EVENT_EXEC);
  return 0;
}

SEC("tp_btf/sched_process_exit")
int sched_process_exit(__u64* ctx) {
  return send_task_event((struct task_struct*)ctx[0], EVENT_EXIT);
}

SEC("tp_btf/sched_process_free")
int sched_process_free(__u64* ctx) {
  return send_task_event((struct task_struct*)ctx[0], EVENT_FREE);
}
