// What of each link a tile of a chain has.
#include "geom/chain.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// The samples, the channels and the rows of a tensor.
using Sizes = std::array<int64_t, 5>;

Sizes SizesOf(const Problem& problem, Operand operand) {
  const Dims dims = problem.DimsOf(operand);
  return {dims[0], Mul(dims[1], dims[2]), dims[3], dims[4], dims[5]};
}

std::string TextOf(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

Status CheckLink(const Problem& problem) {
  OOC_TRY(Validate(problem));
  const char* what = nullptr;
  if (problem.direction != Direction::kForward) what = Name(problem.direction);
  if (problem.beta != 0.0) what = "beta";
  if (problem.epilogue.residual) what = "a residual";
  if (problem.saves) what = "saving for backward";
  if (problem.prologue.any()) what = "a prologue";
  if (problem.sums) what = "sums";
  if (what == nullptr) return {};
  return Error(Code::kUnsupported, "%s in a chain: run this link by a call of its own", what);
}

Status CheckPair(const Problem& one, const Problem& following) {
  const Sizes written = SizesOf(one, one.output()), read = SizesOf(following, Operand::kX);
  if (written != read) {
    return Error(Code::kInvalidProblem, "it reads %s, and the link before it writes %s",
                 TextOf(read).c_str(), TextOf(written).c_str());
  }
  if (one.dtype == following.dtype) return {};
  return Error(Code::kInvalidDtype, "it is %s, and the link before it %s", Name(following.dtype),
               Name(one.dtype));
}

// What nothing is pooled of goes through windows of one element.
Problem InnerOf(Problem problem) {
  if (!problem.pool.pools()) {
    problem.pool = Pool{};
    problem.pool.mode = PoolMode::kMax;
    problem.stride[Index(Operand::kZ)] = problem.stride[Index(Operand::kY)];
  }
  SetPooled(&problem);
  return problem;
}

AxisLayer ConvolutionOn(const ConvShape& shape, int s) {
  return {shape.filter[s],     shape.stride[s], shape.dilation[s],
          shape.pad_before[s], shape.in[s],     shape.out[s]};
}

AxisLayer PoolOn(const Problem& problem, int s) {
  const Pool& pool = problem.pool;
  const int64_t rows = problem.shape.out[s];
  return {pool.window[s], pool.stride[s], 1, pool.pad_before[s], rows, pool.OutExtent(s, rows)};
}

RowSpan All(int64_t rows) { return {0, rows, 0, rows}; }

Axis SpatialAxis(int s) { return static_cast<Axis>(Index(Axis::kD) + s); }

bool PadsAlike(const Problem& problem, int axis) {
  return problem.shape.pad_before[axis] == problem.shape.pad_after[axis];
}

const RowSpan& SpanOf(const LinkRows& rows, Operand operand) {
  if (operand == Operand::kX) return rows.x;
  return operand == Operand::kZ ? rows.z : rows.y;
}

}  // namespace

Result<Chain> MakeChain(const std::vector<Problem>& problems) {
  if (problems.empty()) return Error(Code::kInvalidProblem, "a chain without links");
  Chain chain;
  for (size_t i = 0; i < problems.size(); ++i) {
    const std::string where = Format("link %zu of a chain", i);
    OOC_TRY(CheckLink(problems[i]).With(where));
    if (i > 0) OOC_TRY(CheckPair(problems[i - 1], problems[i]).With(where));
    const bool last = i + 1 == problems.size();
    chain.push_back(last ? problems[i] : InnerOf(problems[i]));
  }
  return chain;
}

bool IsInner(const Chain& chain, size_t link, Operand operand) {
  return (operand == Operand::kX && link > 0) ||
         (operand == Operand::kZ && link + 1 < chain.size());
}

ChainHalos::ChainHalos(Chain chain) : chain_(std::move(chain)) {
  for (int s = 0; s < 3; ++s) {
    for (const Problem& problem : chain_) {
      layers_[s].push_back(ConvolutionOn(problem.shape, s));
      layers_[s].push_back(PoolOn(problem, s));
    }
  }
}

std::vector<LinkRows> ChainHalos::WholeRows(int axis, const std::vector<bool>& pads) const {
  std::vector<LinkRows> rows(chain_.size());
  for (size_t i = chain_.size(); i-- > 0;) {
    const AxisLayer& layer = layers_[axis][2 * i];
    rows[i].y = All(layer.out);
    rows[i].x = pads[i] && PadsAlike(chain_[i], axis) ? All(layer.in) : InputOf(layer, rows[i].y);
    rows[i].z = i + 1 < chain_.size() ? rows[i + 1].x : All(layers_[axis][2 * i + 1].out);
  }
  return rows;
}

