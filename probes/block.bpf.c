// Block I/O: what was asked of a device, queued, issued and completed.
// block_io_start/done exist since 6.5; before, block_bio_queue marks the start.
#include "probes/probe.h"
// After the types.
#include <bpf/bpf_core_read.h>

// Set by user space before loading: insert and issue had the queue as first
// argument before 5.11.
const volatile bool request_is_second = false;

#define SECTOR_SHIFT 9

static __always_inline __u32 disk_dev(struct gendisk* disk) {
  return (__u32)BPF_CORE_READ(disk, major) << 20 | (__u32)BPF_CORE_READ(disk, first_minor);
}

static __always_inline __u32 request_dev(struct request* rq) {
  struct request___before_5_17* old = (void*)rq;
  struct gendisk* disk;
  if (bpf_core_field_exists(old->rq_disk)) {
    disk = BPF_CORE_READ(old, rq_disk);
  } else {
    disk = BPF_CORE_READ(rq, q, disk);
  }
  return disk ? disk_dev(disk) : 0;
}

static __always_inline void fill_request(struct block_event* event, struct request* rq, __u32 bytes,
                                         __s32 error) {
  event->sector = BPF_CORE_READ(rq, __sector);
  event->dev = request_dev(rq);
  event->bytes = bytes;
  event->op_flags = BPF_CORE_READ(rq, cmd_flags);
  event->error = error;
}

static __always_inline int send_submit(struct request* rq, __u32 type) {
  struct block_submit_event* event = reserve_event(struct block_submit_event, type);
  if (!event) return 0;
  fill_request(&event->block, rq, BPF_CORE_READ(rq, __data_len), 0);
  bpf_get_current_comm(event->comm, sizeof(event->comm));
  submit_event(event);
  return 0;
}

static __always_inline int send_end(struct request* rq, __u32 type, __u32 bytes, __s32 error) {
  struct block_event* event = reserve_event(struct block_event, type);
  if (!event) return 0;
  fill_request(event, rq, bytes, error);
  submit_event(event);
  return 0;
}

SEC("tp_btf/block_io_start")
int block_io_start(__u64* ctx) { return send_submit((struct request*)ctx[0], EVENT_IO_START); }

SEC("tp_btf/block_io_done")
int block_io_done(__u64* ctx) {
  struct request* rq = (struct request*)ctx[0];
  return send_end(rq, EVENT_IO_DONE, BPF_CORE_READ(rq, __data_len), 0);
}

SEC("tp_btf/block_rq_insert")
int block_rq_insert(__u64* ctx) {
  return send_submit((struct request*)(request_is_second ? ctx[1] : ctx[0]), EVENT_RQ_INSERT);
}

SEC("tp_btf/block_rq_issue")
int block_rq_issue(__u64* ctx) {
  return send_submit((struct request*)(request_is_second ? ctx[1] : ctx[0]), EVENT_RQ_ISSUE);
}

SEC("tp_btf/block_rq_complete")
int block_rq_complete(__u64* ctx) {
  return send_end((struct request*)ctx[0], EVENT_RQ_COMPLETE, (__u32)ctx[2], (__s32)ctx[1]);
}

// A bio's device is that of its disk, or of the partition since 5.12.
static __always_inline __u32 bio_dev(struct bio* bio) {
  struct bio___before_5_12* old = (void*)bio;
  if (bpf_core_field_exists(old->bi_disk)) return disk_dev(BPF_CORE_READ(old, bi_disk));
  return BPF_CORE_READ(bio, bi_bdev, bd_dev);
}

// The queue was the first argument before 5.11.
SEC("tp_btf/block_bio_queue")
int block_bio_queue(__u64* ctx) {
  struct bio* bio = (struct bio*)(request_is_second ? ctx[1] : ctx[0]);
  struct block_submit_event* event = reserve_event(struct block_submit_event, EVENT_BIO_QUEUE);
  if (!event) return 0;
  event->block.sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
  event->block.dev = bio_dev(bio);
  event->block.bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
  event->block.op_flags = BPF_CORE_READ(bio, bi_opf);
  event->block.error = 0;
  bpf_get_current_comm(event->comm, sizeof(event->comm));
  submit_event(event);
  return 0;
}
