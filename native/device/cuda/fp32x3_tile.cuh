// Tiles of the products of fp32x3.cuh: where their factors lie in the tensors, how these are copied
// to shared memory and split, and how sums are stored.
//
// A Body is one of the ways to multiply, Fp32x3Mma or Fp32x3Wgmma: its threads, the terms of a step
// and the layout of a row of terms.
#pragma once

#include "device/cuda/convert.cuh"

namespace oocdnn::cuda {

constexpr int kFp32x3Block = 16;                // terms of a block
constexpr int kFp32x3Steps = kFp32x3Block / 8;  // of a block by tensor cores: each is eight terms
constexpr int kFp32x3Cut = 2048;                // terms of a sum in registers

// The tile of a block of threads: its first row and column, its group, and its part of the terms.
struct Fp32x3Tile {
  unsigned row, column, group, begin, end;
  Long out;  // of element (0, 0) of its group and part
};

OOC_HOST_DEVICE Fp32x3Tile TileOf(const Fp32x3Args& args, unsigned number, int columns) {
  Fp32x3Tile tile;
  tile.column = Take(&number, args.column_tiles) * columns;
  tile.row = Take(&number, args.row_tiles) * kFp32x3Rows;
  tile.group = Take(&number, args.groups);
  tile.begin = args.first_term + number * args.part_terms;
  tile.end = tile.begin + args.part_terms < args.terms ? tile.begin + args.part_terms : args.terms;
  tile.out = static_cast<Long>(number) * args.part_elements + tile.group * args.out_group;
  return tile;
}

// A pixel or a tap. The place that a pixel reads with a tap has the sums of their coordinates, and
// its first element is the sum of their elements. Elements may wrap where the place does not exist.
struct alignas(16) Fp32x3Reader {
  int element, at[3];
};
constexpr int kFp32x3Nowhere = -(1 << 30);  // a coordinate

// `at`: coordinates of a place of the image whose first place is `image`.
OOC_HOST_DEVICE int ElementOf(const Fp32x3Args& args, unsigned image, const int (&at)[3]) {
  const unsigned row = static_cast<unsigned>(at[0]) * args.source[1] + at[1];
  return static_cast<int>((image + row * args.source[2] + at[2]) * args.source_pitch);
}

// The place that the first tap of a pixel reads.
OOC_HOST_DEVICE Fp32x3Reader PixelOf(const Fp32x3Args& args, unsigned number, unsigned end) {
  if (number >= end) return {0, {kFp32x3Nowhere, 0, 0}};
  Fp32x3Reader pixel;
  for (int d = 2; d >= 0; --d) {
    pixel.at[d] = static_cast<int>(Take(&number, args.pixels[d])) * args.step[d] + args.base[d];
  }
  pixel.element = ElementOf(args, number * args.source_places, pixel.at);
  return pixel;
}

// The distance of a term's tap (filter gradients: of a column's) to the first tap, and its channel.
OOC_HOST_DEVICE Fp32x3Reader TapOf(const Fp32x3Args& args, unsigned number, unsigned end) {
  if (number >= end) return {0, {kFp32x3Nowhere, 0, 0}};
  const auto channel = static_cast<int>(Take(&number, args.channels));
  Fp32x3Reader tap;
  tap.at[2] = static_cast<int>(Take(&number, args.taps[1])) * args.tap_step[2];
  tap.at[1] = static_cast<int>(Take(&number, args.taps[0])) * args.tap_step[1];
  tap.at[0] = static_cast<int>(number) * args.tap_step[0];
  tap.element = static_cast<int>(static_cast<unsigned>(ElementOf(args, 0, tap.at)) + channel);
  return tap;
}

// The element that a pixel reads with a tap; negative: none, which is zero.
OOC_HOST_DEVICE int ElementOf(const Fp32x3Args& args, const Fp32x3Reader& pixel,
                              const Fp32x3Reader& tap) {
  bool there = true;
  for (int d = 0; d < 3; ++d) {  // as unsigned numbers, so that one comparison tells both ends
    there = there &&
            static_cast<unsigned>(pixel.at[d] + tap.at[d]) < static_cast<unsigned>(args.source[d]);
  }
  return there ? static_cast<int>(static_cast<unsigned>(pixel.element) + tap.element) : -1;
}

// The two TF32 numbers whose sum is a factor: `high` is rounded to the nearest, and `low` is read
// without its last bits, of which at most one is not 0.
struct SplitFactor {
  unsigned high, low;
};

OOC_HOST_DEVICE SplitFactor SplitOf(float value) {
  constexpr unsigned kHalf = 1u << 12;
  const unsigned high = (BitCast<unsigned>(value) + kHalf) & ~(2 * kHalf - 1);
  return {high, BitCast<unsigned>(value - BitCast<float>(high))};
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

// Copies kBytes to shared memory while the thread goes on: from an element, or zeros where that is
// negative.
template <int kBytes>
OOC_HOST_DEVICE void CopyAhead(float* to, const float* tensor, int element) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = element >= 0 ? kBytes : 0;
  const float* const from = tensor + (element >= 0 ? element : 0);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from),
                 "r"(bytes));
  }
}

