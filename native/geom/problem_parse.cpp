// Reads problem strings: a table of words, each with its reader and what it expects, then the
// assembly of what they said. The grammar is at the top of problem_text.cpp.
#include <algorithm>
#include <utility>

#include "geom/problem.hpp"
#include "geom/stride_text.hpp"
#include "geom/words.hpp"

namespace oocdnn {
namespace {

using Sizes = std::vector<int64_t>;

// What the words say, before it is put together.
struct Draft {
  Problem problem;
  Sizes x, w, y, pad_before, pad_after, stride, dilation;
  Sizes pool_window, pool_before, pool_after, pool_stride;
  bool channels_last = false;
  std::array<std::string_view, kOperands> strides;
};

bool ReadSize(std::string_view text, int64_t least, int64_t* size) {
  return ReadNumber(text, size) && *size >= least && *size <= kLargestInText;
}

// "1x64x56x56", each part by `read`.
template <class Read>
bool ReadParts(std::string_view text, Read read) {
  while (true) {
    const size_t end = std::min(text.find('x'), text.size());
    if (!read(text.substr(0, end))) return false;
    if (end == text.size()) return true;
    text.remove_prefix(end + 1);
  }
}

template <Sizes Draft::* kSizes, int64_t kLeast>
bool ReadSizes(std::string_view text, Draft& draft) {
  return ReadParts(text, [&](std::string_view part) {
    return ReadSize(part, kLeast, &(draft.*kSizes).emplace_back());
  });
}

template <Sizes Draft::* kBefore, Sizes Draft::* kAfter>
bool ReadPadding(std::string_view text, Draft& draft) {
  return ReadParts(text, [&](std::string_view part) {
    const size_t colon = part.find(':');
    const std::string_view after = colon == part.npos ? part : part.substr(colon + 1);
    return ReadSize(part.substr(0, colon), 0, &(draft.*kBefore).emplace_back()) &&
           ReadSize(after, 0, &(draft.*kAfter).emplace_back());
  });
}

bool ReadGroups(std::string_view text, Draft& draft) {
  return ReadSize(text, 1, &draft.problem.shape.g);
}

template <DType kDType>
bool ReadType(std::string_view text, Draft& draft) {
  draft.problem.dtype = kDType;
  if (text.empty()) return true;
  for (int math = 1; math < kMaths; ++math) {
    draft.problem.math = static_cast<Math>(math);
    if (text[0] == '/' && text.substr(1) == Name(draft.problem.math)) return true;
  }
  return false;
}

bool ReadLayout(std::string_view text, Draft& draft) {
  draft.channels_last = text == LayoutName(draft.problem.rank, true).substr(1);
  return draft.channels_last || text == LayoutName(draft.problem.rank, false).substr(1);
}

bool ReadAlpha(std::string_view text, Draft& draft) {
  return ReadNumber(text, &draft.problem.alpha);
}

bool ReadBeta(std::string_view text, Draft& draft) { return ReadNumber(text, &draft.problem.beta); }

bool ReadFlip(std::string_view text, Draft& draft) {
  draft.problem.flip = true;
  return text.empty();
}

template <Operand kOperand>
bool ReadStrideWord(std::string_view text, Draft& draft) {
  draft.strides[Index(kOperand)] = text;
  return !text.empty();
}

// One activation: its name, and its parameter where it has one.
template <class Stage>
bool ReadActivation(std::string_view text, Stage& stage) {
  if (stage.activation != Activation::kIdentity) return false;
  for (int i = 1; i < kActivations; ++i) {
    const ActivationWord& word = kActivationWords[i];
    if (!text.starts_with(word.name)) continue;
    text.remove_prefix(std::string_view(word.name).size());
    stage.activation = static_cast<Activation>(i);
    return word.has_parameter ? ReadNumber(text, &stage.parameter) : text.empty();
  }
  return false;
}

bool ReadCeil(std::string_view text, Draft& draft) {
  draft.problem.pool.ceil = true;
  return text.empty();
}

// "maxpool2x2". The longest name that the text begins with is meant.
bool ReadPool(std::string_view text, Draft& draft) {
  Pool& pool = draft.problem.pool;
  if (pool.pools()) return false;
  std::string_view name;
  for (int i = 1; i < kPoolModes; ++i) {
    const std::string_view word = kPoolWords[i];
    if (!text.starts_with(word) || word.size() < name.size()) continue;
    name = word;
    pool.mode = static_cast<PoolMode>(i);
  }
  return pool.pools() && ReadSizes<&Draft::pool_window, 1>(text.substr(name.size()), draft);
}

bool ReadPrologue(std::string_view text, Prologue& prologue) {
  if (text == "norm") return !std::exchange(prologue.affine, true);
  return ReadActivation(text, prologue);
}

bool ReadEpilogue(std::string_view text, Draft& draft) {
  constexpr std::string_view kBefore = "pre";
  constexpr std::string_view kResidual = "residual";
  Epilogue& epilogue = draft.problem.epilogue;
  if (text == "scale") return !std::exchange(epilogue.scale, true);
  if (text == "bias") return !std::exchange(epilogue.bias, true);
  if (text == "saved") return !std::exchange(draft.problem.saves, true);
  if (text == "clipped") return !std::exchange(draft.problem.clips, true);
  if (text == "sloped") return !std::exchange(draft.problem.slopes, true);
  if (text == "dw") return !std::exchange(draft.problem.also.dw, true);
  if (text == "db") return !std::exchange(draft.problem.also.db, true);
  if (text == "sums") return !std::exchange(draft.problem.sums, true);
  if (text.starts_with(kBefore)) {
    return ReadPrologue(text.substr(kBefore.size()), draft.problem.prologue);
  }
  if (text.find("pool") != text.npos) return ReadPool(text, draft);
  if (!text.starts_with(kResidual)) return ReadActivation(text, epilogue);
  text.remove_prefix(kResidual.size());
  return !std::exchange(epilogue.residual, true) &&
         (text.empty() || ReadNumber(text, &epilogue.residual_alpha));
}

struct Word {
  const char* prefix;  // where one prefix begins another, the longer one comes first
  const char* what;    // words of one `what` are said once; empty: may be said again
  const char* expected;
  bool (*read)(std::string_view rest, Draft& draft);
};

constexpr const char* kTypes = "f32, f64, f16 or bf16, with /tf32, /fp32x3, /fp32_fast or without";
constexpr const char* kStrides = "strides such as xs:48x16x4x1, or a layout such as xs:nhwc";

#define OOC_ROW(name, number, word, example, ...) example
constexpr const char* kEpilogueWords =
    "+scale, +bias, +residual0.5, one of" OOC_ACTIVATIONS(OOC_ROW)
    ", one of +maxpool2 +avgpool2x3 +avgpoolin2, +saved, +clipped or +sloped, +dw, +db, +sums, "
    "+prenorm, one of +prerelu and the like; each once";
#undef OOC_ROW

constexpr Word kWords[] = {
    {"xs:", "strides of x", kStrides, ReadStrideWord<Operand::kX>},
    {"ws:", "strides of w", kStrides, ReadStrideWord<Operand::kW>},
    {"ys:", "strides of y", kStrides, ReadStrideWord<Operand::kY>},
    {"bs:", "strides of b", kStrides, ReadStrideWord<Operand::kBias>},
    {"ss:", "strides of scale", kStrides, ReadStrideWord<Operand::kScale>},
    {"rs:", "strides of residual", kStrides, ReadStrideWord<Operand::kResidual>},
    {"zs:", "strides of z", kStrides, ReadStrideWord<Operand::kZ>},
    {"inputs:", "strides of x beside dx", kStrides, ReadStrideWord<Operand::kInput>},
    {"dws:", "strides of dw", kStrides, ReadStrideWord<Operand::kDw>},
    {"dbs:", "strides of db", kStrides, ReadStrideWord<Operand::kDb>},
    {"x", "shape of x", "sizes N, C, spatial such as x1x64x56x56", ReadSizes<&Draft::x, 0>},
    {"w", "shape of w", "sizes K, C / groups, taps such as w64x64x3x3", ReadSizes<&Draft::w, 0>},
    {"y", "shape of y", "sizes N, K, spatial such as y1x64x56x56", ReadSizes<&Draft::y, 0>},
    {"pad", "padding", "pad1, pad1x2 (one per axis) or pad0:1x2:2 (before:after), none negative",
     ReadPadding<&Draft::pad_before, &Draft::pad_after>},
    {"poolpad", "padding of the pool",
     "poolpad1, poolpad1x2 (one per axis) or poolpad0:1x2:2 (before:after), none negative",
     ReadPadding<&Draft::pool_before, &Draft::pool_after>},
    {"poolstr", "stride of the pool", "poolstr2 or poolstr1x2 (one per axis), at least 1",
     ReadSizes<&Draft::pool_stride, 1>},
    {"poolceil", "rounding of the pool", "poolceil", ReadCeil},
    {"str", "stride", "str2 or str1x2 (one per axis), at least 1", ReadSizes<&Draft::stride, 1>},
    {"dil", "dilation", "dil2 or dil1x2 (one per axis), at least 1",
     ReadSizes<&Draft::dilation, 1>},
    {"grp", "groups", "grp4, at least 1", ReadGroups},
    {"f32", "element type", kTypes, ReadType<DType::kFloat32>},
    {"f64", "element type", kTypes, ReadType<DType::kFloat64>},
    {"f16", "element type", kTypes, ReadType<DType::kFloat16>},
    {"bf16", "element type", kTypes, ReadType<DType::kBFloat16>},
    {"n", "layout", "nchw or nhwc (conv1d: ncw or nwc; conv3d: ncdhw or ndhwc)", ReadLayout},
    {"alpha", "alpha", "a number such as alpha2", ReadAlpha},
    {"beta", "beta", "a number such as beta1", ReadBeta},
    {"flip", "flip", "flip", ReadFlip},
    {"+", "", kEpilogueWords, ReadEpilogue},
};

Status Expected(std::string_view word, const char* expected) {
  return Error(Code::kInvalidProblem, "%s: expected %s", Quoted(word).c_str(), expected);
}

Status ReadHead(std::string_view word, Problem* problem) {
  constexpr Direction kAll[] = {Direction::kForward, Direction::kBackwardData,
                                Direction::kBackwardFilter, Direction::kBackwardBias};
  for (int rank = 1; rank <= 3; ++rank) {
    for (const Direction direction : kAll) {
      if (word != Format("conv%dd:%s", rank, Name(direction))) continue;
      problem->rank = rank;
      problem->direction = direction;
      return {};
    }
  }
  return Expected(word,
                  "conv1d, conv2d or conv3d, then \":\", then fwd, bwd_data, bwd_filter or "
                  "bwd_bias");
}

Status ReadWord(std::string_view text, Draft& draft, std::vector<std::string_view>* said) {
  if (text.find('@') != text.npos) return {};
  const auto* word = std::find_if(std::begin(kWords), std::end(kWords),
                                  [&](const Word& w) { return text.starts_with(w.prefix); });
  if (word == std::end(kWords)) {
    return Expected(text,
                    "a word that begins with x w y pad str dil grp f32 f64 f16 bf16 nchw "
                    "nhwc alpha beta flip pool or +");
  }
  const std::string_view what = word->what;
  if (!what.empty() && std::find(said->begin(), said->end(), what) != said->end()) {
    return Error(Code::kInvalidProblem, "%s: %s is said twice; expected it once",
                 Quoted(text).c_str(), word->what);
  }
  said->push_back(what);
  const bool read = word->read(text.substr(std::string_view(word->prefix).size()), draft);
  return read ? Status() : Expected(text, word->expected);
}

// Copies `sizes` to the visible axes; one size serves all of them, none leaves the default.
Status Spread(const char* name, const Sizes& sizes, int rank, Spatial* values) {
  if (sizes.empty()) return {};
  const auto axes = static_cast<size_t>(rank);
  if (sizes.size() != 1 && sizes.size() != axes) {
    return Error(Code::kInvalidProblem, "%s has %zu numbers; conv%dd expects 1 or %d", name,
                 sizes.size(), rank, rank);
  }
  for (size_t i = 0; i < axes; ++i) {
    (*values)[3 - axes + i] = sizes[sizes.size() == 1 ? 0 : i];
  }
  return {};
}

Status CheckShape(const char* name, const Sizes& sizes, int rank, const char* expected) {
  if (sizes.empty()) {
    return Error(Code::kInvalidProblem, "%s is missing; expected %s", name, expected);
  }
  if (sizes.size() == static_cast<size_t>(rank) + 2) return {};
  return Error(Code::kInvalidProblem, "%s has %zu sizes; conv%dd expects %d: %s", name,
               sizes.size(), rank, rank + 2, expected);
}

Spatial SpatialOf(const Sizes& sizes, int rank) {
  Spatial spatial{1, 1, 1};
  std::copy(sizes.begin() + 2, sizes.end(), spatial.begin() + (3 - rank));
  return spatial;
}

Status Divide(const char* what, int64_t channels, int64_t groups, int64_t* per_group) {
  *per_group = channels / groups;
  if (channels % groups == 0) return {};
  return Error(Code::kInvalidProblem, "%s has %lld channels; grp%lld expects a multiple of %lld",
               what, static_cast<long long>(channels), static_cast<long long>(groups),
               static_cast<long long>(groups));
}

Status SetBiasShape(const Draft& draft, Problem* problem) {
  const int rank = problem->rank;
  ConvShape& shape = problem->shape;
  for (const Sizes* other :
       {&draft.x, &draft.w, &draft.pad_before, &draft.stride, &draft.dilation}) {
    if (other->empty()) continue;
    return Error(Code::kInvalidProblem,
                 "bwd_bias expects y's shape (y1x64x56x56) and grp; x, w, "
                 "pad, str and dil mean nothing to it");
  }
  OOC_TRY(CheckShape("y", draft.y, rank, "N, K, spatial"));
  shape.n = draft.y[0];
  OOC_TRY(Divide("y", draft.y[1], shape.g, &shape.k));
  shape.out = shape.in = SpatialOf(draft.y, rank);
  return {};
}

Status SetShape(const Draft& draft, Problem* problem) {
  const int rank = problem->rank;
  ConvShape& shape = problem->shape;
  if (!draft.y.empty()) {
    return Error(Code::kInvalidProblem,
                 "y's shape is not expected with %s: it follows from x, w, "
                 "pad, str and dil",
                 Name(problem->direction));
  }
  OOC_TRY(CheckShape("x", draft.x, rank, "N, C, spatial"));
  OOC_TRY(CheckShape("w", draft.w, rank, "K, C / groups, taps"));
  OOC_TRY(Spread("pad", draft.pad_before, rank, &shape.pad_before));
  OOC_TRY(Spread("pad", draft.pad_after, rank, &shape.pad_after));
  OOC_TRY(Spread("str", draft.stride, rank, &shape.stride));
  OOC_TRY(Spread("dil", draft.dilation, rank, &shape.dilation));
  shape.n = draft.x[0];
  OOC_TRY(Divide("x", draft.x[1], shape.g, &shape.c));
  OOC_TRY(Divide("w", draft.w[0], shape.g, &shape.k));
  if (draft.w[1] != shape.c) {
    return Error(Code::kInvalidProblem,
                 "w has %lld input channels; x with %lld channels and "
                 "grp%lld expects %lld",
                 static_cast<long long>(draft.w[1]), static_cast<long long>(draft.x[1]),
                 static_cast<long long>(shape.g), static_cast<long long>(shape.c));
  }
  shape.in = SpatialOf(draft.x, rank);
  shape.filter = SpatialOf(draft.w, rank);
  for (int s = 0; s < 3; ++s) {
    shape.out[s] = OutputExtent(shape.in[s], shape.pad_before[s], shape.pad_after[s],
                                shape.filter[s], shape.stride[s], shape.dilation[s]);
  }
  return {};
}

Status SetPool(const Draft& draft, Problem* problem) {
  const int rank = problem->rank;
  Pool& pool = problem->pool;
  if (!pool.pools()) {
    const bool said = !draft.pool_before.empty() || !draft.pool_stride.empty() || pool.ceil;
    if (!said) return {};
    return Error(
        Code::kInvalidProblem,
        "poolpad, poolstr and poolceil expect a pool: +maxpool2, +avgpool2 or +avgpoolin2");
  }
  OOC_TRY(Spread("the pool's window", draft.pool_window, rank, &pool.window));
  pool.stride = pool.window;
  OOC_TRY(Spread("poolstr", draft.pool_stride, rank, &pool.stride));
  OOC_TRY(Spread("poolpad", draft.pool_before, rank, &pool.pad_before));
  return Spread("poolpad", draft.pool_after, rank, &pool.pad_after);
}

}  // namespace

Result<Problem> ParseProblem(const std::string& text) {
  const std::vector<std::string_view> words = SplitWords(text);
  if (words.empty()) return Expected(text, "a problem such as conv2d:fwd x1x3x8x8 w4x3x3x3 pad1");
  Draft draft;
  OOC_TRY(ReadHead(words[0], &draft.problem));
  std::vector<std::string_view> said;
  for (size_t i = 1; i < words.size(); ++i) OOC_TRY(ReadWord(words[i], draft, &said));
  Problem& problem = draft.problem;
  const bool bias = problem.direction == Direction::kBackwardBias;
  OOC_TRY(bias ? SetBiasShape(draft, &problem) : SetShape(draft, &problem));
  OOC_TRY(SetPool(draft, &problem));
  SetPooled(&problem);
  OOC_TRY(ReadStrides(&problem, draft.channels_last, draft.strides));
  OOC_TRY(Validate(problem));
  return problem;
}

}  // namespace oocdnn
