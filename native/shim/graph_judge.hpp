// The first decision on graphs where there is a GPU and a real library: whether a plan is taken, by
// shapes and by what the real library says of its configuration.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "shim/shadow.hpp"

namespace oocdnn::shim {

// What is said of a configuration's engine.
struct EngineNotes {
  bool tensor_cores = false;  // for float tensors: the client lets us round to TF32
  bool plain = true;          // the same bits in every run, and no operand is rounded beforehand
};
// Of an engine that cannot be asked, nothing is said.
EngineNotes NotesOf(cudnnBackendDescriptor_t config);

// The real library's workspace for a plan or a configuration; -1 where it has none.
int64_t WorkspaceOf(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name);

// What a plan of this graph would be to us, with the real library's workspace for it; null where we
// could not run it. `no_engine`: the real library has none for it.
std::shared_ptr<PlanShadow> Judge(const Node& graph, bool tensor_cores, int64_t workspace,
                                  bool no_engine);

// What a configuration of this graph would be to us; null where it would not be taken.
std::shared_ptr<PlanShadow> JudgeConfiguration(const Node& graph, cudnnBackendDescriptor_t config);

}  // namespace oocdnn::shim
