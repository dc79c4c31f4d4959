// ChromeTrace: writes the JSON that chrome://tracing and Perfetto read.
#pragma once

#include <cstdint>
#include <string>

namespace oocdnn {

class ChromeTrace {
 public:
  // Times are nanoseconds of one clock; `origin_ns` becomes 0.
  explicit ChromeTrace(int64_t origin_ns) : origin_ns_(origin_ns) {}

  void NameTrack(int track, const std::string& name);
  // A span on a track. `args` is a JSON object.
  void Add(int track, const std::string& name, int64_t begin_ns, int64_t end_ns,
           const std::string& args);
  // A new value of the counter `name`.
  void Count(const std::string& name, int64_t at_ns, int64_t value);

  // The whole document.
  [[nodiscard]] std::string Finish() const;

 private:
  void Append(const std::string& event);

  int64_t origin_ns_;
  std::string events_;
};

}  // namespace oocdnn
