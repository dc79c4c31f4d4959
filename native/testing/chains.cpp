// C function: random chains under random plans, run through the tile loop and compared number by
// number with a call for each link. With a check device around the device it also counts hazards.
//
// Elements are small whole numbers, so that all engines and tiles must agree.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked.hpp"
#include "exec/tile_loop.hpp"
#include "geom/engines.hpp"
#include "testing/device_spec.hpp"
#include "testing/export.hpp"
#include "testing/tensors.hpp"

namespace oocdnn::testing {
namespace {

constexpr int64_t kBudget = int64_t{1} << 30;

Epilogue RandomEpilogue(Random* random) {
  constexpr Activation kExact[] = {Activation::kIdentity, Activation::kRelu,
                                   Activation::kClippedRelu};
  Epilogue epilogue;
  epilogue.bias = random->Between(0, 1) != 0;
  epilogue.scale = random->Between(0, 3) == 0;
  epilogue.activation = kExact[random->Between(0, 2)];
  if (epilogue.activation == Activation::kClippedRelu) epilogue.parameter = 40.0;
  return epilogue;
}

// Windows of two elements at most on an axis, so that averages stay exact.
void SetRandomPool(Problem* problem, Random* random) {
  if (random->Between(0, 1) != 0) return;
  Pool pool;
  pool.mode = static_cast<PoolMode>(random->Between(1, kPoolModes - 1));
  pool.ceil = random->Between(0, 1) != 0;
  for (int s = 3 - problem->rank; s < 3; ++s) {
    pool.window[s] = random->Between(1, 2);
    pool.stride[s] = random->Between(1, 3);
    pool.pad_before[s] = random->Between(0, pool.window[s] - 1);
    pool.pad_after[s] = random->Between(0, pool.window[s] - 1);
    if (pool.OutExtent(s, problem->shape.out[s]) < 1) return;
  }
  problem->pool = pool;
}

void SetRandomAxis(ConvShape* shape, int s, bool symmetric, Random* random) {
  shape->filter[s] = random->Between(1, 3);
  shape->stride[s] = random->Between(0, 3) == 0 ? 2 : 1;
  shape->dilation[s] = random->Between(0, 3) == 0 ? 2 : 1;
  shape->pad_before[s] = random->Between(0, 2);
  shape->pad_after[s] = symmetric ? shape->pad_before[s] : random->Between(0, 2);
  const int64_t lacking =
      shape->Reach(s) - shape->in[s] - shape->pad_before[s] - shape->pad_after[s];
  if (lacking > 0) shape->filter[s] = 1;
  shape->out[s] = OutputExtent(shape->in[s], shape->pad_before[s], shape->pad_after[s],
                               shape->filter[s], shape->stride[s], shape->dilation[s]);
}

// What reads `channels` channels of `in` rows.
Problem RandomLink(const Problem& like, int64_t channels, const Spatial& in, Random* random) {
  Problem problem = like;
  ConvShape& shape = problem.shape;
  shape.g = channels % 2 == 0 ? random->Between(1, 2) : 1;
  shape.c = channels / shape.g;
  shape.k = random->Between(0, 3) == 0 ? 8 : random->Between(1, 3);
  shape.in = in;
  const bool symmetric = random->Between(0, 1) != 0;
  for (int s = 3 - problem.rank; s < 3; ++s) SetRandomAxis(&shape, s, symmetric, random);
  problem.epilogue = RandomEpilogue(random);
  SetRandomPool(&problem, random);
  SetPooled(&problem);
  for (int o = 0; o < kOperands; ++o) {
    problem.stride[o] = DenseStrides(problem.DimsOf(static_cast<Operand>(o)));
  }
  return problem;
}

Spatial RowsOf(const Problem& problem) {
  return problem.pool.pools() ? problem.shape.pooled : problem.shape.out;
}

// Of x and what links write, up to the one that begins, which are shaped as the link's sum.
std::vector<int64_t> SourcesFor(const std::vector<Problem>& chain, const Problem& link) {
  const auto shaped = [](const Problem& problem, Operand operand) {
    const Dims dims = problem.DimsOf(operand);
    return std::array{dims[1] * dims[2], dims[3], dims[4], dims[5]};
  };
  const auto sum = shaped(link, Operand::kY);
  std::vector<int64_t> sources;
  if (shaped(chain.empty() ? link : chain[0], Operand::kX) == sum) sources.push_back(kFromX);
  for (size_t i = 0; i < chain.size(); ++i) {
    if (shaped(chain[i], chain[i].output()) == sum) sources.push_back(static_cast<int64_t>(i));
  }
  return sources;
}

// Adds to the link's sum what the caller has or, where there is such, something of the chain.
int64_t SetRandomResidual(const std::vector<Problem>& chain, Problem* link, Random* random) {
  std::vector<int64_t> sources = SourcesFor(chain, *link);
  const bool none = random->Between(0, 5) != 0;
  if (none && (sources.empty() || random->Between(0, 3) == 0)) return kFromOutside;
  if (!none) sources = {kFromOutside};
  link->epilogue.residual = true;
  link->epilogue.residual_alpha = static_cast<double>(random->Between(1, 2));
  return sources[static_cast<size_t>(random->Between(0, static_cast<int64_t>(sources.size()) - 1))];
}

// What keeps channels and rows, so that there is much to add. A third reads no other rows, whose
// tiles then are those of x.
Problem RandomSame(const Problem& like, int64_t channels, const Spatial& in, Random* random) {
  Problem problem = like;
  ConvShape& shape = problem.shape;
  shape.g = channels % 2 == 0 ? random->Between(1, 2) : 1;
  shape.c = shape.k = channels / shape.g;
  shape.in = shape.out = in;
  const int64_t most = random->Between(0, 2) == 0 ? 1 : 3;
  for (int s = 3 - problem.rank; s < 3; ++s) {
    shape.filter[s] = random->Between(1, most);
    shape.dilation[s] = random->Between(1, 2);
    const int64_t pads = shape.Reach(s) - 1;
    shape.pad_before[s] = random->Between(0, 1) != 0 ? pads / 2 : random->Between(0, pads);
    shape.pad_after[s] = pads - shape.pad_before[s];
  }
  problem.epilogue = RandomEpilogue(random);
  problem.epilogue.activation = Activation::kClippedRelu;  // so that sums stay whole
  problem.epilogue.parameter = 40.0;
  SetPooled(&problem);
  for (int o = 0; o < kOperands; ++o) {
    problem.stride[o] = DenseStrides(problem.DimsOf(static_cast<Operand>(o)));
  }
  return problem;
}

Result<Program> RandomLinks(Random* random) {
  constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat32, DType::kFloat64, DType::kBFloat16};
  Problem like;
  like.rank = static_cast<int>(random->Between(1, 3));
  like.dtype = kTypes[random->Between(0, 3)];
  like.math = like.dtype == DType::kFloat32 ? static_cast<Math>(random->Between(0, 1)) : like.math;
  like.shape.n = random->Between(1, 5);
  Spatial in{1, 1, 1};
  for (int s = 3 - like.rank; s < 3; ++s) in[s] = random->Between(1, like.rank == 3 ? 7 : 12);
  int64_t channels = random->Between(0, 3) == 0 ? 8 : random->Between(1, 4);
  std::vector<Problem> chain;
  std::vector<int64_t> residual;
  const bool same = random->Between(0, 1) != 0;
  for (int64_t count = random->Between(1, 5); count > 0; --count) {
    Problem link = same && random->Between(0, 4) != 0 ? RandomSame(like, channels, in, random)
                                                      : RandomLink(like, channels, in, random);
    residual.push_back(SetRandomResidual(chain, &link, random));
    chain.push_back(link);
    channels = link.shape.g * link.shape.k;
    in = RowsOf(link);
  }
  const bool channels_last = random->Between(0, 1) != 0;
  for (Problem& link : chain) {
    for (const Operand o : {Operand::kX, Operand::kW, Operand::kY, Operand::kZ}) {
      if (channels_last) link.stride[Index(o)] = ChannelsLastStrides(link.DimsOf(o));
    }
    link.stride[Index(Operand::kResidual)] = link.stride[Index(Operand::kY)];
  }
  return MakeChain(chain, residual);
}

// The operands of all links in plain memory: `between` are what all but the last write.
class Tensors {
 public:
  Tensors(const Program& links, Random* random) : links_(links) {
    for (const Problem& problem : links) {
      auto& memory = memory_.emplace_back();
      for (int o = 0; o < kOperands; ++o) {
        const auto operand = static_cast<Operand>(o);
        if (!problem.Has(operand)) continue;
        memory[o].resize(static_cast<size_t>(problem.BytesOf(operand)));
        Fill(problem, operand, &memory[o], random);
      }
    }
  }

