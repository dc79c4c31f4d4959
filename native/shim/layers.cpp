// What is measured of a layer is kept for as long as the process lives, as what was promised to a
// client is.
#include "shim/layers.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/process_lock.hpp"
#include "capi/oocdnn.h"

namespace oocdnn::shim {
namespace {

// Programs whose shapes change all the time have no layers: further ones run without workspace.
constexpr size_t kMostLayers = 512;

struct Layer {
  bool measured = false;
  std::vector<oocdnn_workspace_option> options;
  int64_t share = 0;
};

// Of one device. Layers are in the order in which they appeared.
struct Layers {
  std::vector<std::string> order;
  std::map<std::string, Layer> known;
  bool divided = false;
};

struct AllLayers {
  ProcessLock lock;
  std::map<int, Layers> of_device;
};

AllLayers& All() {
  static auto* const all = new AllLayers;
  return *all;
}

std::optional<int64_t> BytesOf(Var var) {
  const auto text = Get(var);
  if (!text) return std::nullopt;
  const Result<int64_t> bytes = ParseBytes(*text);
  if (bytes.ok()) return bytes.value();
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    Log(LogLevel::kWarn, "%s is ignored: %s", InfoOf(var).name, bytes.status().message().c_str());
  }
  return std::nullopt;
}

// Factors make no other layer.
std::string NameOf(ConvolutionCall call) {
  call.alpha = 1.0;
  call.beta = 0.0;
  return ProblemText(call);
}

int64_t BeforeDivision(int64_t total) { return std::min(total, LayerWorkspace().value_or(total)); }

// One that cannot be measured has no share: it runs without workspace.
void Measure(int device, const std::string& name, Layer* layer) {
  layer->measured = true;
  if (MeasureOptions(device, name, &layer->options) != CUDNN_STATUS_SUCCESS) {
    Log(LogLevel::kInfo, "%s has no share of the workspace: %s", name.c_str(), LastText());
  }
}

// What fits least is told, and each layer then has the least that it can do with.
void ShareLeast(const std::vector<Layer*>& layers, int64_t total) {
  Log(LogLevel::kWarn, "OOCDNN_WORKSPACE_TOTAL of %s is too little for %zu layers: %s",
      BytesText(total).c_str(), layers.size(), oocdnn_last_error());
  for (Layer* layer : layers) layer->share = layer->options.back().workspace_bytes;
}

void Divide(int device, int64_t total, Layers* layers) {
  std::vector<Layer*> measured;
  for (const std::string& name : layers->order) {
    Layer& layer = layers->known[name];
    if (!layer.measured) Measure(device, name, &layer);
    if (!layer.options.empty()) measured.push_back(&layer);
  }
  std::vector<const oocdnn_workspace_option*> options;
  std::vector<int64_t> counts, chosen(measured.size());
  for (const Layer* layer : measured) {
    options.push_back(layer->options.data());
    counts.push_back(static_cast<int64_t>(layer->options.size()));
  }
  layers->divided = true;
  if (measured.empty()) return;
  oocdnn_workspace_division division{};
  if (oocdnn_divide_workspace(options.data(), counts.data(), static_cast<int64_t>(counts.size()),
                              total, chosen.data(), &division) != OOCDNN_OK) {
    return ShareLeast(measured, total);
  }
  for (size_t i = 0; i < measured.size(); ++i) {
    measured[i]->share = options[i][chosen[i]].workspace_bytes;
  }
  Log(LogLevel::kInfo, "%zu layers share %s of workspace and take %.3f ms", measured.size(),
      BytesText(division.workspace_bytes).c_str(), division.seconds * 1e3);
}

}  // namespace

std::optional<int64_t> TotalWorkspace() { return BytesOf(Var::kWorkspaceTotal); }

std::optional<int64_t> LayerWorkspace() { return BytesOf(Var::kWorkspaceLimit); }

int64_t ShareOf(const ConvolutionCall& call) {
  const auto total = TotalWorkspace();
  if (!total) return kLimitOfContext;
  const std::lock_guard turn(All().lock);
  const Layers& layers = All().of_device[call.device];
  const auto layer = layers.known.find(NameOf(call));
  const bool has = layers.divided && layer != layers.known.end();
  return has ? layer->second.share : BeforeDivision(*total);
}

int64_t NextShareOf(const ConvolutionCall& call) {
  const auto total = TotalWorkspace();
  if (!total) return kLimitOfContext;
  const std::lock_guard turn(All().lock);
  Layers& layers = All().of_device[call.device];
  std::string name = NameOf(call);
  if (layers.order.size() == kMostLayers && !layers.known.contains(name)) return 0;
  const auto [layer, is_new] = layers.known.try_emplace(name);
  if (is_new) layers.order.push_back(name);
  const bool first_again = !is_new && name == layers.order.front();
  if (layers.divided ? is_new : first_again) Divide(call.device, *total, &layers);
  return layers.divided ? layer->second.share : BeforeDivision(*total);
}

}  // namespace oocdnn::shim