// The offset, in floats, of a term in a row of terms in shared memory. Copies and reads access four
// terms at once, which lie side by side: a quad.
template <class Body>
OOC_HOST_DEVICE unsigned FloatOf(unsigned row, unsigned term) {
  if constexpr (Body::kPitch > Body::kTerms) return row * Body::kPitch + term;
  const unsigned swizzle = row % 2 * 4 + row / 2 % 4;
  return row * Body::kPitch + ((term / 4 ^ swizzle) * 4 + term % 4);
}

// The copies of the factors of forward or backward data: rows of terms. A thread copies a quad, or
// one term, of some rows; steps are copied in their order.
template <int kColumns, int kVector, class Body>
struct GatherFactors {
  static constexpr int kAcross = Body::kTerms / kVector, kDown = Body::kCopiers / kAcross;
  static constexpr int kRowFloats = kFp32x3Rows * Body::kPitch;
  static constexpr int kFloats = kRowFloats + kColumns * Body::kPitch;
  static constexpr int kPixels = kFp32x3Rows;
  static constexpr int kRowCopies = kFp32x3Rows / kDown, kColumnCopies = kColumns / kDown;
  static_assert(kFp32x3Rows <= Body::kCopiers, "a thread finds one pixel");
  static_assert(kDown % 8 == 0, "the rows of a thread have the same swizzle");
  const Fp32x3Args& args;
  const Fp32x3Tile& tile;
  const Fp32x3Reader* pixels;
  const float *source, *filter;
  unsigned across, down;
  unsigned channel;         // of the next copy; from the number of channels on: of the next tap
  int element[kRowCopies];  // of the next copy, by row

  // Computes the pixels that the first copies need. The caller synchronizes the threads after it.
  OOC_MEMBER static void Begin(const Fp32x3Args& args, const Fp32x3Tile& tile, Fp32x3Reader* pixels,
                               unsigned thread) {
    if (thread < kFp32x3Rows) pixels[thread] = PixelOf(args, tile.row + thread, args.rows);
  }

  OOC_MEMBER GatherFactors(const Fp32x3Args& its, const Fp32x3Tile& of, Fp32x3Reader* its_pixels,
                           unsigned thread)
      : args(its),
        tile(of),
        pixels(its_pixels),
        across(thread % kAcross * kVector),
        down(thread / kAcross),
        channel(its.channels.divisor) {
    source = args.source_data + tile.group * args.source_group;
    filter = args.other_data + static_cast<Long>(tile.group) * args.other_group;
  }

  // Computes the pixels that later copies need: none here, the constructor computes all of them.
  // Every thread has copied the step of this term before.
  OOC_MEMBER void Continue(unsigned) const {}

  OOC_MEMBER void Copy(unsigned term, float* to) {
    to += FloatOf<Body>(down, across);
    CopyRows(term, to);
    to += kRowFloats;
    const unsigned first = (tile.column + down) * args.terms + term + across;
    OOC_UNROLL
    for (int i = 0; i < kColumnCopies; ++i) {
      const bool there = term + across < tile.end && tile.column + down + i * kDown < args.columns;
      CopyAhead<kVector * 4>(to + i * kDown * Body::kPitch, filter,
                             there ? static_cast<int>(first + i * kDown * args.terms) : -1);
    }
  }

  OOC_MEMBER void CopyRows(unsigned term, float* to) {
    if (channel >= args.channels.divisor) {
      const Fp32x3Reader tap = TapOf(args, term + across, tile.end);
      unsigned number = term + across;
      channel = Take(&number, args.channels);
      OOC_UNROLL
      for (int i = 0; i < kRowCopies; ++i) {
        element[i] = ElementOf(args, pixels[down + i * kDown], tap);
      }
    }
    OOC_UNROLL
    for (int i = 0; i < kRowCopies; ++i) {
      CopyAhead<kVector * 4>(to + i * kDown * Body::kPitch, source, element[i]);
      if (element[i] >= 0) element[i] += Body::kTerms;
    }
    channel += Body::kTerms;
  }

