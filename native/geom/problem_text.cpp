// Problem strings, printed here and read in problem_parse.cpp. The grammar:
//
//   conv2d:fwd x1x64x56x56 w64x64x3x3 pad1 str2 bf16 nhwc +bias +relu
//
// The first word is conv1d, conv2d or conv3d, ":", and fwd, bwd_data, bwd_filter or bwd_bias; the
// others follow in any order:
//
//   x1x64x56x56 w64x64x3x3   the arrays' shapes: N, C, spatial; K, C / groups, taps
//   y1x64x56x56              bwd_bias only, instead of x and w; elsewhere y follows from the others
//   pad1  pad1x2  pad0:1x2:2 every axis alike; one per axis; before:after
//   str2  dil1x2  grp4
//   f32 f64 f16 bf16         with "/tf32", "/fp32x3" or "/fp32_fast", see Math
//   nhwc  ws:nhwc  xs:...    memory order, see stride_text.hpp
//   alpha2  beta1  flip
//   +scale +bias +residual0.5 +relu +clip6 +elu1 +sigmoid +tanh +swish1 +softplus1  the epilogue
//   +maxpool2 +avgpool3x2 +avgpoolin2   windows; padding is averaged too, or is not
//   poolstr2 poolpad1x0:1 poolceil      how they move: like str and pad; see Pool
//   +saved                   fwd: what backward needs is saved
//   +clipped                 backward of a relu: bits say where it was flat. With it, or a pool,
//                            dy is made of dz, and of what was saved
//   +sloped                  the same of a smooth activation: its slopes were saved
//   +dw +db                  bwd_data, bwd_filter (+db): these gradients come along, see Also
//   +prenorm +prerelu ...    scale, shift and activation of what is read, see Prologue
//   +sums                    sums of what is written come along
//   x@pin w@dev              where an operand lives, see placement.hpp; passed over here
//
// What is left out is pad0 str1 dil1 grp1 f32 nchw alpha1 beta0 poolpad0 and a poolstr that is the
// window, and ToString leaves it out too.
// ParseProblem(ToString(p)) gives p, and ToString is the same for problems that are the same work:
// numbers that nothing reads (the stride of an extent of 1, relu's parameter) are not printed.
#include <algorithm>

#include "base/checked.hpp"
#include "geom/problem.hpp"
#include "geom/stride_text.hpp"
#include "geom/words.hpp"

