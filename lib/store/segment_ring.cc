#include "lib/store/segment_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "lib/base/clock.h"
#include "lib/base/file.h"
#include "lib/store/ring_layout.h"
#include "lib/store/ring_memory.h"

namespace aitrace {
namespace {

using ring::Footprint;
using ring::Header;
using ring::kHeaderBytes;
using ring::Record;

class Mapping {
 public:
  Mapping() = default;
  ~Mapping() {
    if (memory_ != nullptr) munmap(memory_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  absl::Status Map(int fd, uint64_t size, int protection) {
    void* memory = mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) return ErrnoStatus(errno, "map the ring");
    memory_ = static_cast<char*>(memory);
    size_ = size;
    madvise(memory_, size_, MADV_DONTDUMP);  // Refusal costs a larger core dump.
    return absl::OkStatus();
  }
  char* data() const { return memory_; }
  uint64_t size() const { return size_; }

 private:
  char* memory_ = nullptr;
  uint64_t size_ = 0;
};

Header& HeaderOf(const Mapping& mapping) { return *reinterpret_cast<Header*>(mapping.data()); }

char* PlaceOf(const Mapping& mapping, uint64_t position) {
  return mapping.data() + kHeaderBytes + position % HeaderOf(mapping).data_bytes;
}

Record CopyRecord(const Mapping& mapping, uint64_t position) {
  Record record;
  memcpy(&record, PlaceOf(mapping, position), sizeof(record));
  return record;
}

RingRecord Describe(const Record& record) {
  return {.sequence = record.sequence,
          .begin_ns = record.begin_ns,
          .end_ns = record.end_ns,
          .kind = static_cast<trace::SegmentInfo::Kind>(record.kind),
          .starts_file = record.starts_file != 0,
          .size_bytes = record.size_bytes,
          .position = record.position};
}

class MappedRing final : public SegmentRing {
 public:
  explicit MappedRing(RingMemory memory) : memory_(std::move(memory)) {}

  absl::Status Init(const std::string& boot_id) {
    RETURN_IF_ERROR(mapping_.Map(memory_.fd.get(), memory_.size_bytes, PROT_READ | PROT_WRITE));
    stats_.path = memory_.path;
    stats_.file_system = memory_.file_system;
    stats_.note = memory_.note;
    if (memory_.is_new || !Recover(boot_id)) Format(boot_id);
    stats_.size_bytes = memory_.size_bytes;
    return absl::OkStatus();
  }

  absl::Status Push(const trace::SegmentInfo& info, absl::string_view segment) override {
    uint64_t data_bytes = header().data_bytes;
    uint64_t need = Footprint(segment.size());
    uint64_t position = header().next_position.load(std::memory_order_relaxed);
    uint64_t rest = data_bytes - position % data_bytes;
    uint64_t filler = need > rest ? rest : 0;
    if (need + filler > data_bytes || segment.size() > UINT32_MAX) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "a segment of ", segment.size(), " bytes does not fit into a ring of ", data_bytes));
    }
    Evict(position + filler + need);
    if (filler > 0) {
      WriteRecord({.is_filler = 1,
                   .position = position,
                   .size_bytes = static_cast<uint32_t>(filler - sizeof(Record))});
      position += filler;
    }
    memcpy(PlaceOf(mapping_, position) + sizeof(Record), segment.data(), segment.size());
    WriteRecord({.position = position,
                 .sequence = info.sequence(),
                 .begin_ns = info.begin_ns(),
                 .end_ns = info.end_ns(),
                 .size_bytes = static_cast<uint32_t>(segment.size()),
                 .kind = static_cast<uint16_t>(info.kind()),
                 .starts_file = info.starts_file(),
                 .payload_crc = ring::Crc(segment.data(), segment.size())});
    header().next_sequence.store(info.sequence() + 1, std::memory_order_release);
    header().next_position.store(position + need, std::memory_order_release);
    ++stats_.segments;
    stats_.newest_end_ns = info.end_ns();
    if (stats_.segments == 1) stats_.oldest_begin_ns = info.begin_ns();
    return absl::OkStatus();
  }

