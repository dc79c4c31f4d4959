// What is written here is next read by the wire or, much later, by the caller, so long runs bypass
// the caches: the lines that they replace need not be read first.
#include "exec/host_copy.hpp"

#include <algorithm>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
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
// Up to 15 bytes at each end are copied plainly, so that the stores between are aligned.
void CopyPast(char* to, const char* from, int64_t bytes) {
  const auto head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) & 15u);
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    for (int64_t i = 0; i < 64; i += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + i),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at + i)));
    }
  }
  std::memcpy(to + at, from + at, static_cast<size_t>(bytes - at));
}
void Settle() { _mm_sfence(); }
#else
void CopyPast(char* to, const char* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
void Settle() {}
#endif

void CopyRun(char* to, const char* from, int64_t bytes) {
  if (bytes >= kLongRun) {
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
             const Dims& end, void* memory) {
  const Runs runs(packing, begin, end, false);
  const char* const from = static_cast<const char*>(data);
  char* const to = static_cast<char*>(memory);
  ForEachPart(team, runs, [=](int64_t tensor, int64_t packed, int64_t bytes) {
    CopyRun(to + packed, from + tensor, bytes);
  });
}

void UnpackBox(CopyTeam& team, void* data, const Packing& packing, const Dims& begin,
               const Dims& end, const void* memory) {
  const Runs runs(packing, begin, end, true);
  char* const to = static_cast<char*>(data);
  const char* const from = static_cast<const char*>(memory);
  ForEachPart(team, runs, [=](int64_t tensor, int64_t packed, int64_t bytes) {
    CopyRun(to + tensor, from + packed, bytes);
  });
}

}  // namespace oocdnn
