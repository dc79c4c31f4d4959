// Forward and backward data of groups of one input channel. The sums are those of direct.cuh, in
// its order and blocks, so the bits are the same; but a thread block stages what it reads, and a
// thread makes neighbours along W, for which it loads each staged value once.
#pragma once

#include "device/cuda/depthwise_stage.cuh"

namespace oocdnn::cuda {

static_assert(kDepthwiseOutputs == kDirectChannels, "DirectSums has as many");

// The box of one thread block: its first plane, its first output on each axis, and the first place
// that these read. Staged rows begin at that column.
struct DepthwiseBox {
  unsigned plane;
  int out[3], place[3];
};

OOC_HOST_DEVICE int FloorQuotient(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

OOC_HOST_DEVICE DepthwiseBox BoxOf(const DepthwiseArgs& args, unsigned number) {
  const DirectArgs& conv = args.conv;
  DepthwiseBox box;
  OOC_UNROLL
  for (int d = 2; d >= 0; --d) {
    box.out[d] = static_cast<int>(Take(&number, args.boxes[d])) * args.box[d];
    const int reach = (conv.filter[d] - 1) * conv.dilation[d];
    box.place[d] = conv.backward == 0
                       ? box.out[d] * conv.stride[d] - args.pad_in[d]
                       : FloorQuotient(box.out[d] + args.pad_out[d] - reach, conv.stride[d]);
  }
  box.place[2] = AlignedColumn(box.place[2], args.staged.vector);
  box.plane = number * static_cast<unsigned>(args.planes);
  return box;
}

struct DepthwisePlane {
  int n, g, channel;
};

OOC_HOST_DEVICE DepthwisePlane PlaneOf(const DepthwiseArgs& args, unsigned number) {
  DepthwisePlane plane;
  plane.channel = static_cast<int>(Take(&number, args.channels));
  plane.g = static_cast<int>(Take(&number, args.groups));
  plane.n = static_cast<int>(number);
  return plane;
}

// Source rows of a box.
struct DepthwiseRows {
  const DepthwiseArgs& args;
  const DepthwiseBox& box;
  OOC_MEMBER StagedRow operator()(unsigned number) const {
    const int h = box.place[1] + static_cast<int>(Take(&number, args.staged.by[0]));
    const int d = box.place[0] + static_cast<int>(Take(&number, args.staged.by[1]));
    const int c = static_cast<int>(Take(&number, args.staged.by[2]));
    const unsigned plane = box.plane + number;
    if (plane >= static_cast<unsigned>(args.all_planes)) return {0, 0, false};
    const DepthwisePlane at = PlaneOf(args, plane);
    const int* const xs = args.source.at;
    return {at.n * xs[0] + at.g * xs[1] + c * xs[2] + d * xs[3] + h * xs[4], box.place[2],
            Inside(d, args.conv.in[0]) && Inside(h, args.conv.in[1])};
  }
};

// Filters lie in the order of the planes of one image.
template <class In, class T>
OOC_HOST_DEVICE void StageFilters(const DepthwiseArgs& args, const Grid& grid, unsigned thread,
                                  unsigned first_plane, T* to) {
  const In* const from = static_cast<const In*>(args.conv.w);
  const unsigned of_plane = static_cast<unsigned>(args.conv.reduced * args.taps);
  const unsigned planes = args.filter_elements / of_plane;
  const unsigned first = first_plane % planes * of_plane;
  for (unsigned i = thread; i < args.planes * of_plane; i += grid.threads) {
    to[i] = static_cast<T>(Widen(from[(first + i) % args.filter_elements]));
  }
}

// One row of taps for every sum. `from` is what the first sum's first tap reads.
template <bool kMirrored, class T>
OOC_HOST_DEVICE void AddTapRow(T (&sums)[kDepthwiseOutputs], const T* from, const T* with,
                               int count, int step, int move) {
  constexpr int kMost = 8, kSign = kMirrored ? -1 : 1;
  if (step != 1 || move != 1) {
    for (; count > 0; --count, from += kSign * move, ++with) AddSpread(sums, from, step, *with);
    return;
  }
  for (; count >= kMost; count -= kMost, from += kSign * kMost, with += kMost) {
    AddChunk<kMost, kMirrored>(sums, from, with);
  }
  switch (count) {
    case 1: AddChunk<1, kMirrored>(sums, from, with); break;
    case 2: AddChunk<2, kMirrored>(sums, from, with); break;
    case 3: AddChunk<3, kMirrored>(sums, from, with); break;
    case 4: AddChunk<4, kMirrored>(sums, from, with); break;
    case 5: AddChunk<5, kMirrored>(sums, from, with); break;
    case 6: AddChunk<6, kMirrored>(sums, from, with); break;
    case 7: AddChunk<7, kMirrored>(sums, from, with); break;
    default: break;
  }
}

// The whole sums of neighbours. `source` is what the first one's first tap on W reads in place 0 of
// the other axes, `weights` its first tap. In `taps` are the axes D and H.
template <bool kOneBlock, bool kMirrored, class T>
OOC_HOST_DEVICE DirectSums<T> RowSums(const DepthwiseArgs& args, const AxisTaps (&taps)[2],
                                      const T* source, const T* weights) {
  const DirectArgs& conv = args.conv;
  const int* const xs = conv.x_stride.at;
  const int* const ws = conv.w_stride.at;
  const int cols = conv.filter[2];
  DirectSums<T> block{}, group{};
  int passed = 0;
  for (int c = 0; c < conv.reduced; ++c, source += xs[2], weights += ws[1]) {
    for (int t = 0, d = taps[0].place; t < taps[0].count; ++t, d += conv.place_step[0]) {
      for (int r = 0, h = taps[1].place; r < taps[1].count; ++r, h += conv.place_step[1]) {
        if (!kOneBlock && passed > 0 && passed + cols > kDirectBlock) {
          CloseBlock(&block, &group);
          passed = 0;
        }
        passed += cols;
        AddTapRow<kMirrored>(
            block.at, source + (d * xs[3] + h * xs[4]),
            weights + (t * conv.tap_step[0] * ws[3] + r * conv.tap_step[1] * ws[4]), cols,
            kMirrored ? 1 : conv.stride[2], conv.dilation[2]);
      }
    }
  }
  if (kOneBlock) return block;
  CloseBlock(&block, &group);
  CloseBlock(&group, &block);
  return block;
}

template <int kVector, class Out, class T>
OOC_HOST_DEVICE void StoreVectors(const DirectSums<T>& sums, Out* out, int count) {
  OOC_UNROLL
  for (int i = 0; i < kDepthwiseOutputs; i += kVector) {
    if (i >= count) break;
    Vector<Out, kVector> values;
    OOC_UNROLL
    for (int v = 0; v < kVector; ++v) values.at[v] = Convert<Out>(sums.at[i + v]);
    StoreRaw(BitCast<Raw<sizeof(Out) * kVector>>(values), reinterpret_cast<char*>(out + i));
  }
}

template <class Out, class T>
OOC_HOST_DEVICE void StoreNeighbours(const DepthwiseArgs& args, const DirectSums<T>& sums,
                                     int offset, int count) {
  constexpr int kMost = 16 / static_cast<int>(sizeof(Out));
  Out* const out = static_cast<Out*>(args.conv.out) + offset;
  if (args.out_vector == kMost) {
    StoreVectors<kMost>(sums, out, count);
  } else if (args.out_vector == 2) {
    StoreVectors<2>(sums, out, count);
  } else {
    StoreVectors<1>(sums, out, count);
  }
}

// The outputs of one thread: their place in the tensor and in the box. `there` is false outside the
// tensor.
struct DepthwiseItem {
  bool there;
  int local, out[3];  // local: the plane among those of the box
  int offset, count;  // of the output: of the first element, and elements
};

OOC_HOST_DEVICE DepthwiseItem ItemOf(const DepthwiseArgs& args, const DepthwiseBox& box,
                                     unsigned number) {
  const DirectArgs& conv = args.conv;
  DepthwiseItem item;
  // Rows come first, so that neighbouring threads read in different banks; or columns.
  const unsigned fast = Take(&number, args.items_by[0]), slow = Take(&number, args.items_by[1]);
  const int across = static_cast<int>(args.made == 1 ? fast : slow) * args.made;
  const int deep = static_cast<int>(Take(&number, args.items_by[2]));
  item.local = static_cast<int>(number);
  item.out[0] = box.out[0] + deep;
  item.out[1] = box.out[1] + static_cast<int>(args.made == 1 ? slow : fast);
  item.out[2] = box.out[2] + across;
  const int left = conv.out_extent[2] - item.out[2], inside = args.box[2] - across;
  const int most = left < inside ? left : inside;
  item.count = most < args.made ? most : args.made;
  const unsigned plane = box.plane + number;
  item.there = plane < static_cast<unsigned>(args.all_planes) && item.count > 0 &&
               item.out[0] < conv.out_extent[0] && item.out[1] < conv.out_extent[1];
  const DepthwisePlane at = PlaneOf(args, plane);
  const int* const os = conv.out_stride.at;
  item.offset = at.n * os[0] + at.g * os[1] + at.channel * os[2] + item.out[0] * os[3] +
                item.out[1] * os[4] + item.out[2] * os[5];
  return item;
}

// Several outputs: all have the same taps on W.
template <bool kMirrored, class T>
OOC_HOST_DEVICE DirectSums<T> NeighbourSums(const DepthwiseArgs& args, const DepthwiseItem& item,
                                            const T* source, const T* weights) {
  const DirectArgs& conv = args.conv;
  const int* const ws = conv.w_stride.at;
  AxisTaps taps[2];
  for (int d = 0; d < 2; ++d) {
    taps[d] = AxisTapsOf(conv, d, item.out[d] + args.pad_out[d]);
    weights += taps[d].first * ws[3 + d];
  }
  source += AxisTapsOf(conv, 2, item.out[2] + args.pad_out[2]).place;
  return conv.one_block != 0 ? RowSums<true, kMirrored>(args, taps, source, weights)
                             : RowSums<false, kMirrored>(args, taps, source, weights);
}

// One output of backward data whose neighbours have other taps.
template <class T>
OOC_HOST_DEVICE DirectSums<T> SingleSum(const DepthwiseArgs& args, const DepthwiseItem& item,
                                        const T* source, const T* weights) {
  GatherItem one{};
  one.count = 1;
  for (int d = 0; d < 3; ++d) one.out[d] = item.out[d] + args.pad_out[d];
  DirectSums<T> sums{};
  if (args.conv.one_block != 0) {
    GatherOne(args.conv, one, source, weights, sums.at);
  } else {
    GatherAll<false>(args.conv, one, source, weights, sums.at);
  }
  return sums;
}

template <class In, class T>
OOC_HOST_DEVICE void DepthwiseItems(const DepthwiseArgs& args, const Grid& grid, unsigned thread,
                                    const DepthwiseBox& box, const T* staged, const T* filters) {
  const DirectArgs& conv = args.conv;
  const int* const xs = conv.x_stride.at;
  int before = 0;  // staged, the place 0 of all axes would be so far before the first element
  for (int d = 0; d < 3; ++d) before += (box.place[d] + args.pad_in[d]) * xs[3 + d];
  for (unsigned number = thread; number < args.items; number += grid.threads) {
    const DepthwiseItem item = ItemOf(args, box, number);
    if (!item.there) continue;
    const T* const source = staged + (item.local * conv.reduced * xs[2] - before);
    const T* const weights = filters + item.local * conv.reduced * args.taps;
    const DirectSums<T> sums = args.made == 1 ? SingleSum(args, item, source, weights)
                               : conv.backward == 0
                                   ? NeighbourSums<false>(args, item, source, weights)
                                   : NeighbourSums<true>(args, item, source, weights);
    if (args.out_type == conv.type) {
      StoreNeighbours<In>(args, sums, item.offset, item.count);
    } else {
      StoreNeighbours<T>(args, sums, item.offset, item.count);
    }
  }
}

template <class In, class T>
OOC_HOST_DEVICE void DepthwiseTyped(const DepthwiseArgs& args, const Grid& grid) {
  T* const staged = static_cast<T*>(grid.shared);
  T* const filters = staged + args.staged.rows * args.staged.pitch;
  for (unsigned number = grid.block; number < args.count; number += grid.blocks) {
    const DepthwiseBox box = BoxOf(args, number);
    OOC_THREADS(thread) {
      StageRows(args.staged, grid, thread, static_cast<const In*>(args.conv.x), args.conv.in[2],
                DepthwiseRows{args, box}, staged);
      StageFilters<In>(args, grid, thread, box.plane, filters);
    }
    OOC_BARRIER;
    OOC_THREADS(thread) { DepthwiseItems<In>(args, grid, thread, box, staged, filters); }
    OOC_BARRIER;
  }
}

OOC_BODY void Depthwise(const DepthwiseArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.conv.type, In, DepthwiseTyped<In, ComputeType<In>::Type>(args, grid);)
}

}  // namespace oocdnn::cuda
