// The ring's bytes, as segment_ring.h draws them. Shared memory that may come
// from another version or be damaged: everything read is checked.
#pragma once

#include <zlib.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace aitrace::ring {

inline constexpr uint64_t kMagic = 0x31474e4952544941;  // "AITRING1"
inline constexpr uint32_t kLayoutVersion = 1;
inline constexpr uint32_t kRecordMagic = 0x52474553;  // "SEGR"
inline constexpr uint64_t kHeaderBytes = 4096;
inline constexpr uint64_t kAlignment = 64;

// At offset 0. Positions count bytes of the data area since the ring was made
// and only grow; a position's place is its remainder by `data_bytes`. The
// records between `oldest` and `next` are whole.
struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t data_bytes;
  uint8_t boot_id[16];
  uint32_t crc;  // Of all that stands before.
  uint32_t unused;
  std::atomic<uint64_t> oldest_position;
  std::atomic<uint64_t> next_position;
  std::atomic<uint64_t> next_sequence;
};
static_assert(sizeof(Header) <= kHeaderBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// In front of each segment's bytes. A record whose segment would not fit
// before the area's end is a filler up to there, without a segment.
struct Record {
  uint32_t magic;
  uint32_t is_filler;
  uint64_t position;  // Its own: a record of an earlier lap has another.
  uint64_t sequence;
  uint64_t begin_ns;
  uint64_t end_ns;
  uint64_t unused;
  uint32_t size_bytes;  // Of the segment, or of the filler's rest.
  uint16_t kind;
  uint16_t starts_file;
  uint32_t payload_crc;
  uint32_t crc;  // Of all that stands before.
};
static_assert(sizeof(Record) == kAlignment);

inline uint32_t Crc(const void* bytes, size_t size) {
  return static_cast<uint32_t>(crc32_z(0, static_cast<const unsigned char*>(bytes), size));
}
inline uint32_t HeaderCrc(const Header& header) { return Crc(&header, offsetof(Header, crc)); }
inline uint32_t RecordCrc(const Record& record) { return Crc(&record, offsetof(Record, crc)); }

// The bytes that a record takes in the ring.
inline uint64_t Footprint(uint64_t size_bytes) {
  return (sizeof(Record) + size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Whether `header` is one that this build wrote over a mapping of `file_bytes`.
inline bool IsValid(const Header& header, uint64_t file_bytes) {
  return file_bytes > kHeaderBytes && header.magic == kMagic && header.version == kLayoutVersion &&
         header.header_bytes == kHeaderBytes && header.crc == HeaderCrc(header) &&
         header.data_bytes == file_bytes - kHeaderBytes && header.data_bytes % kAlignment == 0;
}

// Whether the record at `position` is whole, its segment aside.
inline bool IsValid(const Record& record, uint64_t position, uint64_t data_bytes) {
  uint64_t place = position % data_bytes;
  return record.magic == kRecordMagic && record.position == position &&
         record.crc == RecordCrc(record) && Footprint(record.size_bytes) <= data_bytes - place;
}

}  // namespace aitrace::ring
