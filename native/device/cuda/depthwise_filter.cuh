// Backward filter of groups of one input channel: n o p q, in the blocks of pixels of direct.cuh
// and with the same bits. The blocks are summed apart, in float32, and added up in their order.
#pragma once

#include "device/cuda/depthwise_stage.cuh"

namespace oocdnn::cuda {

OOC_HOST_DEVICE DepthwiseCell CellOf(const DepthwiseFilterArgs& args, unsigned number) {
  const DirectArgs& conv = args.conv;
  DepthwiseCell cell;
  cell.block = Take(&number, args.some);
  const int part = static_cast<int>(Take(&number, args.parts));
  cell.element = number * static_cast<unsigned>(args.taps);
  const int k = static_cast<int>(Take(&number, args.channels)), g = static_cast<int>(number);
  const FilterBox box = FilterBoxOf(conv, args.first_block + cell.block);
  for (int i = 0; i < 4; ++i) {
    cell.begin[i] = box.begin[i];
    cell.end[i] = box.end[i];
  }
  cell.x = g * conv.x_stride.at[1];
  cell.dy = g * conv.w_stride.at[1] + k * conv.w_stride.at[2];
  cell.tap_depth = part / args.row_parts;
  cell.tap_row = part % args.row_parts * args.rows;
  return cell;
}

// Source rows of x for cells.
struct DepthwiseSourceRows {
  const DepthwiseFilterArgs& args;
  const DepthwiseCell* cells;
  OOC_MEMBER StagedRow operator()(unsigned number) const {
    const DirectArgs& conv = args.conv;
    const int row = static_cast<int>(Take(&number, args.x.by[0]));
    const int o = static_cast<int>(Take(&number, args.x.by[1]));
    const int i = static_cast<int>(Take(&number, args.x.by[2]));
    const DepthwiseCell& cell = cells[number];
    const int n = cell.begin[0] + i;
    const int d =
        (cell.begin[1] + o) * conv.stride[0] - args.pad[0] + cell.tap_depth * conv.dilation[0];
    const int h =
        cell.begin[2] * conv.stride[1] - args.pad[1] + cell.tap_row * conv.dilation[1] + row;
    const int first = AlignedColumn(cell.begin[3] * conv.stride[2] - args.pad[2], args.x.vector);
    const int* const xs = conv.x_stride.at;
    const bool there = n < cell.end[0] && cell.begin[1] + o < cell.end[1] &&
                       Inside(d, conv.in[0]) && Inside(h, conv.in[1]);
    return {cell.x + n * xs[0] + d * xs[3] + h * xs[4], first, there};
  }
};

// Source rows of dy for cells.
struct DepthwiseGradientRows {
  const DepthwiseFilterArgs& args;
  const DepthwiseCell* cells;
  OOC_MEMBER StagedRow operator()(unsigned number) const {
    const int row = static_cast<int>(Take(&number, args.dy.by[0]));
    const int depth = static_cast<int>(Take(&number, args.dy.by[1]));
    const int i = static_cast<int>(Take(&number, args.dy.by[2]));
    const DepthwiseCell& cell = cells[number];
    const int n = cell.begin[0] + i, o = cell.begin[1] + depth, p = cell.begin[2] + row;
    const int* const ys = args.conv.w_stride.at;
    const bool there = n < cell.end[0] && o < cell.end[1] && p < cell.end[2];
    return {cell.dy + n * ys[0] + o * ys[3] + p * ys[4],
            AlignedColumn(cell.begin[3], args.dy.vector), there};
  }
};

// The pixels of a row for neighbouring taps.
template <int kSums>
OOC_HOST_DEVICE void AddPixelRow(const DirectArgs& conv, float (&sums)[kSums], const float* from,
                                 const float* with, int count) {
  constexpr int kMany = 8, kSome = 4;
  const int step = conv.stride[2], apart = conv.dilation[2];
  if (step == 1 && apart == 1) {
    for (; count >= kMany; count -= kMany, from += kMany, with += kMany) {
      AddChunk<kMany, false>(sums, from, with);
    }
    if (count >= kSome) {
      AddChunk<kSome, false>(sums, from, with);
      count -= kSome;
      from += kSome;
      with += kSome;
    }
  }
  for (; count > 0; --count, from += step, ++with) AddSpread(sums, from, apart, *with);
}

// The sums of one cell for kSums neighbouring taps of the cell's filter row `row`. `x` and `dy` are
// the cell's staged tiles.
template <int kSums>
OOC_HOST_DEVICE void SumCell(const DepthwiseFilterArgs& args, const DepthwiseCell& cell, int row,
                             int tap, const float* x, const float* dy, float* out) {
  const DirectArgs& conv = args.conv;
  const int first = cell.begin[3] * conv.stride[2] - args.pad[2];
  x += row * conv.dilation[1] * args.x.pitch + tap * conv.dilation[2] + first -
       AlignedColumn(first, args.x.vector);
  dy += cell.begin[3] - AlignedColumn(cell.begin[3], args.dy.vector);
  const int x_rows = static_cast<int>(args.x.by[0].divisor);
  const int dy_rows = static_cast<int>(args.dy.by[0].divisor), depth = conv.block[1];
  float sums[kSums] = {};
  for (int n = 0; n < cell.end[0] - cell.begin[0]; ++n) {
    for (int o = 0; o < cell.end[1] - cell.begin[1]; ++o) {
      const int plane = n * depth + o;
      for (int p = 0; p < cell.end[2] - cell.begin[2]; ++p) {
        AddPixelRow(conv, sums, x + (plane * x_rows + p * conv.stride[1]) * args.x.pitch,
                    dy + (plane * dy_rows + p) * args.dy.pitch, cell.end[3] - cell.begin[3]);
      }
    }
  }
  OOC_UNROLL
  for (int i = 0; i < kSums; ++i) out[i] = sums[i];
}

OOC_HOST_DEVICE void SumItem(const DepthwiseFilterArgs& args, const DepthwiseCell* cells,
                             unsigned number, const float* x, const float* dy) {
  const int* const filter = args.conv.filter;
  const int row = static_cast<int>(Take(&number, args.items_by[0]));
  const int tap = static_cast<int>(Take(&number, args.items_by[1])) * args.row_taps;
  const DepthwiseCell& cell = cells[number];
  const int tap_row = cell.tap_row + row, left = filter[2] - tap;
  if (cell.begin[0] >= cell.end[0] || tap_row >= filter[1]) return;
  float* const out = args.sums + (static_cast<Long>(cell.block) * args.elements + cell.element +
                                  (cell.tap_depth * filter[1] + tap_row) * filter[2] + tap);
  x += number * args.x.elements;
  dy += number * args.dy.elements;
  switch (left < args.row_taps ? left : args.row_taps) {
    case 1: SumCell<1>(args, cell, row, tap, x, dy, out); break;
    case 2: SumCell<2>(args, cell, row, tap, x, dy, out); break;
    case 3: SumCell<3>(args, cell, row, tap, x, dy, out); break;
    case 4: SumCell<4>(args, cell, row, tap, x, dy, out); break;
    case 5: SumCell<5>(args, cell, row, tap, x, dy, out); break;
    case 6: SumCell<6>(args, cell, row, tap, x, dy, out); break;
    case 7: SumCell<7>(args, cell, row, tap, x, dy, out); break;
    case 8: SumCell<8>(args, cell, row, tap, x, dy, out); break;
    default: break;
  }
}

// Cells behind the last are empty.
OOC_HOST_DEVICE void FindCells(const DepthwiseFilterArgs& args, const Grid& grid, unsigned thread,
                               unsigned first, DepthwiseCell* cells) {
  for (unsigned i = thread; i < static_cast<unsigned>(args.cells); i += grid.threads) {
    cells[i] = first + i < args.count ? CellOf(args, first + i) : DepthwiseCell{};
  }
}

template <class In>
OOC_HOST_DEVICE void StageCells(const DepthwiseFilterArgs& args, const Grid& grid, unsigned thread,
                                const DepthwiseCell* cells, float* x, float* dy) {
  const DirectArgs& conv = args.conv;
  StageRows(args.x, grid, thread, static_cast<const In*>(conv.x), conv.in[2],
            DepthwiseSourceRows{args, cells}, x);
  StageRows(args.dy, grid, thread, static_cast<const In*>(conv.dy), conv.extent[3],
            DepthwiseGradientRows{args, cells}, dy);
}

OOC_BODY void DepthwiseFilter(const DepthwiseFilterArgs& args, const Grid& grid) {
  auto* const cells = static_cast<DepthwiseCell*>(grid.shared);
  float* const x = reinterpret_cast<float*>(cells + args.cells);
  float* const dy = x + args.cells * args.x.elements;
  for (unsigned first = grid.block * args.cells; first < args.count;
       first += grid.blocks * args.cells) {
    OOC_THREADS(thread) { FindCells(args, grid, thread, first, cells); }
    OOC_BARRIER;
    OOC_THREADS(thread) {
      switch (args.conv.type) {
        case kF16: StageCells<Half>(args, grid, thread, cells, x, dy); break;
        case kBF16: StageCells<BFloat>(args, grid, thread, cells, x, dy); break;
        default: StageCells<float>(args, grid, thread, cells, x, dy); break;
      }
    }
    OOC_BARRIER;
    OOC_THREADS(thread) {
      for (unsigned i = thread; i < args.items; i += grid.threads) SumItem(args, cells, i, x, dy);
    }
    OOC_BARRIER;
  }
}

// A thread adds up the sums of one element. Loads a few before it adds the first of them.
template <class Out>
OOC_HOST_DEVICE void AddSums(const DepthwiseFilterArgs& args, unsigned element) {
  Out* const out = static_cast<Out*>(args.conv.out) + element;
  const float* from = args.sums + element;
  Out sum = args.add != 0 ? *out : Out(0);
  for (unsigned left = args.some.divisor; left > 0;) {
    const unsigned count = left < kTermsAhead ? left : kTermsAhead;
    float value[kTermsAhead]{};
    OOC_UNROLL
    for (unsigned i = 0; i < kTermsAhead; ++i) {
      if (i < count) value[i] = from[static_cast<Long>(i) * args.elements];
    }
    OOC_UNROLL
    for (unsigned i = 0; i < kTermsAhead; ++i) {
      if (i < count) sum = sum + static_cast<Out>(value[i]);
    }
    left -= count;
    from += static_cast<Long>(count) * args.elements;
  }
  *out = sum;
}

OOC_BODY void DepthwiseAdd(const DepthwiseFilterArgs& args, const Grid& grid) {
  OOC_THREADS(thread) {
    for (unsigned i = grid.block * grid.threads + thread; i < args.elements;
         i += grid.blocks * grid.threads) {
      if (args.conv.wide != 0) {
        AddSums<double>(args, i);
      } else {
        AddSums<float>(args, i);
      }
    }
  }
}

}  // namespace oocdnn::cuda
