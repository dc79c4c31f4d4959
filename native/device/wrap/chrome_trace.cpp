// Chrome's trace event format: times are microseconds, written with all nanoseconds.
#include "device/wrap/chrome_trace.hpp"

#include "base/json.hpp"
#include "base/status.hpp"

namespace oocdnn {
namespace {

std::string Microseconds(int64_t nanoseconds) {
  const char* const sign = nanoseconds < 0 ? "-" : "";
  const long long size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  return Format("%s%lld.%03lld", sign, size / 1000, size % 1000);
}

}  // namespace

void ChromeTrace::Append(const std::string& event) {
  if (!events_.empty()) events_ += ",\n";
  events_ += event;
}

void ChromeTrace::NameTrack(int track, const std::string& name) {
  Append(Format(R"({"ph":"M","name":"thread_name","pid":1,"tid":%d,"args":{"name":%s}})", track,
                JsonString(name).c_str()));
}

void ChromeTrace::Add(int track, const std::string& name, int64_t begin_ns, int64_t end_ns,
                      const std::string& args) {
  Append(Format(R"({"ph":"X","name":%s,"pid":1,"tid":%d,"ts":%s,"dur":%s,"args":%s})",
                JsonString(name).c_str(), track, Microseconds(begin_ns - origin_ns_).c_str(),
                Microseconds(end_ns - begin_ns).c_str(), args.c_str()));
}

void ChromeTrace::Count(const std::string& name, int64_t at_ns, int64_t value) {
  Append(Format(R"({"ph":"C","name":%s,"pid":1,"ts":%s,"args":{"bytes":%lld}})",
                JsonString(name).c_str(), Microseconds(at_ns - origin_ns_).c_str(),
                static_cast<long long>(value)));
}

std::string ChromeTrace::Finish() const {
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
}

}  // namespace oocdnn
