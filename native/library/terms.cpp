#include "library/terms.hpp"

namespace oocdnn {
namespace {

Tiers TiersOf(const Device& device, const Problem& problem, const OperandViews& tensors) {
  Tiers tiers = AllOf(Tier::kPinned);
  for (int i = 0; i < kOperands; ++i) {
    if (!problem.Has(static_cast<Operand>(i))) continue;
    const Tier tier = tensors[i].location.tier;
    if (tier == Tier::kFile || tier == Tier::kDevice) {
      tiers[i] = tier;
    } else if (!IsReached(tier) && !device.capabilities().reads_host) {
      tiers[i] = Tier::kPageable;
    }
  }
  return tiers;
}

// What is written must not be what the finishing pass reads. A mirrored filter, and vectors, which
// the engines want in the type of the sums, have slots.
InPlace InPlaceOf(const Device& device, const Problem& problem, const OperandViews& tensors,
                  const Tiers& tiers) {
  InPlace in_place{};
  if (!OnDevice(problem, tiers)) return in_place;
  const auto alignment = static_cast<uintptr_t>(device.capabilities().tile_alignment);
  for (const Operand operand :
       {Operand::kX, Operand::kW, Operand::kY, Operand::kResidual, Operand::kOld, Operand::kZ,
        Operand::kSaved, Operand::kInput, Operand::kDw}) {
    const auto address = reinterpret_cast<uintptr_t>(tensors[Index(operand)].data);
    in_place[Index(operand)] = problem.Has(operand) && address % alignment == 0;
  }
  if (problem.prologue.any()) in_place[Index(problem.source())] = false;  // it changes its tile
  const Operand output = problem.output();
  if (problem.flip) {
    in_place[Index(Operand::kW)] = in_place[Index(Operand::kDw)] = false;
    if (output == Operand::kW) {
      in_place[Index(Operand::kOld)] = in_place[Index(Operand::kResidual)] = false;
    }
  }
  const bool reads_output =
      problem.Uses(Operand::kOld) ||
      (problem.Uses(Operand::kResidual) &&
       tensors[Index(Operand::kResidual)].data == tensors[Index(output)].data);
  if (reads_output) in_place[Index(output)] = false;
  return in_place;
}

}  // namespace

Terms TermsOf(const Session& session, const Problem& problem, const OperandViews& tensors,
              int64_t workspace) {
  const Tiers tiers = TiersOf(session.device(), problem, tensors);
  return {tiers, InPlaceOf(session.device(), problem, tensors, tiers), session.budget(),
          workspace == kLimitOfContext ? session.options().workspace : workspace};
}

std::vector<Terms> TermsOf(const Session& session, const Program& program,
                           const std::vector<OperandViews>& tensors, int64_t budget,
                           int64_t workspace) {
  std::vector<Terms> terms;
  for (size_t i = 0; i < program.size(); ++i) {
    terms.push_back(TermsOf(session, program[i], tensors[i], workspace));
    terms.back().budget = budget;
  }
  return terms;
}

Terms TermsOf(const Session& session, const Problem& problem, const Placement& placement) {
  OperandViews tensors;
  for (int i = 0; i < kOperands; ++i) {
    const Tier tier = placement.tiers[static_cast<size_t>(i)];
    tensors[i].location.tier = tier;
    if (tier != Tier::kDevice) continue;
    const int64_t address = session.device().capabilities().alignment * (i + 1);
    tensors[i].data = reinterpret_cast<void*>(address);  // NOLINT: any address
  }
  return TermsOf(session, problem, tensors, kLimitOfContext);
}

Terms TermsInCore(const Session& session, const Problem& problem) {
  Placement device;
  device.tiers.fill(Tier::kDevice);
  return TermsOf(session, problem, device);
}

bool OnDevice(const Program& program, const std::vector<Terms>& terms) {
  for (size_t i = 0; i < program.size(); ++i) {
    if (!OnDevice(program[i], terms[i].tiers)) return false;
  }
  return true;
}

}  // namespace oocdnn
