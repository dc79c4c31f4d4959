#include "testing/requests.hpp"

#include <algorithm>
#include <string_view>

namespace oocdnn::testing {
namespace {

constexpr std::string_view kBounce = "bounce=";

int64_t BounceBytesOf(const std::string& text) {
  const size_t found = text.find(kBounce);
  return found == std::string::npos ? 0 : std::stoll(text.substr(found + kBounce.size()));
}

std::vector<EngineInfo> EnginesOf(const std::string& text) {
  std::vector<EngineInfo> engines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string words = text.substr(begin, end - begin);
    begin = end + 1;
    if (words.starts_with(kBounce)) continue;
    EngineInfo engine;
    engine.name = words.substr(0, words.find('+'));
    engine.symmetric_padding = words.find("+symmetric") != std::string::npos;
    engine.blocks_channels = engine.short_tiles = words.find("+blocks") != std::string::npos;
    engine.channels_last = words.find("+last") != std::string::npos;
    if (words.find("+wide") != std::string::npos) engine.channels_at_once = 128;
    engine.wide_sums = words.find("+double") != std::string::npos;
    engine.properties.invariant = words.find("+invariant") != std::string::npos;
    engines.push_back(engine);
  }
  return engines;
}

}  // namespace

PlanRequest RequestOf(const Problem& problem, int64_t budget, const std::string& engines) {
  PlanRequest request;
  request.problem = problem;
  request.budget = budget;
  request.engines = EnginesOf(engines);
  request.bounce_bytes = BounceBytesOf(engines);
  return request;
}

}  // namespace oocdnn::testing