  uint64_t next_sequence() const override {
    return header().next_sequence.load(std::memory_order_relaxed);
  }
  uint64_t recovered_end_ns() const override { return recovered_end_ns_; }

  Stats stats() const override {
    Stats stats = stats_;
    stats.used_bytes = header().next_position.load() - header().oldest_position.load();
    return stats;
  }

  absl::StatusOr<UniqueFd> OpenReadOnly() const override {
    return OpenFile(absl::StrCat("/proc/self/fd/", memory_.fd.get()), O_RDONLY);
  }

 private:
  Header& header() const { return HeaderOf(mapping_); }

  void Format(const std::string& boot_id) {
    Header& fresh = *new (mapping_.data()) Header{};
    fresh.magic = ring::kMagic;
    fresh.version = ring::kLayoutVersion;
    fresh.header_bytes = kHeaderBytes;
    fresh.data_bytes = memory_.size_bytes - kHeaderBytes;
    memcpy(fresh.boot_id, boot_id.data(), std::min(boot_id.size(), sizeof(fresh.boot_id)));
    // From the boot clock, so that sequences go on within a boot even when a
    // ring is discarded.
    fresh.next_sequence = SystemClock().BootNs() / kNsPerUs;
    fresh.crc = ring::HeaderCrc(fresh);
  }

  void AddNote(const std::string& text) {
    absl::StrAppend(&stats_.note, stats_.note.empty() ? "" : "; ", text);
  }

  // Takes over what an earlier process left; false when that is nothing that
  // can be used.
  bool Recover(const std::string& boot_id) {
    if (!ring::IsValid(header(), memory_.size_bytes)) {
      AddNote("what was there is not a ring of this version and was discarded");
      return false;
    }
    if (memcmp(header().boot_id, boot_id.data(), sizeof(header().boot_id)) != 0) {
      AddNote("a ring of an earlier boot was discarded");
      return false;
    }
    uint64_t oldest = header().oldest_position.load();
    uint64_t next = header().next_position.load();
    if (next - oldest > header().data_bytes || oldest % ring::kAlignment != 0) {
      AddNote("the ring was damaged and was discarded");
      return false;
    }
    KeepWholeRecords(oldest, next);
    return true;
  }

  // Records from `oldest` on, up to the first that is not whole.
  void KeepWholeRecords(uint64_t oldest, uint64_t next) {
    uint64_t position = oldest;
    uint64_t sequence = 0;
    while (position < next) {
      std::optional<Record> record = WholeRecord(position);
      if (!record.has_value()) {
        ++stats_.torn_segments;
        break;
      }
      position += Footprint(record->size_bytes);
      if (record->is_filler != 0) continue;
      sequence = record->sequence;
      if (stats_.segments++ == 0) stats_.oldest_begin_ns = record->begin_ns;
      recovered_end_ns_ = stats_.newest_end_ns = record->end_ns;
    }
    stats_.recovered_segments = stats_.segments;
    header().next_position.store(position);
    // Never a sequence that was given out before, also not one that was torn.
    header().next_sequence.store(std::max(sequence + 1, header().next_sequence.load()));
  }

  std::optional<Record> WholeRecord(uint64_t position) const {
    Record record = CopyRecord(mapping_, position);
    if (!ring::IsValid(record, position, header().data_bytes)) return std::nullopt;
    const char* payload = PlaceOf(mapping_, position) + sizeof(Record);
    if (record.is_filler == 0 && record.payload_crc != ring::Crc(payload, record.size_bytes)) {
      return std::nullopt;
    }
    return record;
  }

