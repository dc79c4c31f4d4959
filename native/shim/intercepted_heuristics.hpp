// The engine configurations that clients are offered where there is a GPU: of those that would be
// taken one, because they would all run the same tiles; and one where the real library has none.
#pragma once

#include <optional>

#include "shim/graph_judge.hpp"

namespace oocdnn::shim {

// What heuristics answer a client that asks for up to `requested` configurations, or for their
// number where `into` is null; nothing where that is the real library's to say.
std::optional<cudnnStatus_t> OfferConfigurations(cudnnBackendDescriptor_t heuristics,
                                                 int64_t requested, int64_t* count,
                                                 cudnnBackendDescriptor_t* into);

// Whether we offer one where the real library has none for these heuristics.
bool OffersOwn(const Node& heuristics);

}  // namespace oocdnn::shim