const std::vector<LinkRows>& ChainHalos::RowsFor(int axis, int64_t begin, int64_t length) {
  std::vector<LinkRows>& rows = known_[axis][{begin, length}];
  if (!rows.empty()) return rows;
  const std::vector<RowSpan> spans = SpansOf(layers_[axis], begin, length);
  rows.resize(chain_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {spans[2 * i], spans[2 * i + 1], spans[2 * i + 2]};
  }
  return rows;
}

ChainTiles::ChainTiles(std::shared_ptr<ChainHalos> halos, const Tiling& tiling,
                       std::vector<bool> pads)
    : halos_(std::move(halos)), tiling_(tiling), pads_(std::move(pads)) {
  for (int s = 0; s < 3; ++s) {
    if (tiling_.Count(SpatialAxis(s)) == 1) whole_[s] = halos_->WholeRows(s, pads_);
  }
}

bool ChainTiles::DividesBatch() const { return tiling_.Tiles() == tiling_.Count(Axis::kN); }

// A convolution pads what is whole on the axis, and alike on both sides.
bool ChainTiles::Pads(size_t link, int axis) const {
  return pads_[link] && !whole_[axis].empty() && PadsAlike(chain()[link], axis);
}

const std::vector<LinkRows>& ChainTiles::RowsAt(int axis, int64_t number) const {
  if (!whole_[axis].empty()) return whole_[axis];
  const Axis cut = SpatialAxis(axis);
  return halos_->RowsFor(axis, tiling_.Begin(cut, number), tiling_.Length(cut, number));
}

ConvShape ChainTiles::ShapeOf(size_t link, bool is_short) const {
  const Problem& problem = chain()[link];
  ConvShape shape = problem.shape;
  shape.n = is_short ? tiling_.taper.length : tiling_.length[Index(Axis::kN)];
  for (int s = 0; s < 3; ++s) {
    const LinkRows& rows = RowsAt(s, 0)[link];
    shape.in[s] = rows.x.extent;
    shape.out[s] = rows.y.extent;
    shape.pooled[s] = problem.Uses(Operand::kZ) ? rows.z.extent : 1;
    if (!Pads(link, s)) shape.pad_before[s] = shape.pad_after[s] = 0;
  }
  return shape;
}

TileIndex ChainTiles::IndexOf(int64_t number) const {
  TileIndex index{};
  for (int a = kAxes - 1; a >= 0; --a) {
    const int64_t count = tiling_.Count(static_cast<Axis>(a));
    index[a] = number % count;
    number /= count;
  }
  return index;
}

Box ChainTiles::BoxOf(size_t link, Operand operand, const TileIndex& index) const {
  const Problem& problem = chain()[link];
  const Dims dims = problem.DimsOf(operand);
  Box box{{}, dims, {}, dims};
  if (!Moves(problem, operand, Axis::kN)) return box;
  box.origin[0] = tiling_.Begin(Axis::kN, index[0]);
  box.extent[0] = tiling_.Length(Axis::kN, index[0]);
  box.valid_begin[0] = box.origin[0];
  box.valid_end[0] = std::min(box.origin[0] + box.extent[0], dims[0]);
  for (int s = 0; s < 3; ++s) {
    const RowSpan& span = SpanOf(RowsAt(s, index[Index(SpatialAxis(s))])[link], operand);
    box.origin[3 + s] = span.origin;
    box.extent[3 + s] = span.extent;
    box.valid_begin[3 + s] = span.begin;
    box.valid_end[3 + s] = span.end;
  }
  return box;
}

OperandStep ChainTiles::StepOf(size_t link, Operand operand, int64_t number, int ring) const {
  const Problem& problem = chain()[link];
  const bool moves = Moves(problem, operand, Axis::kN);
  const bool rings = moves && problem.Has(operand) && !IsInner(chain(), link, operand);
  OperandStep step;
  step.slot = rings ? static_cast<int>(number % ring) : 0;
  step.enter = moves || number == 0;
  step.leave = moves || number + 1 == Steps();
  step.box = BoxOf(link, operand, IndexOf(number));
  return step;
}

Step ChainTiles::StepOf(size_t link, int64_t number, int ring) const {
  Step step;
  step.number = number;
  step.index = IndexOf(number);
  for (int o = 0; o < kOperands; ++o) {
    const auto operand = static_cast<Operand>(o);
    if (chain()[link].Uses(operand)) step.operand[o] = StepOf(link, operand, number, ring);
  }
  return step;
}

}  // namespace oocdnn
