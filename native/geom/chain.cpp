// What of each link a tile of a chain has.
#include "geom/chain.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.hpp"
#include "base/numbers.hpp"

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
  for (const int64_t size : sizes) text += (text.empty() ? "" : "x") + NumberText(size);
  return text;
}

Status CheckLink(const Problem& problem, bool last) {
  OOC_TRY(Validate(problem));
  const char* what = nullptr;
  if (problem.direction != Direction::kForward) what = Name(problem.direction);
  if (problem.beta != 0.0) what = "beta";
  if (problem.saves && !last) what = "saving for backward";
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

// What a link's residual is, where that is in the chain.
Status CheckResidual(const std::vector<Problem>& links, int64_t source, size_t link) {
  const auto number = static_cast<int64_t>(link);
  if (source < kFromOutside || source >= number) {
    return Error(Code::kInvalidProblem,
                 "its residual is the result of link %lld; it must be an earlier one",
                 static_cast<long long>(source));
  }
  if (source == kFromOutside) return {};
  if (!links[link].epilogue.residual) {
    return Error(Code::kInvalidProblem, "it has no residual, and one is named");
  }
  const Problem& from = source == kFromX ? links[0] : links[static_cast<size_t>(source)];
  const Sizes added = SizesOf(from, source == kFromX ? Operand::kX : from.output());
  const Sizes sizes = SizesOf(links[link], Operand::kY);
  if (added == sizes) return {};
  const std::string name =
      source == kFromX ? "x" : Format("link %lld", static_cast<long long>(source));
  return Error(Code::kInvalidProblem, "it adds %s, which is %s, to %s", name.c_str(),
               TextOf(added).c_str(), TextOf(sizes).c_str());
}

// Whether rows move on by one from a source to the sum that it is added to.
bool StridesBetween(const Program& chain, int64_t source, size_t link) {
  bool strides = false;
  for (auto i = static_cast<size_t>(source + 1); i <= link; ++i) {
    for (int s = 0; s < 3; ++s) {
      const Pool& pool = chain[i].pool;
      strides = strides || chain[i].shape.stride[s] != 1;
      strides = strides || (i < link && pool.pools() && pool.stride[s] != 1);
    }
  }
  return strides;
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

// The links with what they pass to each other.
Program ProgramOf(const std::vector<Problem>& links, const std::vector<int64_t>& residual) {
  Program program(Traversal::kRows);
  std::vector<TensorUse> x{{0, Operand::kX}};
  std::vector<std::vector<TensorUse>> results;  // uses of each link's
  for (size_t i = 0; i < links.size(); ++i) {
    program.Append(links[i], i);
    if (i > 0) results[i - 1].push_back({i, Operand::kX});
    if (residual[i] != kFromOutside) {
      auto& source = residual[i] == kFromX ? x : results[static_cast<size_t>(residual[i])];
      source.push_back({i, Operand::kResidual});
    }
    results.push_back({{i, links[i].output()}});
  }
  if (x.size() > 1) program.Share(std::move(x), true);
  results.pop_back();  // the last one's is the caller's
  for (std::vector<TensorUse>& uses : results) program.Share(std::move(uses), false);
  return program;
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

// The last spatial axis that is cut; -1 where none is.
int LastCut(const Tiling& tiling) {
  int last = -1;
  for (int s = 0; s < 3; ++s) {
    if (tiling.Count(SpatialAxis(s)) > 1) last = s;
  }
  return last;
}

bool PadsAlike(const Problem& problem, int axis) {
  return problem.shape.pad_before[axis] == problem.shape.pad_after[axis];
}

const RowSpan& SpanOf(const LinkRows& rows, Operand operand) {
  if (operand == Operand::kX) return rows.x;
  return operand == Operand::kZ ? rows.z : rows.y;
}

}  // namespace

Result<Program> MakeChain(const std::vector<Problem>& links, const std::vector<int64_t>& residual) {
  if (links.empty()) return Error(Code::kInvalidProblem, "a chain without links");
  for (size_t i = 0; i < links.size(); ++i) {
    const std::string where = Format("link %zu of a chain", i);
    OOC_TRY(CheckLink(links[i], i + 1 == links.size()).With(where));
    if (i > 0) OOC_TRY(CheckPair(links[i - 1], links[i]).With(where));
    OOC_TRY(CheckResidual(links, residual[i], i).With(where));
  }
  return ProgramOf(links, residual);
}

int64_t ResidualOf(const Program& chain, size_t link) {
  const ProgramTensor* const tensor = chain.TensorOf(link, Operand::kResidual);
  if (tensor == nullptr) return kFromOutside;
  return tensor->outer ? kFromX : static_cast<int64_t>(tensor->uses.front().node);
}

Program SectionOf(const Program& chain, size_t begin, size_t end) {
  std::vector<Problem> links;
  std::vector<int64_t> residual;
  for (size_t i = begin; i < end; ++i) {
    links.push_back(i + 1 == end ? chain[i] : InnerOf(chain[i]));
    const int64_t source = ResidualOf(chain, i) - static_cast<int64_t>(begin);
    residual.push_back(std::max(source, kFromOutside));
  }
  return ProgramOf(links, residual);
}

Status CheckDepthFirst(const Program& chain, size_t begin, size_t end) {
  for (size_t i = begin; i < chain.size(); ++i) {
    const int64_t residual = ResidualOf(chain, i), source = residual - static_cast<int64_t>(begin);
    if (source < kFromX) continue;
    if (i < end && StridesBetween(chain, residual, i)) {
      return Error(Code::kUnsupported, "link %zu adds to what strides have thinned out", i);
    }
    if (i < end || source == kFromX || source + 1 >= static_cast<int64_t>(end - begin)) continue;
    return Error(Code::kUnsupported, "link %zu reads what link %lld leaves for the next", i,
                 static_cast<long long>(residual));
  }
  return {};
}

ChainHalos::ChainHalos(Program chain) : chain_(std::move(chain)) {
  for (int s = 0; s < 3; ++s) {
    for (const Problem& problem : chain_) {
      layers_[s].push_back(ConvolutionOn(problem.shape, s));
      layers_[s].push_back(PoolOn(problem, s));
    }
  }
  for (size_t i = 0; i < chain_.size(); ++i) {
    const int64_t source = ResidualOf(chain_, i);
    if (source != kFromOutside) skips_.push_back({2 * static_cast<size_t>(source + 1), 2 * i + 1});
  }
}

std::vector<LinkRows> ChainHalos::WholeRows(int axis, const std::vector<bool>& pads) const {
  std::vector<LinkRows> rows(chain_.size());
  for (size_t i = chain_.size(); i-- > 0;) {
    const AxisLayer& layer = layers_[axis][2 * i];
    rows[i].y = All(layer.out);
    rows[i].x = pads[i] && PadsAlike(chain_[i], axis) ? All(layer.in) : InputOf(layer, rows[i].y);
    for (const Skip& skip : skips_) {
      if (skip.from == 2 * i) rows[i].x = Joined(rows[i].x, rows[skip.to / 2].y);
    }
    rows[i].z = i + 1 < chain_.size() ? rows[i + 1].x : All(layers_[axis][2 * i + 1].out);
  }
  return rows;
}

const std::vector<LinkRows>& ChainHalos::RowsFor(int axis, int64_t begin, int64_t length) {
  std::vector<LinkRows>& rows = known_[axis][{begin, length}];
  if (!rows.empty()) return rows;
  const std::vector<RowSpan> spans = SpansOf(layers_[axis], skips_, begin, length);
  rows.resize(chain_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {spans[2 * i], spans[2 * i + 1], spans[2 * i + 2]};
  }
  return rows;
}

const std::vector<LinkRows>& ChainHalos::SweptRowsFor(int axis, int64_t begin, int64_t length) {
  std::vector<LinkRows>& rows = swept_[axis][{begin, length}];
  if (!rows.empty()) return rows;
  const std::vector<SweptSpan> spans = SweptSpansOf(layers_[axis], begin, length);
  rows.resize(chain_.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const SweptSpan& x = spans[2 * i];
    rows[i] = {x.rows, spans[2 * i + 1].rows, spans[2 * i + 2].Computed(), x.kept, x.advance};
  }
  return rows;
}

int64_t ChainHalos::LeadOf(int axis, int64_t length) const {
  return oocdnn::LeadOf(layers_[axis], length);
}

bool ChainHalos::Sweeps(const Tiling& tiling) const {
  const int axis = LastCut(tiling);
  if (axis < 0) return false;
  const int64_t length = tiling.length[Index(SpatialAxis(axis))];
  const std::vector<SweptSpan> spans = SweptSpansOf(layers_[axis], 0, length);
  const RowSpan& x = spans.front().rows;
  return std::all_of(skips_.begin(), skips_.end(), [&](const Skip& skip) {
    const RowSpan& sum = spans[skip.to].rows;
    return skip.from == 0 && x.origin <= sum.origin &&
           sum.origin + sum.extent <= x.origin + x.extent;
  });
}

ChainTiles::ChainTiles(std::shared_ptr<ChainHalos> halos, const Tiling& tiling,
                       std::vector<bool> pads, bool sweeps)
    : halos_(std::move(halos)),
      tiling_(tiling),
      pads_(std::move(pads)),
      sweep_(sweeps ? LastCut(tiling) : -1) {
  if (sweep_ >= 0) {
    const int axis = Index(SpatialAxis(sweep_));
    lead_ = halos_->LeadOf(sweep_, tiling.length[axis]);
    tiling_.extent[axis] += lead_;
  }
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
  const int64_t begin = tiling_.Begin(cut, number), length = tiling_.Length(cut, number);
  return axis == sweep_ ? halos_->SweptRowsFor(axis, begin - lead_, length)
                        : halos_->RowsFor(axis, begin, length);
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

std::optional<ConvShape> ChainTiles::KeptOf(size_t link, bool is_short) const {
  if (sweep_ < 0) return {};
  const int64_t kept = RowsAt(sweep_, 0)[link].kept;
  if (kept == 0) return {};
  ConvShape shape = ShapeOf(link, is_short);
  shape.in[sweep_] = kept;
  return shape;
}

bool ChainTiles::ZMatchesY(size_t link) const {
  for (int s = 0; s < 3; ++s) {
    const LinkRows& rows = RowsAt(s, 0)[link];
    if (rows.y.origin != rows.z.origin || rows.y.extent != rows.z.extent) return false;
  }
  return true;
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
  if (operand == Operand::kSaved) return box;
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
  const bool rings = moves && problem.Has(operand) && !chain().IsInner(link, operand);
  OperandStep step;
  step.slot = rings ? static_cast<int>(number % ring) : 0;
  step.enter = moves || number == 0;
  step.leave = moves || number + 1 == Steps();
  const TileIndex index = IndexOf(number);
  step.box = BoxOf(link, operand, index);
  if (sweep_ >= 0 && operand == Operand::kX) Keep(link, index, number, ring, &step);
  return step;
}

// In a ring of one slot the tile before is gone when the next is fetched.
void ChainTiles::Keep(size_t link, const TileIndex& index, int64_t number, int ring,
                      OperandStep* x) const {
  const int64_t tile = index[Index(SpatialAxis(sweep_))];
  const LinkRows& rows = RowsAt(sweep_, tile)[link];
  const bool inner = link > 0;
  if (rows.kept == 0 || (!inner && ring == 1)) return;
  x->roll_axis = 3 + sweep_;
  x->kept = rows.kept;
  x->from_row = rows.from;
  if (tile > 0) x->from_slot = inner ? 0 : static_cast<int>((number - 1) % ring);
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
