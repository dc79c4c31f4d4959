// What the host passes to our kernels: plain structs, one per kernel, laid out alike by the host's
// compiler, nvcc and NVRTC. Nothing is included here, because NVRTC has no headers.
//
// Element types have the values of DType. Strides are in elements, except those of copies, which
// are in bytes: one arithmetic of addresses serves all types then.
#pragma once

namespace oocdnn::cuda {

using Long = long long;

enum ElementType : int { kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 3, kU8 = 4 };

// Quotients by a number that is known before the launch, for dividends below 2^31:
// n / divisor = (high half of n * multiplier + n) >> shift.
struct Divisor {
  unsigned divisor, multiplier, shift;
};

constexpr int kCopyDims = 6;

// One dimension of a copy: its extent, and its strides on both sides in bytes.
struct CopyDim {
  Divisor extent;
  Long from, to;
};

// ooc_rows: a strided copy with conversion, `vector` elements (1, 2, 4 or 8) at a time. Where that
// is more than 1, dim[0] is dense on both sides, and its extent and strides count vectors.
struct RowsArgs {
  const void* from;
  void* to;
  int from_type, to_type, vector, dims;
  unsigned count;          // vectors in all
  CopyDim dim[kCopyDims];  // the fastest first
};

// ooc_transpose: a strided copy with conversion where the two sides have different fastest
// dimensions: `read` is the one of `from`, `write` the one of `to`. Blocks of
// 2^read_bits x 2^write_bits elements pass through shared memory.
struct TransposeArgs {
  const void* from;
  void* to;
  int from_type, to_type;
  int read_vector, write_vector;     // elements of one access: 16 bytes' worth at most
  int read_bits, write_bits, pitch;  // pitch: elements between rows in shared memory
  unsigned read_extent, write_extent;
  Long read_from, read_to, write_from, write_to;  // strides of both on both sides, in bytes
  Divisor read_blocks, write_blocks;              // blocks along both
  unsigned count;                                 // blocks in all
  int dims;
  CopyDim dim[kCopyDims - 2];  // the others
};

// ooc_zero: zeroes boxes of one array, `size` bytes per element.
constexpr int kZeroBoxes = 12;
struct ZeroBox {
  Long offset;
  unsigned extent[kCopyDims];
  Long count;  // elements
};
struct ZeroArgs {
  void* to;
  int size, boxes;
  Long stride[kCopyDims];
  ZeroBox box[kZeroBoxes];
};

// ooc_finish: the pass over finished sums, in place. The tile is walked in the order of memory;
// the channel of an element is the sum of its indices times the channel steps.
struct FinishDim {
  Divisor extent;
  Long stride, channel;
};
struct FinishKernelArgs {
  void* out;
  const void *old, *residual, *bias, *scale;  // null where unused
  int type, activation, vector, dims;         // activation: the value of Activation
  int cuts;                                   // 1: no scalars, and see OnlyCuts
  unsigned count;                             // vectors in all
  double alpha, beta, residual_alpha, parameter;
  FinishDim dim[kCopyDims];  // the fastest first; its extent counts vectors
};

// ooc_normalize and ooc_sum: the passes of a normalisation, see NormArgs. Dimensions of extent 1
// are left out; the channel of an element is the sum of its indices times the channel steps, in
// entries of the table. ooc_sum has a block for each channel, and counts its elements by the first
// `row_dims` dimensions, the blocks by the others.
struct NormKernelArgs {
  void *tile, *table;             // of the first element; null: no scale and shift
  int type, rounded, activation;  // activation: the value of Activation
  int dims, row_dims;
  unsigned count;  // elements in all, or of a channel
  double parameter;
  FinishDim dim[kCopyDims];
};
constexpr int kSumThreads = 1024, kSumInFlight = 4;

// How threads share out a tile: `count` shares, the fastest counted first along `width` (of shares)
// or, where the channels lie nearest, along those; a thread goes along `loop`, so far.
constexpr int kShareLoops = 8, kShareThreads = 256;  // the threads of a block
struct TileShares {
  int loop, loops;  // images (0), channels (2) or W (5)
  int loop_extent;  // all that is looped over
  unsigned count;
  Divisor images, groups, channels, depth, height, width;  // of the count
};

// ooc_pool_forward: the pass over finished sums that pools them, or saves bits of them, or both:
// each sum is read once, and what is made is written. It works on groups of kPoolForwardGroup
// elements along W of what is made, whose bits are whole bytes. Either kPoolForwardGroup
// neighbouring threads have an element each, on several groups one behind the other along the
// images or the channels; or, where channels lie nearest, one thread has a group, and its
// neighbours those of the next channels. Where a kind is known, and vectors of y lie at multiples
// of their size, a thread makes what a vector of kPoolForwardVector sums has along W, so that fewer
// threads have a group; or groups of as many channels.
constexpr int kPoolForwardGroup = 8, kPoolForwardVector = 4;

// Work whose window, pool mode and finishing (scalar 1, no scale, no residual, an activation that
// only cuts) are known when the kernel is compiled; kPoolForwardAny is all other.
enum PoolForwardKind : int {
  kPoolForwardAny = 0,
  kPoolForwardEach,
  kPoolForwardMax1,
  kPoolForwardMax2,
  kPoolForwardMax3,
  kPoolForwardAverage2
};

struct PoolForwardKernelArgs {
  const void *y, *residual, *bias, *scale;  // null where unused
  void* z;                                  // y itself where nothing is pooled
  unsigned char* saved;                     // null: nothing is saved
  int type, z_type;                         // of y and residual; of z
  int activation, mode;                     // the values of Activation and PoolMode
  int kind;                                 // a PoolForwardKind
  int bits;                                 // of an element of what is saved
  int slope_type;                           // of slopes, see Saving; kU8: there are none
  int made;            // neighbours that a thread makes: 1, 2 or kPoolForwardVector
  int z_vector;        // 1: those of z lie side by side, at multiples of their size
  TileShares shares;   // each a group, or one behind the other
  int group_channels;  // C of a group
  double alpha, residual_alpha, parameter;
  int y_stride[kCopyDims], z_stride[kCopyDims], saved_stride[kCopyDims];
  // On each axis, in rows of the tiles: the window and its step, where the first one begins; the
  // rows of y that there are, and where the padding behind them ends; those of z.
  int window[3], step[3], first[3], begin[3], end[3], padded_end[3], rows[3];
  int z_width;                   // elements of z's tile along W
  int saved_rows[2], row_bytes;  // of the tile of what is saved
  int bits_begin, bits_end;      // along W, elements that have bits
};

// The bits of vectors of groups, of each thread; on the host, where one has no neighbours, those of
// a group gather here: of each of its loops, 32 bits to a word.
struct alignas(16) MakeRoom {
  unsigned group[kShareThreads][kPoolForwardVector];
};

// ooc_dense and ooc_planes: what ooc_finish does in place, or ooc_pool_forward, where sums get at
// most a bias and a cut, every window is a sum or 2x2 of them in steps of 2 that all exist, and the
// tiles lie densely. They read y in pieces of kDenseBytes.
constexpr int kDenseBytes = 16;

// How y lies, and what a thread of ooc_dense makes: vectors of neighbours, `step` vectors apart,
// along W, of as many as a piece has or, of windows, half of them, or kPoolForwardGroup where bits
// are saved; or of a piece's channels where these lie nearest, whose bias it reads once then.
enum DenseOrder : int { kDenseAlong = 0, kDenseAcross };

// ooc_planes: channels lie nearest in y, and bits, which always lie in planes of one channel, or z
// too do not. A block makes of as many pieces of a column as there are `lanes` as many groups of
// kPoolForwardGroup columns as there are `slots`, one behind the other in an image; a thread one
// group of one piece. What goes to planes waits in the block's memory, and leaves it in rows.
struct DensePlanes {
  int turns;                    // 1: z lies in planes; 0: as y
  int whole_words;              // 1: bits can be written as words
  unsigned groups;              // of a plane
  Divisor lanes, slots, words;  // words: of bits, in a row of `slots` groups
  Divisor chunks, runs;         // of `lanes` in a column, and of `slots` in an image
};

struct DenseArgs {
  const void* y;
  const float* bias;  // null: no bias
  void* z;
  unsigned char* saved;  // null: nothing is saved
  int y_type, z_type;    // of 16 bits: the same; f32 to any such, or f32
  int kind, bits;  // kPoolForwardEach, kPoolForwardMax2 or kPoolForwardAverage2; bits of an element
  int order, activation;
  double parameter;
  unsigned count, step;  // of vectors: all that is made, and the threads; or of blocks' work
  unsigned y_row;        // pieces of y in a row of it
  // Vectors (or groups) of z in a row, where each is of a window; pieces of channels, or rows of z
  // of a channel, and channels.
  Divisor width, rows, channels;
  DensePlanes planes;  // of ooc_planes
};

// ooc_pool_backward: a tile of dy from one of dz and bits of either, in patches: of one element, or
// where the kind is known of as many rows as the step of the windows, and kPoolBackwardVector
// columns, or where channels lie nearest as many columns as the step of so many channels. A share
// is of kPoolBackwardGroup patches along W where a thread goes along W, of one otherwise.
constexpr int kPoolBackwardGroup = 8, kPoolBackwardVector = 4;

// Work whose windows and steps, alike along H and W and 1 along D, are known when the kernel is
// compiled, with tiles of dz and dy of one type; kPoolBackwardAny is all other.
enum PoolBackwardKind : int {
  kPoolBackwardAny = 0,
  kPoolBackwardEach,     // no pool: bits of dy
  kPoolBackwardMax2,     // 2x2 in steps of 2
  kPoolBackwardMax3,     // 3x3 in steps of 2
  kPoolBackwardAverage2  // 2x2 in steps of 2, with bits of dy or without
};

struct PoolBackwardKernelArgs {
  const void* dz;
  const unsigned char* saved;  // null: nothing was saved
  void* dy;
  int dz_type, dy_type, mode, saving, bits;  // the values of PoolMode and Saved
  int slope_type;                            // of slopes: dz's; kU8: there are none
  int kind;                                  // a PoolBackwardKind
  int vector;    // 1: vectors of a patch lie at multiples of their size, and none passes an edge
  int start[2];  // so far before dy's tile the patches begin along H and W
  TileShares shares;      // of patches
  int channels, rows[2];  // of dy's tile: of a group, and along H and W
  int row_bytes;          // of the tile of bits
  int y_stride[kCopyDims], z_stride[kCopyDims], saved_stride[kCopyDims];
  // On each axis: the window and its step; and in rows of dy's tile where the window of the first
  // row of dz's tile begins, which rows are wanted, which the tensor has, and where the padding
  // behind these ends.
  int window[3], lead[3], begin[3], end[3], y_begin[3], y_end[3], padded_end[3];
  Divisor step[3];
  int z_begin[3], z_end[3];  // in rows of dz's tile, those that the tensor has
  int to_bits[3];            // from rows of dz's tile, or of dy's, to those of the tile of bits
};

// Strides of a convolution's tile: image (filter: output channel), group, channel (filter: input
// channel), and the three spatial ones. A tile has fewer than 2^31 elements.
struct TileStrides {
  int at[kCopyDims];
};

// ooc_direct_gather (forward and backward data); ooc_direct_filter, ooc_direct_elements (backward
// filter). Counts are per group. `out` are the extents of the written tensor's positions, `in`
// those of the read one's.
struct DirectArgs {
  const void *x, *w, *dy;  // forward: x, w; backward data: dy (as x), w; backward filter: x, dy
  void* out;
  int type;  // of the inputs; the output is f64 for f64, else f32
  int backward, accumulate;
  int n, g, channels, reduced;  // channels of the output, and of the sum
  int in[3], out_extent[3], filter[3], stride[3], dilation[3];
  // Forward and backward data: how far apart the taps that reach one place lie, and what they read.
  int tap_step[3], place_step[3];
  // Backward filter: w_stride is of dy. Side by side lie the output's channels in w or that dy, and
  // forward and backward data's positions on W in x.
  TileStrides x_stride, w_stride, out_stride;
  // Blocks of sums, see geom/sum_blocks.hpp. Forward and backward data: whether a sum is one block,
  // and reduced channels of a group of blocks.
  int one_block, group_channels;
  // Backward filter, on N, D, H, W: extents of the positions and of a block of them, how far into a
  // block the tile begins, and its blocks.
  int extent[4], block[4], first[4], blocks[4];
  int wide;    // backward filter: the output is f64
  Long count;  // output elements, or blocks of kDirectChannels of them
};

// Terms of one block of a forward or backward data sum, at most.
constexpr int kDirectBlock = 168;

// Neighbouring channels that one thread of the direct kernels works on.
constexpr int kDirectChannels = 8;

// Tiles of a read tensor in shared memory, one behind the other. A tile has by[2] x by[1] x by[0]
// rows: of channels or images, planes of depth, and the rows of these. A row is read as `vectors`
// vectors of `vector` elements, the first of which begins at a multiple of `vector`, and `across`
// of them are what a warp reads at once. It begins `pitch` elements behind the one before it, which
// is odd, so that threads on neighbouring rows meet different banks.
struct StagedTiles {
  int pitch, vectors, vector;
  int elements;  // of a tile
  unsigned rows;
  Divisor across, by[3];
};

// ooc_depthwise: forward and backward data of groups of one input channel, in planes. A plane is an
// image's channel of the output. A block of threads stages what a box of `planes` planes reads, and
// the filters. In `conv`, x_stride and w_stride are those of what is staged.
constexpr int kDepthwiseOutputs = 8;  // neighbours along W that one thread makes
struct DepthwiseArgs {
  DirectArgs conv;
  TileStrides source;         // of the read tensor
  int out_type, out_vector;   // out_vector: elements of one access
  int pad_in[3], pad_out[3];  // forward: the padding, and 0; backward data: 0, and the padding
  int made;                   // by a thread: kDepthwiseOutputs, or 1 where neighbours' taps differ
  int box[3], planes, all_planes;
  int taps;                  // of a filter
  unsigned filter_elements;  // of all filters
  unsigned count, items;     // of boxes, and of threads' work in each
  StagedTiles staged;
  Divisor boxes[3], channels, groups;
  Divisor items_by[3];  // H, W and D
};

// ooc_depthwise_filter: the sum of every block of pixels for every filter element, of `some` blocks
// from `first_block` on. A cell is such a block of one channel, and `rows` rows of its filter; a
// block of threads stages what `cells` of them read. ooc_depthwise_add adds up the sums.
constexpr int kDepthwiseTaps = 8;  // neighbours in a row of a filter that one thread sums, at most
struct DepthwiseFilterArgs {
  DirectArgs conv;  // w_stride is of dy
  float* sums;      // of all elements for the first block, then for the next
  int pad[3];
  int cells, rows, row_parts, row_taps, taps;  // row_taps: those that one thread sums
  int add;                                     // 1: `out` holds what came before
  unsigned count, items, elements, first_block;
  StagedTiles x, dy;
  Divisor some, parts, channels;  // of the cells: blocks of pixels, parts of filters
  Divisor items_by[2];            // rows, and parts of them
};

// What a block of threads knows of a cell: the pixels of its block, where its channel begins in x
// and dy, where its filter rows begin, and where its sums go.
struct DepthwiseCell {
  int begin[4], end[4];
  int x, dy, tap_depth, tap_row;
  unsigned block, element;
};

// ooc_fp32x3_gather (forward and backward data), ooc_fp32x3_filter (backward filter); the narrow
// ones have half the columns in a tile, and so has the transposed one, which computes the transpose
// of the product. A product of matrices, `rows` x `columns` of sums over `terms` for each group,
// see fp32x3.cuh. Tensors are dense, channels nearest. `source_data` is what taps read: x, or dy
// for backward data; `other_data` are the filters, or dy for backward filter.
constexpr int kFp32x3Rows = 128, kFp32x3Columns = 128;  // of a tile
constexpr int kFp32x3Pixels = 256;  // of some steps of a filter gradient, in shared memory
constexpr int kFp32x3Margin = 8;    // floats behind the channels of a pixel in shared memory

// The ways to multiply: by mma, and by wgmma, which the kernels for GPUs of compute capability 9.0
// use. Threads of a block, and those that copy factors; terms of a step; steps that shared memory
// holds, and how many of them with columns that are split; floats of a row of the terms of a step.
// Rows lie so that neighbours meet different banks: by a margin, or by an XOR swizzle of quads.
struct Fp32x3Mma {
  static constexpr int kThreads = 128, kCopiers = 128, kTerms = 16, kStages = 2, kSplits = 0;
  static constexpr int kPitch = 20;
};
struct Fp32x3Wgmma {
  static constexpr int kThreads = 512, kCopiers = 256, kTerms = 32, kStages = 4, kSplits = 2;
  static constexpr int kPitch = 32;
};

struct Fp32x3Args {
  const float *source_data, *other_data;
  float* out;
  int accumulate, vector, pairs;  // pairs: sums of two columns are stored at once
  unsigned rows, columns, terms;
  unsigned tiles;  // of all parts
  // Terms from `first_term` on, in parts, whose sums lie `part_elements` apart.
  unsigned first_term, part_terms;
  Long part_elements;
  Divisor column_tiles, row_tiles, groups;
  Divisor pixels[3];             // extents of what rows (backward filter: terms) count: D, H, W
  Divisor channels, taps[2];     // of what terms (columns) count: of a group, and taps on H and W
  int source[3], source_places;  // extents of the source, and its places in an image
  int step[3], base[3], tap_step[3];  // place in the source = pixel * step + base + tap * tap_step
  // Elements from one place, or pixel, to the next, and from one group to the next.
  int source_pitch, other_pitch;
  int source_group, other_group, out_group;
  int row_step, column_step;  // elements from one sum to the next
};

// ooc_fp32x3_add: the sum over the parts of a filter gradient.
struct Fp32x3AddArgs {
  const float* sums;
  float* out;
  unsigned elements, parts;
  int add;  // 1: `out` holds what came before
};

// A run of elements of one channel: their sum, the sum of their magnitudes, bounds of what the sum
// of the first few can be, and a power of two that divides all of them.
struct BiasPart {
  double sum, magnitude, low, high, grain;
};

// ooc_bias_parts, then ooc_bias_chain: `channels` sums over images and positions, in f64. The first
// fills `parts`, one for every chunk of every channel; the second does without where that is null.
struct BiasArgs {
  const void* dy;
  BiasPart* parts;
  double* out;
  int type, accumulate, channels;
  int vector;                   // elements of one access: 16 bytes' worth, or 1
  Long plane;                   // positions of one image and channel, which lie side by side
  Long count, chunks;           // elements and chunks of one channel
  Divisor by_plane, by_chunks;  // by_plane where a chunk or all of `count` allow it
};
constexpr int kBiasThreads = 128, kBiasPiece = 32, kBiasChunk = kBiasThreads * kBiasPiece;
constexpr int kBiasGroups = 16, kBiasGroup = kBiasThreads / kBiasGroups;  // of pieces

// A chunk in shared memory, 16 bytes each; a gap behind each thread's piece spreads the banks.
struct alignas(16) BiasSlot {
  unsigned word[4];
};

// What ooc_bias_chain keeps in shared memory besides.
struct BiasRoom {
  BiasPart chunk[kBiasThreads];
  BiasPart piece[kBiasThreads], group[kBiasGroups];          // of the chunk that is taken apart
  double rounded[kBiasThreads], group_rounded[kBiasGroups];  // sums of rounded elements
  double sum, unit;
  int next;  // the first chunk of `chunk` that is not in `sum`
  int unused[3];
};

}  // namespace oocdnn::cuda
