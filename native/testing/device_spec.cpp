// A spec is a name, what stands after a colon, and for wrappers another spec in parentheses.
#include "testing/device_spec.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "backends/borrowed.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/cuda/cuda_device.hpp"
#include "testing/lying_device.hpp"
#include "testing/null_device.hpp"

namespace oocdnn::testing {
namespace {

constexpr int64_t kNullBytes = int64_t{4} << 30;
constexpr int64_t kLimitBytes = int64_t{1} << 30;

struct Parts {
  std::string name, argument, inner;
};

Result<Parts> Split(const std::string& spec) {
  Parts parts;
  std::string head = spec;
  const size_t open = spec.find('(');
  if (open != std::string::npos) {
    if (spec.back() != ')') {
      return Error(Code::kInvalidProblem, "device \"%s\" does not end in )", spec.c_str());
    }
    head = spec.substr(0, open);
    parts.inner = spec.substr(open + 1, spec.size() - open - 2);
  }
  const size_t colon = head.find(':');
  parts.name = head.substr(0, colon);
  if (colon != std::string::npos) parts.argument = head.substr(colon + 1);
  return parts;
}

// The whole of `text` as a number.
template <class T>
Result<T> Number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return value;
  return Error(Code::kInvalidProblem, "\"%.*s\" is no number", static_cast<int>(text.size()),
               text.data());
}

Status SetOption(CpuOptions& options, const std::string& option) {
  const size_t equals = std::min(option.find('='), option.size());
  const std::string key = option.substr(0, equals);
  const std::string value = equals < option.size() ? option.substr(equals + 1) : "";
  if (key == "jitter") {
    OOC_ASSIGN(options.jitter_seed, Number<unsigned>(value));
  } else if (key == "memory") {
    OOC_ASSIGN(options.memory_bytes, Number<int64_t>(value));
  } else if (key == "link") {
    OOC_ASSIGN(options.link_gb_per_s, Number<double>(value));
  } else if (key == "threads") {
    OOC_ASSIGN(options.threads, Number<int>(value));
  } else {
    return Error(Code::kInvalidProblem, "the cpu device has no option \"%s\"", key.c_str());
  }
  return {};
}

Result<std::unique_ptr<Device>> Cpu(const std::string& argument) {
  CpuOptions options;
  size_t begin = argument.find(',');
  options.engine = argument.substr(0, begin);
  while (begin != std::string::npos) {
    const size_t end = argument.find(',', begin + 1);
    OOC_TRY(SetOption(options, argument.substr(begin + 1, end - begin - 1)));
    begin = end;
  }
  return MakeCpuDevice(options);
}

Result<Fault> ParseFault(const std::string& argument) {
  constexpr std::array<const char*, kFaultKinds> names{
      "allocate", "allocate_host", "create", "copy", "run", "event", "prepare"};
  Fault fault;
  fault.nth = 0;
  if (argument.empty()) return fault;
  fault.sticky = argument.back() == '+';
  const size_t end = argument.size() - (fault.sticky ? 1 : 0);
  const size_t colon = argument.find(':');
  for (int i = 0; colon != std::string::npos && i < kFaultKinds; ++i) {
    if (argument.compare(0, colon, names[static_cast<size_t>(i)]) != 0) continue;
    fault.kind = static_cast<FaultKind>(i);
    OOC_ASSIGN(fault.nth, Number<int64_t>(argument.substr(colon + 1, end - colon - 1)));
    return fault;
  }
  return Error(Code::kInvalidProblem, "no fault is called \"%s\"", argument.c_str());
}

Result<Lie> ParseLie(const std::string& argument) {
  for (int i = 0; i < kLies; ++i) {
    if (argument == Name(static_cast<Lie>(i))) return static_cast<Lie>(i);
  }
  return Error(Code::kInvalidProblem, "no lie is called \"%s\"", argument.c_str());
}

Result<SpecDevice> Wrap(const Parts& parts) {
  OOC_ASSIGN(SpecDevice spec, MakeDevice(parts.inner));
  if (parts.name == "limit") {
    int64_t bytes = kLimitBytes;
    if (!parts.argument.empty()) {
      OOC_ASSIGN(bytes, Number<int64_t>(parts.argument));
    }
    spec.device = MakeLimitDevice(std::move(spec.device), bytes);
  } else if (parts.name == "fault") {
    OOC_ASSIGN(const Fault fault, ParseFault(parts.argument));
    spec.device = MakeFaultDevice(std::move(spec.device), fault);
    spec.fault = spec.device.get();
  } else if (parts.name == "check") {
    spec.device = MakeCheckDevice(std::move(spec.device));
    spec.check = spec.device.get();
  } else if (parts.name == "trace") {
    spec.device = MakeTraceDevice(std::move(spec.device));
    spec.trace = spec.device.get();
  } else if (parts.name == "lie") {
    OOC_ASSIGN(const Lie lie, ParseLie(parts.argument));
    spec.device = MakeLyingDevice(std::move(spec.device), lie);
  } else {
    return Error(Code::kInvalidProblem, "no wrapper is called \"%s\"", parts.name.c_str());
  }
  return spec;
}

}  // namespace

Result<SpecDevice> MakeDevice(const std::string& spec) {
  OOC_ASSIGN(const Parts parts, Split(spec));
  if (!parts.inner.empty()) return Wrap(parts);
  SpecDevice made;
  if (parts.name == "null") {
    made.device = MakeNullDevice(kNullBytes);
  } else if (parts.name == "cpu") {
    OOC_ASSIGN(made.device, Cpu(parts.argument));
  } else if (parts.name == "cuda") {
    CudaOptions options;
    options.engine = parts.argument;
    OOC_ASSIGN(options.borrowed, BorrowedFor("cuda"));
    OOC_ASSIGN(made.device, MakeCudaDevice(options));
  } else {
    return Error(Code::kInvalidProblem, "no device is called \"%s\"", spec.c_str());
  }
  return made;
}

}  // namespace oocdnn::testing
