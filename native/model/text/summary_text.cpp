// A plan's summary in words and as JSON.
#include "base/config.hpp"
#include "base/json.hpp"
#include "base/numbers.hpp"
#include "model/text/summary.hpp"

namespace oocdnn {
namespace {

long long Long(int64_t number) { return static_cast<long long>(number); }

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string PredictedText(const PlanSummary& summary) {
  const Cost& cost = summary.cost;
  std::string text =
      Format("predicted %.3g s: fetch %.3g, compute %.3g, drain %.3g; floor %.3g s", cost.seconds,
             cost.fetch_seconds, cost.compute_seconds, cost.drain_seconds, summary.floor_seconds);
  if (summary.floor_seconds > 0)
    text += Format(", ratio %.2f", cost.seconds / summary.floor_seconds);
  return text + "\n";
}

// What goes before calls, as far as that is known and takes any time.
std::string OnceText(const PlanSummary& summary) {
  std::string text;
  if (summary.prepare_seconds) {
    text += Format("preparing the engine %.3g s", *summary.prepare_seconds);
  }
  if (summary.pin_seconds.value_or(0.0) > 0.0) {
    text += Format("%spinning the operands %.3g s", text.empty() ? "" : ", ", *summary.pin_seconds);
  }
  return text.empty() ? "" : "once, before calls: " + text + "\n";
}

// What the numbers rest on, where that is not this machine, measured.
std::string ReserveText(const PlanSummary& summary) {
  std::string text;
  if (!summary.prepared) {
    text += "the engines were not prepared: bytes are estimates, without workspace; rates of " +
            summary.machine + "\n";
  }
  if (!summary.unmeasured.empty()) text += "not measured: " + Joined(summary.unmeasured) + "\n";
  return text;
}

// `values` as a JSON array, each by `json`.
template <class Value, class Json>
std::string List(const std::vector<Value>& values, const Json& json) {
  std::string text;
  for (const Value& value : values) text += (text.empty() ? "" : ", ") + json(value);
  return "[" + text + "]";
}

std::string RunnerUpJson(const RunnerUp& one) {
  return Format(
      "{\"plan\": %s, \"text\": %s, \"engine\": %s, \"predicted_seconds\": %.17g, "
      "\"device_bytes\": %lld}",
      JsonString(one.plan).c_str(), JsonString(one.text).c_str(), JsonString(one.engine).c_str(),
      one.seconds, Long(one.device_bytes));
}

std::string IntervalJson(const Interval& one) {
  return Format("{\"track\": \"%s\", \"step\": %lld, \"begin\": %.9g, \"end\": %.9g}",
                Name(one.track), Long(one.step), one.begin, one.end);
}

std::string SplitsJson(const Tiling& tiling) {
  std::string text;
  for (int i = 0; i < kAxes; ++i) {
    text += (text.empty() ? "" : ", ") + NumberText(tiling.Count(static_cast<Axis>(i)));
  }
  return "[" + text + "]";
}

std::string SecondsOrNull(const std::optional<double>& seconds) {
  return seconds ? Format("%.17g", *seconds) : "null";
}

std::string SecondsJson(const PlanSummary& summary) {
  const Cost& cost = summary.cost;
  return Format(
      "\"predicted_seconds\": %.17g, \"floor_seconds\": %.17g, \"floor_compute_seconds\": %.17g, "
      "\"seconds_by_engine\": {\"fetch\": %.17g, \"compute\": %.17g, \"drain\": %.17g}, "
      "\"prepare_seconds\": %s, \"pin_seconds\": %s",
      cost.seconds, summary.floor_seconds, summary.floor_compute_seconds, cost.fetch_seconds,
      cost.compute_seconds, cost.drain_seconds, SecondsOrNull(summary.prepare_seconds).c_str(),
      SecondsOrNull(summary.pin_seconds).c_str());
}

std::string BytesJson(const PlanSummary& summary) {
  return Format(
      "\"data_bytes\": %lld, \"bytes_h2d\": %lld, \"bytes_d2h\": %lld, \"budget_bytes\": %lld, "
      "\"estimated_bytes\": %lld, \"booked_bytes\": %lld, \"host_bytes\": %lld",
      Long(summary.problem.Bytes()), Long(summary.cost.bytes_in), Long(summary.cost.bytes_out),
      Long(summary.budget_bytes), Long(summary.estimated_bytes), Long(summary.booked_bytes),
      Long(summary.host_bytes));
}

}  // namespace

std::string ToText(const PlanSummary& summary) {
  std::string text = ToString(summary.problem) + "\n";
  text +=
      Format("data %s, budget %s, books %s on the device, %s on the host\n",
             BytesText(summary.problem.Bytes()).c_str(), BytesText(summary.budget_bytes).c_str(),
             BytesText(summary.booked_bytes).c_str(), BytesText(summary.host_bytes).c_str());
  text +=
      Format("chosen: %s on %s, %lld tiles, %s in, %s out\n", summary.description.c_str(),
             summary.engine.c_str(), Long(summary.tiling.Tiles()),
             BytesText(summary.cost.bytes_in).c_str(), BytesText(summary.cost.bytes_out).c_str());
  text += PredictedText(summary) + OnceText(summary) + ReserveText(summary);
  if (summary.remembered) text += "remembered from an earlier search on this machine\n";
  for (const RunnerUp& one : summary.runners_up) {
    text += Format("also: %s, predicted %.3g s\n", one.text.c_str(), one.seconds);
  }
  for (const std::string& why : summary.refused) text += "refused: " + why + "\n";
  return text;
}

std::string ToJson(const PlanSummary& summary) {
  const auto quoted = [](const std::string& text) { return JsonString(text); };
  std::string json = "{\"problem\": " + JsonString(ToString(summary.problem));
  json += ", \"machine\": " + JsonString(summary.machine);
  json += ", \"plan\": " + JsonString(summary.plan);
  json += ", \"engine\": " + JsonString(summary.engine);
  json += std::string(", \"prepared\": ") + (summary.prepared ? "true" : "false");
  json += std::string(", \"remembered\": ") + (summary.remembered ? "true" : "false");
  json += Format(", \"search_seconds\": %.17g", summary.search_seconds);
  json += ", " + SecondsJson(summary) + ", " + BytesJson(summary);
  json += ", \"tiles\": " + NumberText(summary.tiling.Tiles());
  json += ", \"splits\": " + SplitsJson(summary.tiling);
  json += ", \"pinned\": " + List(summary.pinned, quoted);
  json += ", \"runners_up\": " + List(summary.runners_up, RunnerUpJson);
  json += ", \"refused\": " + List(summary.refused, quoted);
  json += ", \"unmeasured\": " + List(summary.unmeasured, quoted);
  json += ", \"timeline\": " + List(summary.timeline, IntervalJson);
  return json + ", \"text\": " + JsonString(ToText(summary)) + "}";
}

std::string ToJson(const std::vector<RunnerUp>& plans) { return List(plans, RunnerUpJson); }

}  // namespace oocdnn