namespace oocdnn {
namespace {

// As many spatial axes as it takes to show every one that does something: a problem that is wrong
// is printed too, in the message that says so.
int ShownRank(const Problem& problem) {
  const ConvShape& shape = problem.shape;
  int first = 3 - std::clamp(problem.rank, 1, 3);
  for (int s = 0; s < first; ++s) {
    const bool trivial = shape.in[s] == 1 && shape.filter[s] == 1 && shape.out[s] == 1 &&
                         shape.pad_before[s] == 0 && shape.pad_after[s] == 0;
    if (!trivial) first = s;
  }
  return 3 - first;
}

std::string ShapeText(char name, int64_t outer, int64_t inner, const Spatial& spatial, int rank) {
  std::string text = name + NumberText(outer) + 'x' + NumberText(inner);
  for (int s = 3 - rank; s < 3; ++s) text += 'x' + NumberText(spatial[s]);
  return text;
}

using Texts = std::array<std::string, 3>;

Texts TextsOf(const Spatial& numbers) {
  Texts texts;
  for (int s = 0; s < 3; ++s) texts[s] = NumberText(numbers[s]);
  return texts;
}

Texts PaddingTexts(const Spatial& before, const Spatial& after) {
  Texts texts = TextsOf(before);
  for (int s = 0; s < 3; ++s) {
    if (before[s] != after[s]) texts[s] += ':' + NumberText(after[s]);
  }
  return texts;
}

// "2" or "1x2".
std::string Joined(int rank, const Texts& values) {
  const auto* first = values.begin() + (3 - rank);
  std::string text = *first;
  if (!std::all_of(first, values.end(), [&](const std::string& v) { return v == *first; })) {
    for (const auto* value = first + 1; value != values.end(); ++value) text += 'x' + *value;
  }
  return text;
}

// " str2" or " str1x2"; empty where every axis has the default.
std::string PerAxis(const char* name, int rank, const std::string& default_text,
                    const Texts& values) {
  const std::string text = Joined(rank, values);
  return text == default_text ? "" : std::string(" ") + name + text;
}

std::string WindowText(const ConvShape& shape, int rank) {
  return PerAxis("pad", rank, "0", PaddingTexts(shape.pad_before, shape.pad_after)) +
         PerAxis("str", rank, "1", TextsOf(shape.stride)) +
         PerAxis("dil", rank, "1", TextsOf(shape.dilation));
}

std::string SizesText(const Problem& problem, int rank) {
  const ConvShape& shape = problem.shape;
  const int64_t outputs = Mul(shape.g, shape.k);
  std::string text;
  if (problem.direction == Direction::kBackwardBias) {
    text = " " + ShapeText('y', shape.n, outputs, shape.out, rank);
  } else {
    text = " " + ShapeText('x', shape.n, Mul(shape.g, shape.c), shape.in, rank) + " " +
           ShapeText('w', outputs, shape.c, shape.filter, rank) + WindowText(shape, rank);
  }
  return shape.g == 1 ? text : text + " grp" + NumberText(shape.g);
}

std::string TypeText(const Problem& problem) {
  if (problem.dtype == DType::kFloat32 && problem.math == Math::kFp32) return {};
  return " " + TypeName(problem.dtype, problem.math);
}

std::string ScalarText(const Problem& problem) {
  std::string text;
  if (problem.alpha != 1.0) text += " alpha" + NumberText(problem.alpha);
  if (problem.beta != 0.0) text += " beta" + NumberText(problem.beta);
  return problem.flip ? text + " flip" : text;
}

std::string EpilogueText(const Epilogue& epilogue) {
  std::string text;
  if (epilogue.scale) text += " +scale";
  if (epilogue.bias) text += " +bias";
  if (epilogue.residual) {
    text += " +residual";
    if (epilogue.residual_alpha != 1.0) text += NumberText(epilogue.residual_alpha);
  }
  const int activation = static_cast<int>(epilogue.activation);
  if (activation <= 0 || activation >= kActivations) return text;
  const ActivationWord& word = kActivationWords[activation];
  text += std::string(" +") + word.name;
  return word.has_parameter ? text + NumberText(epilogue.parameter) : text;
}

std::string PrologueText(const Prologue& prologue) {
  std::string text = prologue.affine ? " +prenorm" : "";
  const int activation = static_cast<int>(prologue.activation);
  if (activation <= 0 || activation >= kActivations) return text;
  const ActivationWord& word = kActivationWords[activation];
  text += std::string(" +pre") + word.name;
  return word.has_parameter ? text + NumberText(prologue.parameter) : text;
}

std::string PoolText(const Pool& pool, int rank) {
  const int mode = static_cast<int>(pool.mode);
  if (mode <= 0 || mode >= kPoolModes) return {};
  const std::string window = Joined(rank, TextsOf(pool.window));
  return std::string(" +") + kPoolWords[mode] + window +
         PerAxis("poolstr", rank, window, TextsOf(pool.stride)) +
         PerAxis("poolpad", rank, "0", PaddingTexts(pool.pad_before, pool.pad_after)) +
         (pool.ceil ? " poolceil" : "");
}

}  // namespace

const char* Name(Math math) {
  constexpr const char* kNames[kMaths] = {"fp32", "tf32", "fp32x3", "fp32_fast"};
  const int number = static_cast<int>(math);
  return number >= 0 && number < kMaths ? kNames[number] : nullptr;
}

std::string TypeName(DType dtype, Math math) {
  const std::string name = Name(dtype);
  return math == Math::kFp32 ? name : name + "/" + Name(math);
}

std::string ToString(const Problem& problem) {
  const int rank = ShownRank(problem);
  std::string text = Format("conv%dd:%s", rank, Name(problem.direction)) +
                     SizesText(problem, rank) + TypeText(problem);
  for (const std::string& word : StrideTexts(problem, rank)) text += ' ' + word;
  text += PrologueText(problem.prologue) + ScalarText(problem) + EpilogueText(problem.epilogue) +
          PoolText(problem.pool, rank);
  if (problem.saves) text += " +saved";
  if (problem.clips) text += " +clipped";
  if (problem.slopes) text += " +sloped";
  if (problem.also.dw) text += " +dw";
  if (problem.also.db) text += " +db";
  return problem.sums ? text + " +sums" : text;
}

}  // namespace oocdnn
