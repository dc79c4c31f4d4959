// Operands that pass through slabs, fetched and drained in pieces as the tile loop does it, several
// samples long so that filling the first slabs hardly counts.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/watch.hpp"
#include "calibrate/copy_bench.hpp"
#include "calibrate/measure.hpp"
#include "exec/staging.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kRows = 1120, kSamples = 4;  // of 32 MB of float32
constexpr int64_t kSlabBytes = int64_t{512} << 20;
constexpr double kEnough = 0.1;  // seconds of a few runs

// A file without a name, which goes with its descriptor.
class NamelessFile {
 public:
  NamelessFile(const std::string& folder, int64_t bytes)
      : fd_(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
    constexpr size_t kPiece = size_t{8} << 20;
    std::vector<unsigned char> piece(kPiece);  // of bytes that no file system leaves out
    for (size_t i = 0; i < kPiece; ++i) piece[i] = static_cast<unsigned char>(i * 2654435761 >> 24);
    for (int64_t at = 0; at < bytes && usable(); at += static_cast<int64_t>(kPiece)) {
      if (pwrite(fd_, piece.data(), kPiece, at) != static_cast<ssize_t>(kPiece)) Close();
    }
  }
  ~NamelessFile() { Close(); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool usable() const { return fd_ >= 0; }
  // What is read next comes from where the file is kept, and not from memory.
  void Forget() const {
    fdatasync(fd_);
    posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
  }

 private:
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  int fd_;
};

// Of a sample of the tensor that the rig's tile is of. Some engines' tiles have its padding too.
Dims SampleDims(const CopyBench& bench, const Rig& rig, Operand operand) {
  const Box box = rig.TransferOf(operand, bench.In(kCopyWidth), nullptr).box;
  Dims dims;
  for (int d = 0; d < 6; ++d) dims[d] = box.valid_end[d] - box.valid_begin[d];
  return dims;
}

// x and y, several samples each.
class StagingTimed {
 public:
  StagingTimed(const CopyBench& bench, const Rig& rig, TensorView in, TensorView out)
      : bench_(bench), rig_(rig), staging_(bench.device(), 0), slabs_(bench.device(), kSlabBytes) {
    for (auto& [operand, tensor] : {std::pair{Operand::kX, &in}, std::pair{Operand::kY, &out}}) {
      const Dims dims = SampleDims(bench, rig, operand);
      tensor->dtype = DType::kFloat32;
      tensor->stride = DenseStrides(dims);
      tensors_[Index(operand)] = *tensor;
      uses_[Index(operand)] = {true, operand == Operand::kY, false, dims};
    }
  }

  // Seconds of all samples.
  Result<double> Once(bool fetches, bool drains) {
    Staging::Uses uses = uses_;
    uses[Index(Operand::kX)].used = fetches;
    uses[Index(Operand::kY)].used = drains;
    OOC_TRY(staging_.Begin({{tensors_, uses}}, slabs_));
    const Watch watch;
    const std::vector<Piece> in = PiecesOf(Operand::kX, fetches);
    const std::vector<Piece> out = PiecesOf(Operand::kY, drains);
    size_t posted = 0;
    Status status;
    for (size_t i = 0; i < std::max(in.size(), out.size()) && status.ok(); ++i) {
      for (; posted < in.size() && staging_.HasRoom(Lane(Operand::kX)) && status.ok(); ++posted) {
        status = staging_.Post(Lane(Operand::kX), in[posted]);
      }
      if (i < in.size() && status.ok()) status = Fetch(in[i]);
      if (i < out.size() && status.ok()) status = Drain(out[i]);
    }
    status = bench_.Settle(std::move(status));
    Status ended = staging_.End();
    OOC_TRY(status);
    OOC_TRY(ended);
    return watch.Seconds();
  }

  Status Init() { return staging_.Init(); }

 private:
  static size_t Lane(Operand operand) { return LaneNumber(0, operand); }

  [[nodiscard]] std::vector<Piece> PiecesOf(Operand operand, bool any) const {
    std::vector<Piece> pieces;
    for (int64_t n = 0; n < kSamples && any; ++n) {
      Piece sample{{}, SampleDims(bench_, rig_, operand)}, piece;
      sample.begin[0] = n;
      sample.end[0] = n + 1;
      Cut cut = staging_.CutOf(Lane(operand), sample);
      while (cut.Next(&piece)) pieces.push_back(piece);
    }
    return pieces;
  }

