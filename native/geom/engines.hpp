// What the engines of this project say of themselves, by name: the devices that have them and plans
// for machines that are not here read the same table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "geom/tile_op.hpp"

namespace oocdnn {

// In order of preference; a device has some of them.
const std::vector<EngineInfo>& KnownEngines();

// The entry of that name, which must be known.
const EngineInfo& EngineNamed(std::string_view name);

// Groups of one input channel, and at most so many output channels each.
constexpr int64_t kMostMultiplier = 8;
bool HasSingleInputs(const ConvShape& shape);

// An engine that splits factors takes sums of at least so many terms: the error of fewer would be
// larger than float32's.
constexpr int64_t kLeastSplitTerms = 32;
int64_t TermsOf(Direction direction, const ConvShape& shape);  // of one sum; padding counts

// Whether there are tiles of the problem that the engine takes, as far as that is known beforehand.
// A request's engines that do not are left out: their names are empty.
bool Serves(const EngineInfo& engine, const Problem& problem);
bool Serves(const EngineInfo& engine, Direction direction, DType dtype, Math math,
            const ConvShape& shape);

// The arithmetic that the engine of that name computes in where a problem asks for `math`: it has
// one rate for each.
Math MathOf(std::string_view engine, Math math);

// Whether the problem has an epilogue, of 16-bit types, and the engine can do all that is done to
// sums but a maximum over windows, which comes to the same after rounding. Nothing may be saved or
// summed up of what is finished, as that would be of rounded values.
bool Finishes(const EngineInfo& engine, const Problem& problem);

// "cudnn-nhwc (cuDNN 9.19.0)", or the name alone.
std::string LabelOf(const EngineInfo& engine);

}  // namespace oocdnn
