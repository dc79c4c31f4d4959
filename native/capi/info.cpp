#include "capi/info.hpp"

#include "base/config.hpp"
#include "capi/oocdnn.h"

namespace oocdnn {
namespace {

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += Format("\\u%04x", c);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

const char* Word(bool value) { return value ? "true" : "false"; }

std::string EngineJson(const EngineInfo& engine) {
  const Properties& has = engine.properties;
  return Format("{\"name\": %s, \"exact\": %s, \"invariant\": %s, \"deterministic\": %s, "
                "\"nan_local\": %s}",
                Quote(engine.name).c_str(), Word(has.exact), Word(has.invariant),
                Word(has.deterministic), Word(has.nan_local));
}

std::string VariableJson(Var var) {
  const VarInfo& info = InfoOf(var);
  const auto value = Get(var);
  return Format("{\"name\": %s, \"values\": %s, \"default\": %s, \"meaning\": %s, \"set\": %s}",
                Quote(info.name).c_str(), Quote(info.values).c_str(), Quote(info.fallback).c_str(),
                Quote(info.meaning).c_str(), value ? Quote(*value).c_str() : "null");
}

}  // namespace

std::string InfoJson(const Context& context) {
  std::string json = Format("{\"version\": %s, \"device\": %s, \"description\": %s, "
                            "\"budget_bytes\": %lld, \"engines\": [",
                            Quote(oocdnn_version()).c_str(),
                            Quote(context.device().capabilities().name).c_str(),
                            Quote(context.device().capabilities().description).c_str(),
                            static_cast<long long>(context.budget()));
  const char* separator = "";
  for (const EngineInfo& engine : context.device().engines()) {
    json += separator + EngineJson(engine);
    separator = ", ";
  }
  json += "], \"backends\": [";
  separator = "";
  for (const BackendReport& report : ReportBackends()) {
    json += separator + Format("{\"name\": %s, \"available\": %s, \"text\": %s, \"remedy\": %s}",
                               Quote(report.name).c_str(), Word(report.available),
                               Quote(report.text).c_str(), Quote(report.remedy).c_str());
    separator = ", ";
  }
  json += "], \"variables\": [";
  separator = "";
  for (int i = 0; i < kVars; ++i) {
    json += separator + VariableJson(static_cast<Var>(i));
    separator = ", ";
  }
  return json + "]}";
}

}  // namespace oocdnn