  // Reads what a thread needs of a block of terms for wgmma. Of the rows: for each step the factors
  // of `row` and `row` + 8 in its terms `lane` and `lane` + 4. Of a column: some of its four quads,
  // two for each step.
  //
  // The terms of a block may be multiplied in any order that rows and columns share. In rows of
  // terms a thread reads a quad, so that step s has the terms 4 i + 2 s and 4 i + 2 s + 1, those
  // with 2 s first.
  OOC_MEMBER static void ReadRows(const float* at, int block, unsigned row, unsigned lane,
                                  float (&values)[kFp32x3Steps][4]) {
    const unsigned term = block * kFp32x3Block + lane * 4;
    const float4 upper = *reinterpret_cast<const float4*>(at + FloatOf<Body>(row, term));
    const float4 lower = *reinterpret_cast<const float4*>(at + FloatOf<Body>(row + 8, term));
    const float from_upper[4] = {upper.x, upper.y, upper.z, upper.w};
    const float from_lower[4] = {lower.x, lower.y, lower.z, lower.w};
    OOC_UNROLL
    for (int s = 0; s < kFp32x3Steps; ++s) {
      OOC_UNROLL
      for (int j = 0; j < 4; ++j)
        values[s][j] = (j % 2 == 0 ? from_upper : from_lower)[2 * s + j / 2];
    }
  }
  OOC_MEMBER static void ReadColumn(const float* at, unsigned block, unsigned, unsigned column,
                                    float4 (&quads)[4]) {
    float4 read[4];
    OOC_UNROLL
    for (int i = 0; i < 4; ++i) {
      const unsigned place = FloatOf<Body>(column, block * kFp32x3Block + i * 4);
      read[i] = *reinterpret_cast<const float4*>(at + kRowFloats + place);
    }
    quads[0] = {read[0].x, read[1].x, read[2].x, read[3].x};
    quads[1] = {read[0].y, read[1].y, read[2].y, read[3].y};
    quads[2] = {read[0].z, read[1].z, read[2].z, read[3].z};
    quads[3] = {read[0].w, read[1].w, read[2].w, read[3].w};
  }
  OOC_MEMBER static void ReadColumn(const float* at, unsigned block, unsigned first,
                                    unsigned column, float4 (&quads)[2]) {
    float2 read[4];
    OOC_UNROLL
    for (int i = 0; i < 4; ++i) {
      const unsigned place = FloatOf<Body>(column, block * kFp32x3Block + i * 4 + first);
      read[i] = *reinterpret_cast<const float2*>(at + kRowFloats + place);
    }
    quads[0] = {read[0].x, read[1].x, read[2].x, read[3].x};
    quads[1] = {read[0].y, read[1].y, read[2].y, read[3].y};
  }
};

// The copies of the factors of a filter gradient: rows of channels, each of a pixel. The rows of
// the result are output channels, and its columns taps and input channels; kTransposed: the
// reverse. The pixels of the next few steps are in shared memory.
template <int kColumns, int kVector, bool kTransposed, class Body>
struct FilterFactors {
  static constexpr int kRowPitch = kFp32x3Rows + kFp32x3Margin;
  static constexpr int kColumnPitch = kColumns + kFp32x3Margin;
  static constexpr int kRowFloats = Body::kTerms * kRowPitch;
  static constexpr int kFloats = kRowFloats + Body::kTerms * kColumnPitch;
  static constexpr int kTaps =
      kTransposed ? kFp32x3Rows : kColumns;  // and input channels of a tile
  static constexpr int kOutputs = kTransposed ? kColumns : kFp32x3Rows;
  // In shared memory are two runs of pixels, the next one and the one that is being copied.
  static constexpr int kPixels = kFp32x3Pixels, kRun = kPixels / 2;
  static_assert(kRun <= Body::kCopiers, "a thread finds one pixel");
  const Fp32x3Args& args;
  const Fp32x3Tile& tile;
  Fp32x3Reader* pixels;
  const float *source, *gradient;
  Fp32x3Reader tap;
  unsigned thread;

  OOC_MEMBER static void Begin(const Fp32x3Args& args, const Fp32x3Tile& tile, Fp32x3Reader* pixels,
                               unsigned thread) {
    for (unsigned i = thread; i < kPixels; i += Body::kCopiers) {
      pixels[i] = PixelOf(args, tile.begin + i, tile.end);
    }
  }

  OOC_MEMBER FilterFactors(const Fp32x3Args& its, const Fp32x3Tile& of, Fp32x3Reader* its_pixels,
                           unsigned its_thread)
      : args(its), tile(of), pixels(its_pixels), thread(its_thread) {
    source = args.source_data + tile.group * args.source_group;
    gradient = args.other_data + tile.group * args.other_group;
    tap = TapOf(args, (kTransposed ? tile.row : tile.column) + thread % (kTaps / kVector) * kVector,
                kTransposed ? args.rows : args.columns);
  }