  // Each link reads what the one before it has written.
  OperandViews Of(size_t link) {
    OperandViews tensors = Own(link);
    const int64_t source = ResidualOf(links_, link);
    if (source > kFromX) {
      tensors[Index(Operand::kResidual)].data = Written(static_cast<size_t>(source));
    }
    if (link > 0) tensors[Index(Operand::kX)].data = Written(link - 1);
    return tensors;
  }

  // What the chain has; its result goes to `result`.
  std::vector<OperandViews> All(std::vector<char>* result) {
    std::vector<OperandViews> all(links_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = Own(i);
    all.back()[Index(links_.back().output())].data = result->data();
    return all;
  }

  [[nodiscard]] const std::vector<char>& Result() const {
    return memory_.back()[Index(links_.back().output())];
  }

 private:
  OperandViews Own(size_t link) {
    OperandViews tensors;
    const Problem& problem = links_[link];
    for (int o = 0; o < kOperands; ++o) {
      tensors[o] = {memory_[link][o].data(), problem.dtype, problem.stride[o]};
    }
    if (ResidualOf(links_, link) == kFromX) {
      tensors[Index(Operand::kResidual)].data = memory_[0][Index(Operand::kX)].data();
    }
    return tensors;
  }

  void* Written(size_t link) { return memory_[link][Index(links_[link].output())].data(); }

  static void Fill(const Problem& problem, Operand operand, std::vector<char>* memory,
                   Random* random) {
    const int64_t most = operand == Operand::kX ? 2 : 1;
    const int64_t count = problem.BytesOf(operand) / SizeOf(problem.dtype);
    for (int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(random->Between(-most, most));
      Store(memory->data(), problem.dtype, i, value);
    }
  }

  const Program& links_;
  std::vector<std::array<std::vector<char>, kOperands>> memory_;
};

ProgramCandidate RandomCandidate(const Program& chain, const std::vector<EngineInfo>& engines,
                                 Random* random) {
  const Problem& last = chain.back();
  AxisArray length = ExtentsOf(last);
  length[Index(Axis::kN)] = random->Between(1, last.shape.n);
  const bool pieces = random->Between(0, 1) != 0;
  for (int a = Index(Axis::kD); a < kAxes && pieces; ++a) length[a] = random->Between(1, length[a]);
  ProgramCandidate candidate;
  candidate.tiling = MakeTiling(last, length, false);
  const int64_t ends = random->Between(0, length[Index(Axis::kN)]);
  candidate.tiling = Tapered(last, candidate.tiling, {Axis::kN, ends});
  for (const Problem& problem : chain) {
    std::vector<int> serving;
    for (size_t i = 0; i < engines.size(); ++i) {
      if (Serves(engines[i], problem)) serving.push_back(static_cast<int>(i));
    }
    if (serving.empty()) serving.push_back(0);  // it says why not
    const int64_t last_one = static_cast<int64_t>(serving.size()) - 1;
    candidate.engine.push_back(serving[static_cast<size_t>(random->Between(0, last_one))]);
  }
  candidate.ring = static_cast<int>(random->Between(1, 3));
  candidate.sweeps = random->Between(0, 1) != 0 && ChainHalos(chain).Sweeps(candidate.tiling);
  return candidate;
}

// Whether they hold the same numbers: the sign of a zero depends on how many zeros were added.
bool Same(const Problem& problem, const std::vector<char>& a, const std::vector<char>& b) {
  for (int64_t i = 0; i < problem.BytesOf(problem.output()) / SizeOf(problem.dtype); ++i) {
    if (Load(a.data(), problem.dtype, i) != Load(b.data(), problem.dtype, i)) return false;
  }
  return true;
}

struct Outcome {
  int64_t mismatches = 0, steps = 0, hazards = 0;
  std::string first;
  void Note(int64_t* count, const std::string& text) {
    if (mismatches + hazards == 0) first = text;
    ++*count;
  }
};

class Runner {
 public:
  explicit Runner(Device& device)
      : device_(device), loop_(device), arena_(device), slabs_(device, 1 << 20) {}
  Status Init() { return loop_.Init(); }

