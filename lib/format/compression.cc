#include "lib/format/compression.h"

#include <libdeflate.h>
#include <zstd.h>

#include "lib/format/wire.h"

namespace aitrace {
namespace {

// TracePacket's fields, and Trace.packet.
constexpr uint32_t kPacketField = 1;
constexpr uint32_t kCompressedPacketsField = 50;
constexpr uint32_t kZstdCompressedPacketsField = 133;

// The fastest level of either; the next costs twice as much for 5 % less.
constexpr int kLevel = 1;

class Uncompressed final : public PacketCompressor {
 public:
  void Append(absl::string_view packets, std::string& out) override {
    out.append(packets.data(), packets.size());
  }
};

// What both codecs share: compress into scratch, keep it if it is smaller.
class Compressing : public PacketCompressor {
 public:
  explicit Compressing(uint32_t field) : field_(field) {}

  void Append(absl::string_view packets, std::string& out) final {
    size_t bound = Bound(packets.size());
    if (scratch_.size() < bound) scratch_.resize(bound);
    size_t size = Compress(packets, scratch_.data(), scratch_.size());
    if (size == 0 || size >= packets.size()) {
      out.append(packets.data(), packets.size());
      return;
    }
    message_.clear();
    wire::AppendLengthDelimited(field_, absl::string_view(scratch_.data(), size), message_);
    wire::AppendLengthDelimited(kPacketField, message_, out);
  }

 private:
  virtual size_t Bound(size_t size) const = 0;
  // Returns the compressed size; 0 when it does not fit.
  virtual size_t Compress(absl::string_view in, char* out, size_t out_size) = 0;

  const uint32_t field_;
  std::string scratch_;
  std::string message_;
};

class Deflate final : public Compressing {
 public:
  explicit Deflate(libdeflate_compressor* compressor)
      : Compressing(kCompressedPacketsField), compressor_(compressor) {}
  ~Deflate() override { libdeflate_free_compressor(compressor_); }

 private:
  size_t Bound(size_t size) const override {
    return libdeflate_zlib_compress_bound(compressor_, size);
  }
  size_t Compress(absl::string_view in, char* out, size_t out_size) override {
    return libdeflate_zlib_compress(compressor_, in.data(), in.size(), out, out_size);
  }
  libdeflate_compressor* const compressor_;
};

class Zstd final : public Compressing {
 public:
  explicit Zstd(ZSTD_CCtx* context) : Compressing(kZstdCompressedPacketsField), context_(context) {}
  ~Zstd() override { ZSTD_freeCCtx(context_); }

 private:
  size_t Bound(size_t size) const override { return ZSTD_compressBound(size); }
  size_t Compress(absl::string_view in, char* out, size_t out_size) override {
    size_t size = ZSTD_compressCCtx(context_, out, out_size, in.data(), in.size(), kLevel);
    return ZSTD_isError(size) ? 0 : size;
  }
  ZSTD_CCtx* const context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PacketCompressor>> PacketCompressor::Create(
    Config::Compression codec) {
  if (codec == Config::NONE) return std::make_unique<Uncompressed>();
  if (codec == Config::ZSTD) {
    ZSTD_CCtx* context = ZSTD_createCCtx();
    if (context == nullptr) return absl::ResourceExhaustedError("no memory for zstd");
    return std::make_unique<Zstd>(context);
  }
  libdeflate_compressor* compressor = libdeflate_alloc_compressor(kLevel);
  if (compressor == nullptr) return absl::ResourceExhaustedError("no memory for libdeflate");
  return std::make_unique<Deflate>(compressor);
}

}  // namespace aitrace