  // The tile is a sample, whichever.
  [[nodiscard]] Transfer TransferOf(Operand operand, const Piece& piece,
                                    const TensorView& view) const {
    Transfer transfer = rig_.TransferOf(operand, bench_.In(kCopyWidth), nullptr);
    const int64_t n = piece.begin[0];
    transfer.box.origin[0] += n;
    transfer.box.valid_begin[0] += n;
    transfer.box.valid_end[0] += n;
    for (int d = 0; d < 6; ++d) {
      transfer.tile_begin[d] = piece.begin[d] - transfer.box.origin[d];
      transfer.tile_end[d] = piece.end[d] - transfer.box.origin[d];
    }
    transfer.view = view;
    return transfer;
  }

  Status Fetch(const Piece& piece) {
    OOC_ASSIGN(const TensorView view, staging_.Take(Lane(Operand::kX)));
    const Stream stream = bench_.fetch().get();
    OOC_TRY(bench_.device().Fetch(stream, TransferOf(Operand::kX, piece, view)));
    return staging_.Taken(Lane(Operand::kX), stream);
  }

  Status Drain(const Piece& piece) {
    OOC_ASSIGN(const TensorView view, staging_.Give(Lane(Operand::kY), piece));
    const Stream stream = bench_.drain().get();
    OOC_TRY(bench_.device().Drain(stream, TransferOf(Operand::kY, piece, view)));
    return staging_.Given(Lane(Operand::kY), stream);
  }

  const CopyBench& bench_;
  const Rig& rig_;
  Staging staging_;
  Slabs slabs_;
  OperandViews tensors_;
  Staging::Uses uses_{};
};

bool Known(const char* place, const Profile& profile) {
  return profile.wires.contains(Profile::StagingKey(place, "both"));
}

// Rates of one place; `before`: what goes before each run. Nothing where one fails.
template <class Before>
Status Note(const char* place, StagingTimed* timed, double bytes, const Before& before,
            Profile* profile) {
  const struct {
    const char* name;
    bool fetches, drains;
  } ways[] = {{"drain", false, true}, {"fetch", true, false}, {"both", true, true}};
  for (const auto& [name, fetches, drains] : ways) {
    std::vector<double> seconds;
    for (int i = 0; i < kRepetitions; ++i) {
      if (i >= 2 && std::accumulate(seconds.begin(), seconds.end(), 0.0) >= kEnough) break;
      before();
      OOC_ASSIGN(const double one, timed->Once(fetches, drains));
      seconds.push_back(one);
    }
    const Timing timing = TimingOf(std::move(seconds));
    const double rate = RateOf(bytes * (fetches && drains ? 2 : 1), timing);
    profile->SetWire(Profile::StagingKey(place, name), rate, timing.evidence());
  }
  return {};
}

Status MeasurePages(const CopyBench& bench, const Rig& rig, double bytes, Profile* profile) {
  std::vector<char> in(static_cast<size_t>(bytes)), out(static_cast<size_t>(bytes));
  TensorView from, to;
  from.data = in.data();
  to.data = out.data();
  StagingTimed timed(bench, rig, from, to);
  OOC_TRY(timed.Init());
  return Note(kPagePlace, &timed, bytes, [] {}, profile);
}

// Nothing where the folder takes no such files.
Status MeasureFiles(const CopyBench& bench, const Rig& rig, const std::string& folder, double bytes,
                    Profile* profile) {
  const NamelessFile in(folder, static_cast<int64_t>(bytes));
  const NamelessFile out(folder, static_cast<int64_t>(bytes));
  if (!in.usable() || !out.usable()) return {};
  TensorView from, to;
  from.location = {Tier::kFile, -1, in.fd()};
  to.location = {Tier::kFile, -1, out.fd()};
  StagingTimed timed(bench, rig, from, to);
  OOC_TRY(timed.Init());
  return Note(kFilePlace, &timed, bytes, [&] { in.Forget(); }, profile);
}

}  // namespace

Status MeasureStaging(Device& device, int64_t limit, const std::string& folder, Profile* profile) {
  const bool pages = !device.capabilities().reads_host && !Known(kPagePlace, *profile);
  const bool files = !Known(kFilePlace, *profile);
  if (!pages && !files) return {};
  OOC_ASSIGN(const std::unique_ptr<CopyBench> bench,
             CopyBench::Make(device, limit, profile->shared_engines));
  OOC_ASSIGN(const std::unique_ptr<Rig> rig, bench->FirstRig(kRows, kCopyWidth, true));
  const double bytes = rig->bytes(Operand::kX) * static_cast<double>(kSamples);
  if (pages) OOC_TRY(MeasurePages(*bench, *rig, bytes, profile));
  return files ? MeasureFiles(*bench, *rig, folder, bytes, profile) : Status();
}

}  // namespace oocdnn
