#include "lib/format/compression.h"

#include <libdeflate.h>
#include <zstd.h>

#include "proto/perfetto/trace.pb.h"
#include "tests/unit/catch.h"
#include "tests/unit/segments.h"

namespace aitrace {
namespace {

perfetto::TracePacket OnlyPacket(const std::string& bytes) {
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(bytes));
  REQUIRE(trace.packet_size() == 1);
  return trace.packet(0);
}

std::string Compressed(Config::Compression codec, const std::string& packets) {
  auto compressor = PacketCompressor::Create(codec);
  REQUIRE(compressor.ok());
  std::string out = "";
  (*compressor)->Append(packets, out);
  return out;
}

TEST_CASE("Deflated packets come back through zlib's format") {
  std::string packets = MakePackets(1, 5000);
  std::string inner = OnlyPacket(Compressed(Config::DEFLATE, packets)).compressed_packets();
  CHECK(inner.size() < packets.size() / 10);
  std::string back(packets.size(), '\0');
  libdeflate_decompressor* codec = libdeflate_alloc_decompressor();
  CHECK(libdeflate_zlib_decompress(codec, inner.data(), inner.size(), back.data(), back.size(),
                                   nullptr) == LIBDEFLATE_SUCCESS);
  libdeflate_free_decompressor(codec);
  CHECK(back == packets);
}

TEST_CASE("Zstd packets come back") {
  std::string packets = MakePackets(1, 5000);
  std::string inner = OnlyPacket(Compressed(Config::ZSTD, packets)).zstd_compressed_packets();
  std::string back(packets.size(), '\0');
  CHECK(ZSTD_decompress(back.data(), back.size(), inner.data(), inner.size()) == packets.size());
  CHECK(back == packets);
}

TEST_CASE("Packets stay as they are with NONE, and where compression does not pay") {
  CHECK(Compressed(Config::NONE, MakePackets(1, 5000)) == MakePackets(1, 5000));
  CHECK(Compressed(Config::DEFLATE, MakePackets(1, 0)) == MakePackets(1, 0));
  CHECK(Compressed(Config::ZSTD, "") == "");
}

}  // namespace
}  // namespace aitrace