  // Link by link, each in one tile.
  Status RunLinks(const Program& links, Tensors* tensors) {
    for (size_t i = 0; i < links.size(); ++i) {
      const PlanRequest request = RequestFor(links[i]);
      const Candidate whole = WholeCandidate(request, static_cast<int>(request.engines.size()) - 1);
      OOC_ASSIGN(const Booking booking, Book(device_, request, whole, kBudget));
      OOC_TRY(arena_.Reserve(booking.bytes));
      RunStats stats;
      const OperandViews mine = tensors->Of(i);
      OOC_TRY(loop_.Run(booking, std::span(&mine, 1), arena_, slabs_, nullptr, &stats));
    }
    return {};
  }

  Status RunChain(const Program& chain, Tensors* tensors, std::vector<char>* result, Random* random,
                  Outcome* outcome) {
    ProgramRequest request{chain, {}};
    for (const Problem& problem : chain) {
      request.nodes.push_back(RequestFor(problem));
      request.nodes.back().fuses = request.nodes.back().may_compile = random->Between(0, 2) != 0;
    }
    const ProgramCandidate candidate = RandomCandidate(chain, device_.engines(), random);
    Result<ProgramBooking> booking = Book(device_, request, candidate);
    if (booking.status().code() == Code::kUnsupported) return {};
    OOC_TRY(booking.status());
    OOC_TRY(arena_.Reserve(booking->bytes));
    RunStats stats;
    OOC_TRY(loop_.Run(booking.value(), tensors->All(result), arena_, slabs_, nullptr, &stats));
    outcome->steps += stats.tiles;
    std::string text = Describe(request, candidate);
    for (const Problem& problem : chain) text += "\n" + ToString(problem);
    if (!Same(chain.back(), *result, tensors->Result())) outcome->Note(&outcome->mismatches, text);
    CheckBytes(booking.value(), stats, outcome);
    return {};
  }

