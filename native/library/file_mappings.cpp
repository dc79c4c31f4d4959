#include "library/file_mappings.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "geom/overlap.hpp"

namespace oocdnn {
namespace {

struct Member {
  const Problem& problem;
  const OperandViews& tensors;
  Operand operand;

  [[nodiscard]] const TensorView& tensor() const { return tensors[Index(operand)]; }
  [[nodiscard]] bool written() const { return problem.Writes(operand); }
  [[nodiscard]] const char* name() const { return Name(operand, problem.direction); }
  [[nodiscard]] AddressRange range() const { return AddressesOf(problem, tensors, operand); }
};
using Members = std::vector<Member>;

void AddMembers(const Problem& problem, const OperandViews& tensors, const Inner& inner,
                Members* members) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const Dims dims = problem.DimsOf(operand);
    const bool caller = operand != Operand::kOld && problem.Has(operand) && !inner[i];
    if (caller && std::count(dims.begin(), dims.end(), 0) == 0) {
      members->push_back({problem, tensors, operand});
    }
  }
}

class Descriptor {
 public:
  explicit Descriptor(const char* path) : fd_(open(path, O_RDONLY | O_CLOEXEC)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

std::string ReadTable(const char* path) {
  std::string text;
  const Descriptor table(path);
  for (char part[1 << 14];;) {
    const ssize_t got = read(table.get(), part, sizeof part);
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

// The begin of the heap, constant while the process lives; INT64_MAX if the kernel does not tell
// it.
int64_t HeapBegin() {
  const std::string text = ReadTable("/proc/self/maps");
  const size_t name = text.find("[heap]");
  if (name == std::string::npos) return kSizeMax;
  const size_t newline = text.rfind('\n', name);
  const char* const line = text.c_str() + (newline == std::string::npos ? 0 : newline + 1);
  return static_cast<int64_t>(std::strtoull(line, nullptr, 16));
}

// The allocator's heap, where most small arrays are, is mapped from no file.
bool InHeap(const AddressRange& range) {
  static const int64_t begin = HeapBegin();
  return range.begin >= begin && range.end <= reinterpret_cast<intptr_t>(sbrk(0));
}

// True if the first or the last page belongs to a file or to shared memory, or if the kernel does
// not tell. The pages are read first: bit 61 is valid for resident pages only.
bool MayBeShared(const Member& member) {
  if (member.tensor().in_file() || IsReached(member.tensor().location.tier)) return false;
  const AddressRange range = member.range();
  if (InHeap(range)) return false;
  constexpr uint64_t kFileOrShared = uint64_t{1} << 61;
  const Descriptor table("/proc/self/pagemap");
  const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  for (const int64_t address : {range.begin, range.end - 1}) {
    static_cast<void>(*reinterpret_cast<volatile const char*>(address));  // NOLINT: an address
    uint64_t entry = 0;
    const auto at = static_cast<off_t>(address / page * static_cast<int64_t>(sizeof entry));
    if (pread(table.get(), &entry, sizeof entry, at) != sizeof entry) return true;
    if ((entry & kFileOrShared) != 0) return true;
  }
  return false;
}

// A range of addresses that is mapped from a file, anonymous shared memory included.
struct Mapping {
  int64_t begin = 0, end = 0, offset = 0;
  uint64_t device = 0, inode = 0;
  bool shared = false;
};

// A line of /proc/self/maps; false for memory without a file. All mappings of a driver's device
// have one inode, whatever lies behind them, so those are left out.
bool ParseMapping(const char* line, Mapping* mapping) {
  char* at = nullptr;
  const auto number = [&](const char* from, int base) { return std::strtoull(from, &at, base); };
  const uint64_t begin = number(line, 16);
  if (*at != '-') return false;
  const uint64_t end = number(at + 1, 16);
  const char* const mode = at + 1;  // "rw-s", of which the last says whether it is shared
  if (std::strlen(at) < 6) return false;
  const uint64_t offset = number(mode + 4, 16);
  const uint64_t major = number(at, 16);
  if (*at != ':') return false;
  const uint64_t minor = number(at + 1, 16);
  const uint64_t inode = number(at, 10);
  if (inode == 0) return false;
  const char* const path = at + std::strspn(at, " ");
  const auto starts = [&](const char* text) {
    return std::strncmp(path, text, std::strlen(text)) == 0;
  };
  if (starts("anon_inode:")) return false;
  const bool memory = starts("/dev/shm/") || starts("/dev/zero") || starts("/dev/hugepages");
  if (starts("/dev/") && !memory) return false;
  *mapping = {static_cast<int64_t>(begin),
              static_cast<int64_t>(end),
              static_cast<int64_t>(offset),
              makedev(major, minor),
              inode,
              mode[3] == 's'};
  return true;
}

// Empty where the kernel does not tell.
std::vector<Mapping> ReadMappings() {
  const std::string text = ReadTable("/proc/self/maps");
  std::vector<Mapping> mappings;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    Mapping mapping;
    if (ParseMapping(line.c_str(), &mapping)) mappings.push_back(mapping);
    at = end + 1;
  }
  return mappings;
}

// A page of a file, mapped so that the table names the file as it names the other mappings, which
// on some file systems is not as fstat names it.
class Probe {
 public:
  explicit Probe(int fd)
      : page_(mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0)),
        address_(page_ == MAP_FAILED ? 0 : reinterpret_cast<intptr_t>(page_)) {
    struct stat info{};
    if (fstat(fd, &info) == 0) named_ = {0, 0, 0, info.st_dev, info.st_ino, true};
  }
  Probe(Probe&& other) noexcept
      : page_(std::exchange(other.page_, MAP_FAILED)),
        address_(other.address_),
        named_(other.named_) {}
  Probe& operator=(Probe&&) = delete;
  ~Probe() {
    if (page_ != MAP_FAILED) munmap(page_, 1);
  }
  // The file as a mapping of which addresses are offsets.
  [[nodiscard]] Mapping FileIn(const std::vector<Mapping>& mappings) const {
    Mapping file = named_;
    for (const Mapping& mapping : mappings) {
      if (mapping.begin > address_ || address_ >= mapping.end) continue;
      file.device = mapping.device;
      file.inode = mapping.inode;
    }
    return file;
  }

 private:
  void* page_;
  int64_t address_;
  Mapping named_;
};

// A part of an operand that lies in a file: an address or an offset plus `shift` is the position.
struct Part {
  Mapping file;
  int64_t shift = 0;
};

// The parts of all operands, of each in a row.
std::vector<std::vector<Part>> PartsOf(const Members& members) {
  std::vector<Probe> probes;
  for (const Member& member : members) probes.emplace_back(member.tensor().location.fd);
  const std::vector<Mapping> mappings = ReadMappings();
  std::vector<std::vector<Part>> parts(members.size());
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].tensor().in_file()) {
      parts[i].push_back({probes[i].FileIn(mappings), 0});
      continue;
    }
    const AddressRange range = members[i].range();
    for (const Mapping& mapping : mappings) {
      if (!range.Touches({mapping.begin, mapping.end})) continue;
      parts[i].push_back({mapping, mapping.offset - mapping.begin});
    }
  }
  return parts;
}

