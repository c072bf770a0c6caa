#include "daemon/source/bpf/kernel_btf.h"

#include <bpf/btf.h>

namespace aitrace {

void KernelBtf::Free::operator()(btf* vmlinux) const { btf__free(vmlinux); }

absl::StatusOr<KernelBtf> KernelBtf::Load() {
  btf* vmlinux = btf__load_vmlinux_btf();
  if (vmlinux == nullptr) {
    return ErrnoStatus(errno,
                       "no usable kernel BTF in /sys/kernel/btf/vmlinux (eBPF probes need "
                       "CONFIG_DEBUG_INFO_BTF)");
  }
  return KernelBtf(vmlinux);
}

int KernelBtf::TracepointArguments(const std::string& name) const {
  // A raw tracepoint is a typedef of a pointer to a function, whose first
  // parameter is the tracepoint's private data.
  std::string type = absl::StrCat("btf_trace_", name);
  int id = btf__find_by_name_kind(btf_.get(), type.c_str(), BTF_KIND_TYPEDEF);
  if (id < 0) return -1;
  const btf_type* pointer = btf__type_by_id(btf_.get(), btf__type_by_id(btf_.get(), id)->type);
  if (pointer == nullptr || !btf_is_ptr(pointer)) return -1;
  const btf_type* function = btf__type_by_id(btf_.get(), pointer->type);
  if (function == nullptr || !btf_is_func_proto(function)) return -1;
  return btf_vlen(function) - 1;
}

uint64_t KernelBtf::PerCpuOffset(const std::string& name) const {
  int section = btf__find_by_name_kind(btf_.get(), ".data..percpu", BTF_KIND_DATASEC);
  int variable = btf__find_by_name_kind(btf_.get(), name.c_str(), BTF_KIND_VAR);
  if (section < 0 || variable < 0) return 0;
  const btf_type* type = btf__type_by_id(btf_.get(), section);
  const btf_var_secinfo* entries = btf_var_secinfos(type);
  for (int i = 0; i < btf_vlen(type); ++i) {
    if (entries[i].type == static_cast<uint32_t>(variable)) return entries[i].offset;
  }
  return 0;
}

uint64_t KernelBtf::PreemptCountOffset() const {
  if (uint64_t offset = PerCpuOffset("__preempt_count"); offset != 0) return offset;
  // From 6.2 to 6.14: the member after `current_task` of pcpu_hot.
  uint64_t hot = PerCpuOffset("pcpu_hot");
  return hot == 0 ? 0 : hot + sizeof(void*);
}

}  // namespace aitrace
