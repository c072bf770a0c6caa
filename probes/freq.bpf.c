// CPU frequency changes, where a driver reports them.
#include "probes/probe.h"

SEC("tp_btf/cpu_frequency")
int cpu_frequency(__u64* ctx) {
  struct frequency_event* event = reserve_event(struct frequency_event, EVENT_FREQUENCY);
  if (!event) return 0;
  event->khz = ctx[0];
  event->cpu = ctx[1];
  submit_event(event);
  return 0;
}
