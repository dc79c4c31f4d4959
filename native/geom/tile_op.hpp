// TileOp: the convolution of one tile, as an engine is asked for it; and what engines say of
// themselves. Values only: the planner and the devices speak through them.
#pragma once

#include <cstdint>
#include <string>

#include "geom/problem.hpp"

namespace oocdnn {

// The claims that the conformance suite holds every engine to.
struct Properties {
  bool exact = false;  // integer filling gives the exact sum
  // A tile over N, K, D, H, W has the bits of the whole; where it sums over one of these axes, if
  // the cuts lie between blocks (see sum_blocks.hpp).
  bool invariant = false;
  bool deterministic = false;  // the same bits from run to run
  bool nan_local = false;      // a NaN reaches only outputs that read it
};

struct EngineInfo {
  std::string name;     // "onednn", "direct", "reference", ...
  std::string library;  // that it is from, with its version: "cuDNN 9.19.0"; "": it is our own
  Properties properties;
  bool symmetric_padding = false;  // false: takes pad 0 only (padding is data on every axis)
  // For estimates of a tile's bytes before it is prepared.
  bool blocks_channels = false;  // pads them to whole blocks of 16
  bool short_tiles = false;      // 16-bit types stay so in tiles; false: tiles are of float32
  bool channels_last = false;    // tiles have their channels side by side
  bool wide_sums = false;        // tiles of filter gradients are of float64
  bool finishes = false;         // it takes a TileOp::epilogue of 16-bit types, see Finishes
  // For its time: a channel axis that is cut is computed in whole blocks of so many.
  int64_t channels_at_once = 16;
  bool depthwise = false;  // it takes groups of one input channel only, see Serves
  // It computes products of float32 in three of TF32, for problems that admit it only, see Serves.
  bool splits = false;
  // Sums are in the order and the blocks of the direct engine: such engines have the same bits.
  bool direct_sums = false;

  // The arithmetic that a tile has to ask for so that the engine takes it: `math`, but of an engine
  // that splits its factors.
  [[nodiscard]] Math MathFor(Math math) const { return splits ? Math::kFp32x3 : math; }
};

// What an engine is prepared for: one tile shape.
struct TileOp {
  Direction direction = Direction::kForward;
  ConvShape shape;  // pad_before == pad_after on every axis
  DType dtype = DType::kFloat32;
  DType out_dtype = DType::kFloat32;  // of the output tile: dtype, or the accumulator's
  Math math = Math::kFp32;
  bool accumulates = false;  // Run will be asked to add to the output tile
  // What becomes of a sum before it is rounded to out_dtype, which is dtype then; not where Run
  // adds. The bias is Run's tile of kBias.
  Epilogue epilogue;
  bool reproducible = false;  // only invariant engines
  // Rather kOutOfMemory than a way of computing that is left for want of workspace.
  bool first_choice = false;
  // It will run so often, or so long, that an engine may take a second to be compiled for it.
  bool may_compile = false;
  int64_t workspace_limit = INT64_MAX;
  int64_t trial_limit = INT64_MAX;  // bytes that preparing may take for as long as it lasts

  bool operator==(const TileOp&) const = default;
};

}  // namespace oocdnn
