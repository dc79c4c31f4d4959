#include "shim/tile_graph.hpp"

#include <algorithm>
#include <numeric>
#include <ranges>

#include "shim/graph_judge.hpp"
#include "shim/real.hpp"

namespace oocdnn::shim {
namespace {

using Descriptor = cudnnBackendDescriptor_t;
using Numbers = std::vector<int64_t>;

// Extents of y in a tile, where it has as many.
constexpr int64_t kExtent = 16;

// The extents of x and y in a tile of the call.
struct TileShape {
  Numbers x, y;
};

TileShape TileOf(const ConvolutionCall& call) {
  const TensorValue &x = call.x.value, &y = call.y.value;
  TileShape tile{{x.dims.begin(), x.dims.begin() + x.rank},
                 {y.dims.begin(), y.dims.begin() + y.rank}};
  tile.x[0] = tile.y[0] = 1;
  const ConvolutionValue& window = call.convolution;
  for (int i = 0; i < window.rank; ++i) {
    const auto axis = static_cast<size_t>(i) + 2;
    const int64_t reach = (call.w.dims[axis] - 1) * window.dilation[i] + 1;
    const int64_t pads = window.pad[i] + window.pad_after[i];
    // Enough of y that x is not all padding.
    const int64_t least = pads / window.stride[i] + 1;
    if (tile.y[axis] <= std::max(kExtent, least)) continue;
    tile.y[axis] = std::max(kExtent, least);
    tile.x[axis] = (tile.y[axis] - 1) * window.stride[i] + reach - pads;
  }
  return tile;
}

// Dense strides in the memory order of those that there were.
Numbers StridesLike(const Numbers& strides, const Numbers& dims) {
  std::vector<size_t> order(dims.size());
  std::iota(order.rbegin(), order.rend(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  Numbers dense(dims.size());
  int64_t step = 1;
  for (const size_t axis : order) {
    dense[axis] = step;
    step *= dims[axis];
  }
  return dense;
}

// Nodes as descriptors of the real library, the tensors of x's and y's shape as their tiles.
class Replay {
 public:
  Replay(const GraphPattern& pattern, RealDescriptors* made)
      : pattern_(pattern), tile_(TileOf(pattern.call)), made_(made) {}

  // Null where the real library refuses something.
  Descriptor Make(const Node& node) {
    const Descriptor descriptor = made_->Make(node.type);
    if (descriptor == nullptr) return nullptr;
    Node changed = node;
    if (node.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) Shrink(&changed);
    for (const auto& [name, attribute] : changed.attributes) {
      if (!Set(descriptor, name, attribute)) return nullptr;
    }
    const bool done = TheReal().cudnnBackendFinalize(descriptor) == CUDNN_STATUS_SUCCESS;
    return done ? descriptor : nullptr;
  }

 private:
  bool Set(Descriptor descriptor, cudnnBackendAttributeName_t name, const Attribute& attribute) {
    std::vector<Descriptor> parts;
    for (const NodePointer& part : attribute.nodes) {
      parts.push_back(Make(*part));
      if (parts.back() == nullptr) return false;
    }
    const void* const elements = parts.empty() ? static_cast<const void*>(attribute.bytes.data())
                                               : static_cast<const void*>(parts.data());
    return TheReal().cudnnBackendSetAttribute(descriptor, name, attribute.type, attribute.count,
                                              elements) == CUDNN_STATUS_SUCCESS;
  }

  void Shrink(Node* tensor) const {
    const Numbers dims = tensor->Integers(CUDNN_ATTR_TENSOR_DIMENSIONS);
    const TensorValue& y = pattern_.call.y.value;
    const bool is_x = tensor->Integer(CUDNN_ATTR_TENSOR_UNIQUE_ID) == pattern_.x;
    const bool like_y =
        std::equal(dims.begin(), dims.end(), y.dims.begin(), y.dims.begin() + y.rank);
    if (!is_x && !like_y) return;
    const Numbers& tile = is_x ? tile_.x : tile_.y;
    const Numbers strides = StridesLike(tensor->Integers(CUDNN_ATTR_TENSOR_STRIDES), tile);
    const auto count = static_cast<int64_t>(tile.size());
    tensor->attributes[CUDNN_ATTR_TENSOR_DIMENSIONS] = Copied(CUDNN_TYPE_INT64, count, tile.data());
    tensor->attributes[CUDNN_ATTR_TENSOR_STRIDES] = Copied(CUDNN_TYPE_INT64, count, strides.data());
  }

  const GraphPattern& pattern_;
  TileShape tile_;
  RealDescriptors* made_;
};

// Fills `config` with the first configuration of the mode that uses tensor cores or does not, as
// `tensor_cores` says, where it says so.
bool Configure(Descriptor graph, cudnnBackendHeurMode_t mode, std::optional<bool> tensor_cores,
               RealDescriptors* made, Descriptor config) {
  const Real& real = TheReal();
  const Descriptor heuristics = made->Make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  if (heuristics == nullptr ||
      real.cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                    &graph) != CUDNN_STATUS_SUCCESS ||
      real.cudnnBackendSetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                                    &mode) != CUDNN_STATUS_SUCCESS ||
      real.cudnnBackendFinalize(heuristics) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  HeuristicResults results = ResultsOf(heuristics, INT64_MAX, made);
  for (int64_t i = 0; i < results.given; ++i) {
    const auto place = static_cast<size_t>(i);
    if (tensor_cores && NotesOf(results.room[place]).tensor_cores != *tensor_cores) continue;
    for (Descriptor& one : results.room) one = made->Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    results.room.resize(place + 1);
    results.room.back() = config;
    FillResults(heuristics, &results);
    return results.given == i + 1;
  }
  return false;
}

}  // namespace

RealDescriptors::~RealDescriptors() {
  for (const Descriptor one : std::views::reverse(made_)) {
    static_cast<void>(TheReal().cudnnBackendDestroyDescriptor(one));
  }
}

Descriptor RealDescriptors::Make(cudnnBackendDescriptorType_t type) {
  Descriptor descriptor = nullptr;
  if (TheReal().cudnnBackendCreateDescriptor(type, &descriptor) != CUDNN_STATUS_SUCCESS) {
    return nullptr;
  }
  made_.push_back(descriptor);
  return descriptor;
}

void FillResults(Descriptor heuristics, HeuristicResults* results) {
  const auto room = static_cast<int64_t>(results->room.size());
  int64_t count = 0;
  const cudnnStatus_t status = TheReal().cudnnBackendGetAttribute(
      heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &count,
      room > 0 ? results->room.data() : nullptr);
  results->given = status == CUDNN_STATUS_SUCCESS ? std::clamp<int64_t>(count, 0, room) : 0;
}

HeuristicResults ResultsOf(Descriptor heuristics, int64_t most, RealDescriptors* made) {
  HeuristicResults results;
  int64_t most_given = 0;
  if (TheReal().cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &most_given,
                                         nullptr) != CUDNN_STATUS_SUCCESS) {
    return results;
  }
  for (int64_t i = 0; i < std::min(most_given, most); ++i) {
    const Descriptor config = made->Make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (config == nullptr) return {};
    results.room.push_back(config);
  }
  if (!results.room.empty()) FillResults(heuristics, &results);
  return results;
}

bool ConfigureTile(const Node& graph, const GraphPattern& pattern, Descriptor config,
                   std::optional<bool> tensor_cores) {
  RealDescriptors made;
  const Descriptor tile = Replay(pattern, &made).Make(graph);
  return tile != nullptr &&
         (Configure(tile, CUDNN_HEUR_MODE_A, tensor_cores, &made, config) ||
          Configure(tile, CUDNN_HEUR_MODE_FALLBACK, tensor_cores, &made, config));
}

}  // namespace oocdnn::shim
