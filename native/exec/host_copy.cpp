// What is unpacked is read by the caller, much later: long runs bypass the caches, where the lines
// that they replace need not be read first. What is packed is next read by the wire, from the
// caches if it is still there.
#include "exec/host_copy.hpp"

#include <algorithm>
#include <cstring>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// A thread's turn: long enough that taking it costs little, and several for each thread of the
// team, so that all end together.
constexpr int64_t kLeastPiece = int64_t{1} << 16, kMostPiece = int64_t{1} << 20;
constexpr int64_t kTurns = 4;
constexpr int64_t kLongRun = 4096;  // bytes worth bypassing the caches

#ifdef __SSE2__
constexpr int64_t kLine = 64;  // bytes of the caches

// `bytes` is a multiple of the line and `to` at the beginning of one. A whole line at a time is
// half as fast again as parts of it.
__attribute__((target("avx512f"))) void StreamLines(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLine) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(from + at));
  }
}

void StreamParts(char* to, const char* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
}

// What does not fill a line at an end is copied plainly.
void CopyPast(char* to, const char* from, int64_t bytes) {
  static const bool whole = __builtin_cpu_supports("avx512f") != 0;
  const auto head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) % kLine);
  const int64_t middle = (bytes - head) / kLine * kLine;
  std::memcpy(to, from, static_cast<size_t>(head));
  (whole ? StreamLines : StreamParts)(to + head, from + head, middle);
  const int64_t done = head + middle;
  std::memcpy(to + done, from + done, static_cast<size_t>(bytes - done));
}
void Settle() { _mm_sfence(); }
#else
void CopyPast(char* to, const char* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void Settle() {}
#endif

void CopyRun(char* to, const char* from, int64_t bytes, bool past) {
  if (past && bytes >= kLongRun) {
    CopyPast(to, from, bytes);
  } else {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

// Calls copy(tensor offset, packed offset, bytes) for all of the box, in pieces: some runs, or a
// part of one.
template <class Copy>
void ForEachPart(CopyTeam& team, const Runs& runs, const Copy& copy) {
  if (runs.count() == 0) return;
  const int64_t piece =
      std::clamp(runs.count() * runs.bytes() / (team.threads() * kTurns), kLeastPiece, kMostPiece);
  const int64_t parts = CeilDiv(runs.bytes(), piece);  // of a run
  const int64_t part = RoundUp(CeilDiv(runs.bytes(), parts), 64);
  const int64_t together = std::max<int64_t>(piece / runs.bytes(), 1);
  const int64_t groups = CeilDiv(runs.count(), together);
  team.Run(groups * parts, [&](int64_t index) {
    const int64_t first = index / parts * together;
    const int64_t begin = index % parts * part;
    const int64_t bytes = std::min(part, runs.bytes() - begin);
    const int64_t last = std::min(first + together, runs.count());
    Runs::Cursor at(runs, first);
    for (int64_t run = first; run < last && bytes > 0; ++run, at.Next()) {
      copy(at.tensor() + begin, at.packed() + begin, bytes);
    }
    Settle();
  });
}

}  // namespace

void PackBox(CopyTeam& team, const void* data, const Packing& packing, const Dims& begin,
             const Dims& end, void* memory, bool stays) {
  const Runs runs(packing, begin, end, false);
  const char* const from = static_cast<const char*>(data);
  char* const to = static_cast<char*>(memory);
  ForEachPart(team, runs, [=](int64_t tensor, int64_t packed, int64_t bytes) {
    CopyRun(to + packed, from + tensor, bytes, !stays);
  });
}

void UnpackBox(CopyTeam& team, void* data, const Packing& packing, const Dims& begin,
               const Dims& end, const void* memory) {
  const Runs runs(packing, begin, end, true);
  char* const to = static_cast<char*>(data);
  const char* const from = static_cast<const char*>(memory);
  ForEachPart(team, runs, [=](int64_t tensor, int64_t packed, int64_t bytes) {
    CopyRun(to + tensor, from + packed, bytes, true);
  });
}

}  // namespace oocdnn
