// What the depthwise kernels share: rows of a tensor staged in shared memory, and products of
// neighbours with values that are loaded once.
#pragma once

#include "device/cuda/direct.cuh"

namespace oocdnn::cuda {

// Where a staged row comes from: the offset of its column 0, and the column that it begins with.
struct StagedRow {
  int from, first;
  bool there;  // false: all of it is padding
};

// The multiple of `vector`, a power of two, that is not behind the column.
OOC_HOST_DEVICE int AlignedColumn(int column, int vector) { return column & ~(vector - 1); }

// Fills the rows, padding with zeros. Those of a warp read kVector rows at once, so that the banks
// of what they write differ.
template <class In, int kVector, class T, class RowAt>
OOC_HOST_DEVICE void StageVectors(const StagedTiles& tiles, const Grid& grid, unsigned thread,
                                  const In* from, int extent, const RowAt& row_at, T* to) {
  constexpr unsigned kWarp = 32, kAcross = kWarp / kVector;
  const unsigned lane = thread % kWarp, step = grid.threads / kWarp;
  const unsigned patches = tiles.across.divisor * ((tiles.rows + kVector - 1) / kVector);
  for (unsigned first = thread / kWarp; first < patches; first += kInFlight * step) {
    Raw<sizeof(In) * kVector> held[kInFlight] = {};
    int at[kInFlight];
    OOC_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      unsigned down = first + i * step;
      const unsigned vector = Take(&down, tiles.across) * kAcross + lane % kAcross;
      const unsigned row = down * kVector + lane / kAcross;
      const bool mine = row < tiles.rows && vector < static_cast<unsigned>(tiles.vectors);
      at[i] = mine ? static_cast<int>(row * tiles.pitch + vector * kVector) : -1;
      if (!mine) continue;
      const StagedRow source = row_at(row);
      const int column = source.first + static_cast<int>(vector) * kVector;
      if (!source.there || !Inside(column, extent)) continue;
      held[i] = LoadRaw<sizeof(In) * kVector>(
          reinterpret_cast<const char*>(from + (source.from + column)));
    }
    OOC_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      if (at[i] < 0) continue;
      const auto values = BitCast<Vector<In, kVector>>(held[i]);
      OOC_UNROLL
      for (int v = 0; v < kVector; ++v) to[at[i] + v] = static_cast<T>(Widen(values.at[v]));
    }
  }
}

template <class In, class T, class RowAt>
OOC_HOST_DEVICE void StageRows(const StagedTiles& tiles, const Grid& grid, unsigned thread,
                               const In* from, int extent, const RowAt& row_at, T* to) {
  if constexpr (sizeof(In) <= 2) {
    if (tiles.vector == 8) {
      StageVectors<In, 8>(tiles, grid, thread, from, extent, row_at, to);
      return;
    }
  }
  if constexpr (sizeof(In) <= 4) {
    if (tiles.vector == 4) {
      StageVectors<In, 4>(tiles, grid, thread, from, extent, row_at, to);
      return;
    }
  }
  if (tiles.vector == 2) {
    StageVectors<In, 2>(tiles, grid, thread, from, extent, row_at, to);
  } else {
    StageVectors<In, 1>(tiles, grid, thread, from, extent, row_at, to);
  }
}

// Adds kTerms products to each of neighbouring sums: with[s] times what lies s behind the sum's own
// place or, mirrored, before it.
template <int kTerms, bool kMirrored, int kSums, class T>
OOC_HOST_DEVICE void AddChunk(T (&sums)[kSums], const T* from, const T* with) {
  const T* const first = kMirrored ? from - (kTerms - 1) : from;
  T value[kSums + kTerms - 1], factor[kTerms];
  OOC_UNROLL
  for (int j = 0; j < kSums + kTerms - 1; ++j) value[j] = first[j];
  OOC_UNROLL
  for (int s = 0; s < kTerms; ++s) factor[s] = with[s];
  OOC_UNROLL
  for (int s = 0; s < kTerms; ++s) {
    OOC_UNROLL
    for (int i = 0; i < kSums; ++i) {
      AddProduct(&sums[i], value[kMirrored ? i + kTerms - 1 - s : i + s], factor[s]);
    }
  }
}

// One product for each sum, whose places are `step` apart.
template <int kSums, class T>
OOC_HOST_DEVICE void AddSpread(T (&sums)[kSums], const T* from, int step, T factor) {
  OOC_UNROLL
  for (int i = 0; i < kSums; ++i) AddProduct(&sums[i], from[i * step], factor);
}

}  // namespace oocdnn::cuda
