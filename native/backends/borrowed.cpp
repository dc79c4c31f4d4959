#include "backends/borrowed.hpp"

#include <algorithm>
#include <vector>

#include "backends/backends.hpp"
#include "base/config.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kPiece = int64_t{8} << 20, kLeastPiece = 4096, kMostPiece = int64_t{1} << 30;

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

Status AddGpu(const std::string& name, std::vector<int>* ordinals) {
  OOC_ASSIGN(const int ordinal, OrdinalOf(name));
  if (std::find(ordinals->begin(), ordinals->end(), ordinal) != ordinals->end()) {
    return Error(Code::kInvalidProblem, "%s is there twice", name.c_str());
  }
  ordinals->push_back(ordinal);
  return {};
}

Status AddLender(const std::string& text, std::vector<int>* ordinals) {
  const size_t mark = text.find('=');
  OOC_TRY(AddGpu(Trimmed(text.substr(0, mark)), ordinals));
  return mark == std::string::npos ? Status() : ParseBytes(text.substr(mark + 1)).status();
}

// Calls add(name, ordinals) for each name of the list.
template <class Add>
Result<std::vector<int>> OrdinalsIn(const std::string& text, const Add& add) {
  std::vector<int> ordinals;
  const auto add_all = [&]() -> Status {
    OOC_ASSIGN(const std::vector<std::string> names, DevicesOf(text));
    for (const std::string& name : names) OOC_TRY(add(Trimmed(name), &ordinals));
    return {};
  };
  OOC_TRY(add_all().With(Format("borrowing '%s'", text.c_str())));
  return ordinals;
}

}  // namespace

Result<BorrowedGpus> ParseBorrowed(const std::string& text) {
  BorrowedGpus borrowed;
  borrowed.needed = true;
  OOC_ASSIGN(borrowed.ordinals, OrdinalsIn(text, AddGpu));
  OOC_ASSIGN(borrowed.piece_bytes, BorrowedPiece());
  return borrowed;
}

Result<BorrowedGpus> BorrowedFor(const std::string& device) {
  BorrowedGpus borrowed;
  const std::string said = Get(Var::kBorrow).value_or("");
  const bool one_gpu = !device.starts_with("cpu") && device.find(',') == std::string::npos;
  if (said.empty() || !one_gpu) return borrowed;
  auto ordinals = OrdinalsIn(said, AddLender);
  if (!ordinals.ok()) return std::move(ordinals).status().With(InfoOf(Var::kBorrow).name);
  borrowed.ordinals = std::move(ordinals).value();
  const auto own = OrdinalOf(device);
  std::erase(borrowed.ordinals, own.ok() ? own.value() : 0);  // "auto" is the first GPU
  OOC_ASSIGN(borrowed.piece_bytes, BorrowedPiece());
  return borrowed;
}

Result<int64_t> BorrowedPiece() {
  const auto said = Get(Var::kBorrowPiece);
  if (!said) return kPiece;
  const auto bytes = ParseBytes(*said);
  if (bytes.ok() && bytes.value() >= kLeastPiece && bytes.value() <= kMostPiece) {
    return bytes.value() / kLeastPiece * kLeastPiece;
  }
  return Error(Code::kInvalidProblem, "%s is '%s'; 4KiB to 1GiB are possible",
               InfoOf(Var::kBorrowPiece).name, said->c_str());
}

}  // namespace oocdnn