 private:
  [[nodiscard]] PlanRequest RequestFor(const Problem& problem) const {
    PlanRequest request;
    request.problem = problem;
    request.budget = kBudget;
    request.engines = device_.engines();
    return request;
  }

  // Whether tiles share nothing of what is the caller's, or keep it: windows that overlap have what
  // is added before in two.
  static bool CrossesOnce(const ProgramBooking& booking) {
    const ChainTiles& tiles = *booking.tiles;
    if (tiles.DividesBatch()) return true;
    const int sweep = tiles.sweep();
    if (sweep < 0 || booking.ring == 1) return false;
    const Tiling& tiling = tiles.tiling();
    const int64_t swept = tiling.Count(static_cast<Axis>(Index(Axis::kD) + sweep));
    if (Mul(tiling.Count(Axis::kN), swept) != tiles.Steps()) return false;
    return std::none_of(booking.nodes.begin(), booking.nodes.end(), [&](const Booking& link) {
      const Pool& pool = link.problem.pool;
      return link.problem.epilogue.residual && pool.window[sweep] > pool.stride[sweep];
    });
  }

  // Everything crosses once then, but rows of x that nothing reads.
  static void CheckBytes(const ProgramBooking& booking, const RunStats& stats, Outcome* outcome) {
    if (!CrossesOnce(booking)) return;
    int64_t in = 0, out = 0;
    for (const Booking& link : booking.nodes) {
      for (int o = 0; o < kOperands; ++o) {
        const auto operand = static_cast<Operand>(o);
        if (!link.problem.Has(operand) || link.inner[o]) continue;
        (link.problem.Writes(operand) ? out : in) += link.problem.BytesOf(operand);
      }
    }
    if (stats.bytes_in <= in && stats.bytes_out == out) return;
    outcome->Note(
        &outcome->mismatches,
        Format("%lld bytes in and %lld out instead of %lld and %lld",
               static_cast<long long>(stats.bytes_in), static_cast<long long>(stats.bytes_out),
               static_cast<long long>(in), static_cast<long long>(out)));
  }

  Device& device_;
  TileLoop loop_;
  Arena arena_;
  Slabs slabs_;
};

Status RunChains(const char* spec, uint64_t seed, int64_t count, Outcome* outcome) {
  OOC_ASSIGN(SpecDevice stack, MakeDevice(spec));
  Runner runner(*stack.device);
  OOC_TRY(runner.Init());
  Random random(seed);
  for (int64_t i = 0; i < count; ++i) {
    OOC_ASSIGN(const Program links, RandomLinks(&random));
    const Program chain = SectionOf(links, 0, links.size());
    Tensors tensors(links, &random);
    OOC_TRY(runner.RunLinks(links, &tensors));
    if (!CheckDepthFirst(chain, 0, chain.size()).ok()) continue;
    std::vector<char> result(tensors.Result().size(), 0x55);
    OOC_TRY(runner.RunChain(chain, &tensors, &result, &random, outcome)
                .With(Format("chain %lld", static_cast<long long>(i))));
  }
  if (stack.check == nullptr) return {};
  for (const std::string& report : CheckReports(*stack.check)) {
    outcome->Note(&outcome->hazards, report);
  }
  return {};
}

}  // namespace
}  // namespace oocdnn::testing

// Runs `count` random chains on the device that `spec` names. Counts results that differ from those
// of a call for each link, or bytes that crossed more than once; tiles run; and hazards. `message`
// gets the first of either, or the error's text.
OOC_EXPORT int oocdnn_testing_chains(const char* spec, uint64_t seed, int64_t count,
                                     int64_t* mismatches, int64_t* steps, int64_t* hazards,
                                     char* message, int64_t capacity) {
  oocdnn::testing::Outcome outcome;
  const oocdnn::Status status = oocdnn::testing::RunChains(spec, seed, count, &outcome);
  *mismatches = outcome.mismatches;
  *steps = outcome.steps;
  *hazards = outcome.hazards;
  if (!status.ok()) return oocdnn::testing::Answer(status, message, capacity);
  oocdnn::testing::CopyText(outcome.first, message, capacity);
  return 0;
}
