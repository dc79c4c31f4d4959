// Reads /proc and the cgroup file systems. Every file may be missing (containers hide some, other
// systems have none); what cannot be read does not limit.
#include "base/host.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace oocdnn {
namespace {

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;  // "max" and numbers beyond int64 do not parse: no limit
  if (!(file >> value)) return std::nullopt;
  return value;
}

// The number behind `key` in a file of "key value" lines.
std::optional<int64_t> ReadField(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

// The path of this process in the hierarchy of `controller` ("" for version 2).
std::string CgroupPath(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // id:controller,controller:path
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1) + ",");
    std::string name;
    while (std::getline(names, name, ',')) {
      if (name == controller) return line.substr(second + 1);
    }
  }
  return "";
}

// The group's folder and all above it up to the mount. Inside a container the path may not be
// visible, then the mount itself is the group.
std::vector<std::string> CgroupFolders(const std::string& mount, const std::string& controller) {
  std::vector<std::string> folders;
  std::string path = CgroupPath(controller);
  while (!path.empty() && path != "/") {
    folders.push_back(mount + path);
    path.resize(path.rfind('/'));
  }
  folders.push_back(mount);
  return folders;
}

struct MemoryFiles {
  const char *mount, *controller, *limit, *usage, *cache;
};
constexpr MemoryFiles kMemoryFiles[] = {
    {"/sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file"},
    {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"},
};

int64_t LeftInGroup(const std::string& folder, const MemoryFiles& files) {
  const auto limit = ReadNumber(folder + "/" + files.limit);
  const auto usage = ReadNumber(folder + "/" + files.usage);
  if (!limit || !usage) return INT64_MAX;
  const int64_t cache = ReadField(folder + "/memory.stat", files.cache).value_or(0);
  return std::max<int64_t>(*limit - std::max<int64_t>(*usage - cache, 0), 0);
}

// Cores that the quota of one group allows, or INFINITY.
double QuotaOf(const std::string& v2, const std::string& v1) {
  std::ifstream file(v2 + "/cpu.max");
  double quota = 0, period = 0;
  if (file >> quota >> period && quota > 0 && period > 0) return quota / period;
  const auto old_quota = ReadNumber(v1 + "/cpu.cfs_quota_us");
  const auto old_period = ReadNumber(v1 + "/cpu.cfs_period_us");
  if (!old_quota || !old_period || *old_quota <= 0 || *old_period <= 0) return INFINITY;
  return static_cast<double>(*old_quota) / static_cast<double>(*old_period);
}

double CpuQuota() {
  double cores = INFINITY;
  for (const std::string& folder : CgroupFolders("/sys/fs/cgroup", "")) {
    cores = std::min(cores, QuotaOf(folder, ""));
  }
  for (const std::string& folder : CgroupFolders("/sys/fs/cgroup/cpu", "cpu")) {
    cores = std::min(cores, QuotaOf("", folder));
  }
  return cores;
}

}  // namespace

int HostThreads() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int cores = 1;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    cores = CPU_COUNT(&mask);
  } else {  // more cores than a cpu_set_t holds
    cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  }
  const double quota = std::ceil(CpuQuota());
  if (quota < cores) cores = static_cast<int>(quota);
  return std::max(cores, 1);
}

int64_t AvailableMemory() {
  int64_t left = INT64_MAX;
  if (const auto kib = ReadField("/proc/meminfo", "MemAvailable:")) left = *kib * 1024;
  for (const MemoryFiles& files : kMemoryFiles) {
    for (const std::string& folder : CgroupFolders(files.mount, files.controller)) {
      left = std::min(left, LeftInGroup(folder, files));
    }
  }
  return left;
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 < line.size()) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace oocdnn
