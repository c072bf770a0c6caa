// The few kernel types that the probes read, with the members they read;
// libbpf relocates every access against the running kernel's BTF, so nothing
// here depends on the machine that builds. A `___` suffix names the shape that
// a type had on other kernels.
#ifndef AITRACE_PROBES_CORE_TYPES_H_
#define AITRACE_PROBES_CORE_TYPES_H_

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

enum {
  false = 0,
  true = 1,
};
typedef _Bool bool;

// From the kernel's uapi bpf.h; values are ABI.
enum bpf_map_type {
  BPF_MAP_TYPE_ARRAY = 2,
  BPF_MAP_TYPE_PERCPU_ARRAY = 6,
  BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
  BPF_MAP_TYPE_RINGBUF = 27,
};
enum {
  BPF_F_MMAPABLE = 1 << 10,
};
enum {
  BPF_RB_NO_WAKEUP = 1,
  BPF_RB_FORCE_WAKEUP = 2,
  BPF_RB_AVAIL_DATA = 0,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct thread_info {
  __u32 cpu;  // Since 5.16 on x86.
};

typedef struct {
  __u32 val;
} kuid_t;

struct cred {
  kuid_t uid;
};

struct mm_struct {
  unsigned long arg_start;
  unsigned long arg_end;
};

struct signal_struct {
  short oom_score_adj;
};

struct rq {
  int cpu;
};

struct cfs_rq {
  struct rq* rq;
};

struct sched_entity {
  struct cfs_rq* cfs_rq;
};

struct task_struct {
  struct thread_info thread_info;
  unsigned int __state;  // Since 5.14.
  int prio;
  struct sched_entity se;
  struct mm_struct* mm;
  int exit_state;
  int pid;
  int tgid;
  __u64 start_boottime;
  struct task_struct* real_parent;
  const struct cred* cred;
  char comm[16];
  struct signal_struct* signal;
};

struct task_struct___before_5_14 {
  volatile long state;
};

struct task_struct___before_5_16 {
  unsigned int cpu;
};

struct linux_binprm {
  const char* filename;
};

struct block_device {
  __u32 bd_dev;
};

struct gendisk {
  int major;
  int first_minor;
};

struct request_queue {
  struct gendisk* disk;  // Since 5.15.
};

struct request {
  struct request_queue* q;
  unsigned int cmd_flags;
  unsigned int __data_len;
  unsigned long long __sector;
};

struct request___before_5_17 {
  struct gendisk* rq_disk;
};

struct bvec_iter {
  unsigned long long bi_sector;
  unsigned int bi_size;
};

struct bio {
  struct block_device* bi_bdev;  // Since 5.12.
  unsigned int bi_opf;
  struct bvec_iter bi_iter;
};

struct bio___before_5_12 {
  struct gendisk* bi_disk;
};

#pragma clang attribute pop

#endif  // AITRACE_PROBES_CORE_TYPES_H_
