#include "library/terms.hpp"

namespace oocdnn {
namespace {

Homes HomesOf(const Device& device, const Problem& problem, const HostTensors& tensors) {
  const bool reached = device.capabilities().reads_host;
  Homes home{};
  for (int i = 0; i < kOperands; ++i) {
    if (!problem.Has(static_cast<Operand>(i))) continue;
    if (tensors[i].in_file()) {
      home[i] = Home::kFile;
    } else if (tensors[i].tier == Tier::kDevice) {
      home[i] = Home::kDevice;
    } else if (tensors[i].tier == Tier::kPageable && !reached) {
      home[i] = Home::kPageable;
    }
  }
  return home;
}

// What is written must not be what the finishing pass reads. A mirrored filter, and vectors, which
// the engines want in the type of the sums, have slots.
InPlace InPlaceOf(const Device& device, const Problem& problem, const HostTensors& tensors,
                  const Homes& home) {
  InPlace in_place{};
  if (!OnDevice(problem, home)) return in_place;
  const auto alignment = static_cast<uintptr_t>(device.capabilities().tile_alignment);
  for (const Operand operand :
       {Operand::kX, Operand::kW, Operand::kY, Operand::kResidual, Operand::kOld, Operand::kZ,
        Operand::kSaved, Operand::kInput, Operand::kDw}) {
    const auto address = reinterpret_cast<uintptr_t>(tensors[Index(operand)].view.data);
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
       tensors[Index(Operand::kResidual)].view.data == tensors[Index(output)].view.data);
  if (reads_output) in_place[Index(output)] = false;
  return in_place;
}

}  // namespace

Terms TermsOf(const Session& session, const Problem& problem, const HostTensors& tensors,
              int64_t workspace) {
  const Homes home = HomesOf(session.device(), problem, tensors);
  return {home, InPlaceOf(session.device(), problem, tensors, home), session.budget(),
          workspace == kLimitOfContext ? session.options().workspace : workspace};
}

std::vector<Terms> TermsOf(const Session& session, const Program& program,
                           const std::vector<HostTensors>& tensors, int64_t budget,
                           int64_t workspace) {
  std::vector<Terms> terms;
  for (size_t i = 0; i < program.size(); ++i) {
    terms.push_back(TermsOf(session, program[i], tensors[i], workspace));
    terms.back().budget = budget;
  }
  return terms;
}

Terms TermsOf(const Session& session, const Problem& problem, const Placement& placement) {
  HostTensors tensors;
  for (int i = 0; i < kOperands; ++i) {
    const Place place = placement.place[static_cast<size_t>(i)];
    if (place == Place::kPinned) tensors[i].tier = Tier::kPinned;
    if (place == Place::kFile) tensors[i].fd = 0;  // any file
    if (place != Place::kDevice) continue;
    tensors[i].tier = Tier::kDevice;
    const int64_t address = session.device().capabilities().alignment * (i + 1);
    tensors[i].view.data = reinterpret_cast<void*>(address);  // NOLINT: any address
  }
  return TermsOf(session, problem, tensors, kLimitOfContext);
}

Terms TermsInCore(const Session& session, const Problem& problem) {
  Placement device;
  device.place.fill(Place::kDevice);
  return TermsOf(session, problem, device);
}

bool OnDevice(const Program& program, const std::vector<Terms>& terms) {
  for (size_t i = 0; i < program.size(); ++i) {
    if (!OnDevice(program[i], terms[i].home)) return false;
  }
  return true;
}

}  // namespace oocdnn
