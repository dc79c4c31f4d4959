#include "capi/info.hpp"

#include "base/config.hpp"
#include "base/json.hpp"
#include "capi/oocdnn.h"

namespace oocdnn {
namespace {

const char* Word(bool value) { return value ? "true" : "false"; }

std::string EngineJson(const EngineInfo& engine) {
  const Properties& has = engine.properties;
  return Format(
      "{\"name\": %s, \"library\": %s, \"exact\": %s, \"invariant\": %s, \"deterministic\": %s, "
      "\"nan_local\": %s}",
      JsonString(engine.name).c_str(), JsonString(engine.library).c_str(), Word(has.exact),
      Word(has.invariant), Word(has.deterministic), Word(has.nan_local));
}

std::string VariableJson(Var var) {
  const VarInfo& info = InfoOf(var);
  const auto value = Get(var);
  return Format("{\"name\": %s, \"values\": %s, \"default\": %s, \"meaning\": %s, \"set\": %s}",
                JsonString(info.name).c_str(), JsonString(info.values).c_str(),
                JsonString(info.fallback).c_str(), JsonString(info.meaning).c_str(),
                value ? JsonString(*value).c_str() : "null");
}

std::string ComponentsJson(const std::vector<Component>& components) {
  std::string json = "[";
  const char* separator = "";
  for (const Component& component : components) {
    json += separator + Format("{\"name\": %s, \"available\": %s, \"text\": %s, \"remedy\": %s}",
                               JsonString(component.name).c_str(), Word(component.available),
                               JsonString(component.text).c_str(),
                               JsonString(component.remedy).c_str());
    separator = ", ";
  }
  return json + "]";
}

}  // namespace

std::string InfoJson(Context& context) {
  std::string json = Format(
      "{\"version\": %s, \"device\": %s, \"description\": %s, \"driver\": %s, "
      "\"budget_bytes\": %lld, \"engines\": [",
      JsonString(oocdnn_version()).c_str(), JsonString(context.name()).c_str(),
      JsonString(context.device().capabilities().description).c_str(),
      JsonString(context.device().capabilities().driver).c_str(),
      static_cast<long long>(context.budget()));
  const char* separator = "";
  for (const EngineInfo& engine : context.device().engines()) {
    json += separator + EngineJson(engine);
    separator = ", ";
  }
  std::vector<Component> components = context.device().capabilities().components;
  components.push_back(context.ReportPlans());
  json += "], \"components\": " + ComponentsJson(components);
  json += ", \"backends\": " + ComponentsJson(ReportBackends(context.options().device));
  json += ", \"variables\": [";
  separator = "";
  for (int i = 0; i < kVars; ++i) {
    json += separator + VariableJson(static_cast<Var>(i));
    separator = ", ";
  }
  return json + "]}";
}

}  // namespace oocdnn