  // Makes room up to `end`. A reader that copies learns from oldest_position,
  // which moves before a byte is overwritten.
  void Evict(uint64_t end) {
    uint64_t oldest = header().oldest_position.load(std::memory_order_relaxed);
    uint64_t next = header().next_position.load(std::memory_order_relaxed);
    while (oldest < next && end - oldest > header().data_bytes) {
      Record record = CopyRecord(mapping_, oldest);
      oldest += Footprint(record.size_bytes);
      if (record.is_filler != 0) continue;
      ++stats_.evicted_segments;
      --stats_.segments;
    }
    header().oldest_position.store(std::min(oldest, next), std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (stats_.segments > 0) stats_.oldest_begin_ns = OldestBegin(oldest);
  }

  uint64_t OldestBegin(uint64_t position) const {
    Record record = CopyRecord(mapping_, position);
    if (record.is_filler != 0) {
      record = CopyRecord(mapping_, position + Footprint(record.size_bytes));
    }
    return record.begin_ns;
  }

  void WriteRecord(Record record) {
    record.magic = ring::kRecordMagic;
    record.crc = ring::RecordCrc(record);
    memcpy(PlaceOf(mapping_, record.position), &record, sizeof(record));
  }

  const RingMemory memory_;
  Mapping mapping_;
  Stats stats_;
  uint64_t recovered_end_ns_ = 0;
};

class MappedReader final : public SegmentRingReader {
 public:
  absl::Status Init(UniqueFd fd) {
    struct stat info {};
    if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat the ring");
    RETURN_IF_ERROR(mapping_.Map(fd.get(), static_cast<uint64_t>(info.st_size), PROT_READ));
    if (ring::IsValid(header(), mapping_.size())) return absl::OkStatus();
    return absl::DataLossError("not a ring of this version");
  }

  absl::StatusOr<RingRecord> Find(uint64_t sequence) const override {
    std::optional<RingRecord> found;
    ForEach([&](const RingRecord& record) {
      if (record.sequence >= sequence) found = record;
      return !found.has_value();
    });
    if (found.has_value()) return *found;
    return absl::NotFoundError(absl::StrCat("no segment from ", sequence, " on"));
  }

  void ForEach(const std::function<bool(const RingRecord&)>& visit) const override {
    uint64_t position = header().oldest_position.load(std::memory_order_acquire);
    while (position < header().next_position.load(std::memory_order_acquire)) {
      Record record = CopyRecord(mapping_, position);
      if (!IsStillThere(position) || !ring::IsValid(record, position, header().data_bytes)) {
        // Overwritten while we looked: go on with what is the oldest now.
        uint64_t oldest = header().oldest_position.load(std::memory_order_acquire);
        if (oldest <= position) return;
        position = oldest;
        continue;
      }
      if (record.is_filler == 0 && !visit(Describe(record))) return;
      position += Footprint(record.size_bytes);
    }
  }

  absl::Status Copy(const RingRecord& record, std::string& out) const override {
    Record now = CopyRecord(mapping_, record.position);
    if (!ring::IsValid(now, record.position, header().data_bytes) ||
        now.sequence != record.sequence) {
      return absl::DataLossError("the segment has left the ring");
    }
    out.assign(PlaceOf(mapping_, record.position) + sizeof(Record), now.size_bytes);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!IsStillThere(record.position)) {
      return absl::DataLossError("the segment was overwritten while it was copied");
    }
    if (ring::Crc(out.data(), out.size()) != now.payload_crc) {
      return absl::DataLossError("the segment's checksum is wrong");
    }
    return absl::OkStatus();
  }

 private:
  const Header& header() const { return HeaderOf(mapping_); }
  bool IsStillThere(uint64_t position) const {
    return position >= header().oldest_position.load(std::memory_order_seq_cst);
  }

  Mapping mapping_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SegmentRing>> SegmentRing::Open(const RingOptions& options) {
  ASSIGN_OR_RETURN(RingMemory memory,
                   OpenRingMemory(options.path, options.size_bytes, MemoryProbe::System()));
  auto ring = std::make_unique<MappedRing>(std::move(memory));
  RETURN_IF_ERROR(ring->Init(options.boot_id));
  return ring;
}

absl::StatusOr<std::unique_ptr<SegmentRingReader>> SegmentRingReader::Map(UniqueFd fd) {
  auto reader = std::make_unique<MappedReader>();
  RETURN_IF_ERROR(reader->Init(std::move(fd)));
  return reader;
}

}  // namespace aitrace
