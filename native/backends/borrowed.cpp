#include "backends/borrowed.hpp"

#include <algorithm>
#include <string_view>

#include "backends/backends.hpp"
#include "base/config.hpp"
#include "geom/words.hpp"

namespace oocdnn {
namespace {

constexpr std::string_view kName = "cuda:";

// N of "cuda:N"; -1 where it is none.
int OrdinalIn(std::string_view name) {
  int ordinal = -1;
  if (!name.starts_with(kName) || !ReadNumber(name.substr(kName.size()), &ordinal)) return -1;
  return std::max(ordinal, -1);
}

constexpr int64_t kPiece = int64_t{8} << 20, kLeastPiece = 4096, kMostPiece = int64_t{1} << 30;

}  // namespace

Result<std::vector<int>> ParseBorrowed(const std::string& text) {
  OOC_ASSIGN(const std::vector<std::string> names, DevicesOf(text));
  std::vector<int> ordinals;
  for (const std::string& name : names) {
    const int ordinal = OrdinalIn(std::string_view(name).substr(0, name.find('=')));
    if (ordinal < 0 || std::find(ordinals.begin(), ordinals.end(), ordinal) != ordinals.end()) {
      return Error(Code::kInvalidProblem,
                   "what is borrowed, '%s': write other GPUs, each of them once, as in "
                   "\"cuda:1,cuda:2\"",
                   text.c_str());
    }
    ordinals.push_back(ordinal);
  }
  return ordinals;
}

std::vector<int> BorrowedFor(const std::string& device, std::vector<int> ordinals) {
  if (device.starts_with("cpu") || device.find(',') != std::string::npos) return {};
  const int own = std::max(OrdinalIn(device), 0);
  std::erase(ordinals, own);
  return ordinals;
}

Result<int64_t> BorrowedPiece() {
  const auto said = Get(Var::kBorrowPiece);
  if (!said) return kPiece;
  OOC_ASSIGN(const int64_t bytes, ParseBytes(*said));
  if (bytes >= kLeastPiece && bytes <= kMostPiece) return bytes / kLeastPiece * kLeastPiece;
  return Error(Code::kInvalidProblem, "%s is %s; 4KiB to 1GiB are possible",
               InfoOf(Var::kBorrowPiece).name, said->c_str());
}

}  // namespace oocdnn