// True if a result and another operand meet in a file. Those that meet at one address are known;
// what is written to a private mapping stays there.
bool Meet(const Member& result, const Part& to, const Member& other, const Part& from) {
  if (!to.file.shared) return false;
  if (to.file.device != from.file.device || to.file.inode != from.file.inode) return false;
  if (to.shift == from.shift && result.tensor().in_file() == other.tensor().in_file()) return false;
  StridedBox written = BoxOf(result.problem, result.tensors, result.operand);
  StridedBox read = BoxOf(other.problem, other.tensors, other.operand);
  written.address += to.shift;
  read.address += from.shift;
  return SharesBytes(written, read);
}

// True if a result and another operand can meet in a file, by a cheap test.
bool MayMeet(const Members& members) {
  return std::any_of(members.begin(), members.end(), [&](const Member& member) {
    if (!member.written()) return false;
    if (!member.tensor().in_file()) return MayBeShared(member);
    return std::any_of(members.begin(), members.end(), MayBeShared);
  });
}

Status Check(const Members& members) {
  if (!MayMeet(members)) return {};
  const std::vector<std::vector<Part>> parts = PartsOf(members);
  for (size_t r = 0; r < members.size(); ++r) {
    for (size_t m = 0; m < members.size() && members[r].written(); ++m) {
      if (m == r) continue;
      for (const Part& to : parts[r]) {
        const bool meet = std::any_of(parts[m].begin(), parts[m].end(), [&](const Part& from) {
          return Meet(members[r], to, members[m], from);
        });
        if (!meet) continue;
        return Error(Code::kInvalidProblem,
                     "%s overlaps %s in a file that both lie in; a convolution cannot run in "
                     "place, pass another output",
                     members[r].name(), members[m].name());
      }
    }
  }
  return {};
}

}  // namespace

Status CheckFileMappings(const Problem& problem, const OperandViews& tensors, const Inner& inner) {
  Members members;
  AddMembers(problem, tensors, inner, &members);
  return Check(members);
}

Status CheckFileMappings(const Program& program, const std::vector<OperandViews>& tensors) {
  Members members;
  for (size_t i = 0; i < program.size(); ++i) {
    AddMembers(program[i], tensors[i], program.PassedTo(i), &members);
  }
  return Check(members);
}

}  // namespace oocdnn