  OOC_MEMBER void Continue(unsigned term) const {
    const unsigned next = term + Body::kTerms - tile.begin;  // the first term behind the step
    if (next % kRun != 0 || thread >= kRun) return;
    const unsigned place = next + kRun + thread;  // in the place of what was copied
    pixels[place % kPixels] = PixelOf(args, tile.begin + place, tile.end);
  }

  OOC_MEMBER void Copy(unsigned term, float* to) const {
    CopySource(term, kTransposed ? to : to + kRowFloats);
    CopyGradient(term, kTransposed ? to + kRowFloats : to);
  }

  OOC_MEMBER void CopySource(unsigned term, float* to) const {
    constexpr int kAcross = kTaps / kVector, kDown = Body::kCopiers / kAcross;
    constexpr int kPitch = kTaps + kFp32x3Margin;
    const unsigned down = thread / kAcross;
    const Fp32x3Reader* const from = pixels + (term - tile.begin) % kPixels + down;
    to += down * kPitch + thread % kAcross * kVector;
    OOC_UNROLL
    for (int i = 0; i < Body::kTerms / kDown; ++i) {
      CopyAhead<kVector * 4>(to + i * kDown * kPitch, source,
                             ElementOf(args, from[i * kDown], tap));
    }
  }

  OOC_MEMBER void CopyGradient(unsigned term, float* to) const {
    constexpr int kAcross = kOutputs / kVector, kDown = Body::kCopiers / kAcross;
    constexpr int kPitch = kOutputs + kFp32x3Margin;
    const unsigned across = thread % kAcross * kVector, down = thread / kAcross;
    const unsigned channel = (kTransposed ? tile.column : tile.row) + across;
    const unsigned first = (term + down) * args.other_pitch + channel;
    to += down * kPitch + across;
    OOC_UNROLL
    for (int i = 0; i < Body::kTerms / kDown; ++i) {
      const bool there =
          term + down + i * kDown < tile.end && channel < (kTransposed ? args.columns : args.rows);
      CopyAhead<kVector * 4>(to + i * kDown * kPitch, gradient,
                             there ? static_cast<int>(first + i * kDown * args.other_pitch) : -1);
    }
  }

  // As those of GatherFactors.
  OOC_MEMBER static void ReadRows(const float* at, int block, unsigned row, unsigned lane,
                                  float (&values)[kFp32x3Steps][4]) {
    OOC_UNROLL
    for (int s = 0; s < kFp32x3Steps; ++s) {
      OOC_UNROLL
      for (int j = 0; j < 4; ++j) {
        const unsigned term = block * kFp32x3Block + s * 8 + lane + j / 2 * 4;
        values[s][j] = at[term * kRowPitch + row + j % 2 * 8];
      }
    }
  }
  template <int kQuads>
  OOC_MEMBER static void ReadColumn(const float* at, unsigned block, unsigned first,
                                    unsigned column, float4 (&quads)[kQuads]) {
    const unsigned term = block * kFp32x3Block + first * 4;
    const float* from = at + kRowFloats + term * kColumnPitch + column;
    OOC_UNROLL
    for (float4& quad : quads) {
      quad = {from[0], from[kColumnPitch], from[2 * kColumnPitch], from[3 * kColumnPitch]};
      from += 4 * kColumnPitch;
    }
  }
};

// The address of the sum of a row and a column. One access stores the sums of two neighbouring
// columns if `pairs` is 1.
struct Fp32x3Place {
  float* at;
  bool first, second;  // whether the column and the next one exist
};
OOC_HOST_DEVICE Fp32x3Place PlaceOf(const Fp32x3Args& args, const Fp32x3Tile& tile, unsigned row,
                                    unsigned column) {
  row += tile.row;
  column += tile.column;
  float* const at = args.out + tile.out + static_cast<Long>(row) * args.row_step +
                    static_cast<Long>(column) * args.column_step;
  const bool there = row < args.rows && column < args.columns;
  return {at, there, there && column + 1 < args.columns};
}

OOC_HOST_DEVICE float2 LoadTwo(const Fp32x3Args& args, const Fp32x3Place& place) {
  if (args.pairs != 0) {
    return place.first ? *reinterpret_cast<const float2*>(place.at) : float2{0.0F, 0.0F};
  }
  return {place.first ? place.at[0] : 0.0F, place.second ? place.at[args.column_step] : 0.0F};
}
OOC_HOST_DEVICE void StoreTwo(const Fp32x3Args& args, const Fp32x3Place& place, float2 two) {
  if (args.pairs != 0) {
    if (place.first) *reinterpret_cast<float2*>(place.at) = two;
    return;
  }
  if (place.first) place.at[0] = two.x;
  if (place.second) place.at[args.column_step] = two.y;
}

#endif

}  // namespace oocdnn::cuda
