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

}  // namespace aitrace
