// Opening and closing a session, its turns, and what a forked child builds anew.
#include "library/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/config.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "device/wrap/wrap.hpp"
#include "memory/owners.hpp"
#include "store/plan_memory.hpp"

namespace oocdnn {
namespace {

constexpr size_t kCallersKept = 16;

// With an automatic budget on a device whose memory is the host's, a call on files books no more:
// what the device holds would push the files' own pages out of memory.
constexpr int64_t kFileBudget = int64_t{256} << 20;

Result<int64_t> BudgetBytes(const std::string& text, Device& device) {
  OOC_ASSIGN(const int64_t free, device.FreeBytes());
  return ParseBudget(text, free);
}

}  // namespace

// Threads do not survive a fork, so what has them lives apart from what does.
struct Session::ThreadState {
  ThreadState(Device& device, int threads) : loop(device, threads) {}
  const pid_t process = getpid();
  TileLoop loop;
  std::vector<std::pair<void*, OwnedStream>> callers;  // streams of callers, by their own handles

  Result<Stream> CallerOf(Device& device, void* native) {
    for (const auto& [known, stream] : callers) {
      if (known == native) return stream.get();
    }
    if (callers.size() == kCallersKept) callers.erase(callers.begin());
    OOC_ASSIGN(OwnedStream stream, AdoptStream(device, native));
    callers.emplace_back(native, std::move(stream));
    return callers.back().second.get();
  }
};

std::string PlanFileOf(const ContextOptions& options) {
  const std::string& wrap = options.device.wrap;
  const bool real =
      wrap.find("limit") == std::string::npos && wrap.find("fault") == std::string::npos;
  const std::string& asked = options.plans.empty() ? options.profile : options.plans;
  if (!real || asked == "none") return "";
  return options.plans.empty() ? DefaultPlanFile() : options.plans;
}

Session::Session(ContextOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<Session>> Session::Open(ContextOptions options) {
  std::unique_ptr<Session> session(new Session(std::move(options)));
  OOC_TRY(session->Open().With("opening a context"));
  return session;
}

Status Session::Open() {
  if (options_.trace) {
    options_.device.wrap += options_.device.wrap.empty() ? "trace" : ",trace";
  }
  OOC_ASSIGN(stack_, MakeDevice(options_.device));
  auto_budget_ = options_.budget.empty() || options_.budget == "auto";
  OOC_ASSIGN(budget_, BudgetBytes(options_.budget, *stack_.device));
  arena_ = std::make_unique<Arena>(*stack_.device);
  if (options_.host_cap == 0) options_.host_cap = StagingBytes(*stack_.device);
  slabs_ = std::make_unique<Slabs>(*stack_.device, options_.host_cap);
  buffers_ = std::make_unique<SectionBuffers>(stack_.device, options_.host_cap);
  thread_state_ = std::make_unique<ThreadState>(*stack_.device, options_.device.threads);
  return thread_state_->loop.Init();
}

bool Session::IsForked() const {
  return thread_state_ != nullptr && thread_state_->process != getpid();
}

Session::~Session() {
  if (IsForked()) {
    // The parent's threads are not here to be joined: leave everything to the end of the process.
    static_cast<void>(thread_state_.release());
    static_cast<void>(arena_.release());
    static_cast<void>(slabs_.release());
    static_cast<void>(buffers_.release());
    // Nobody deletes this: the pointer in it keeps the device.
    static_cast<void>(new (std::nothrow) std::shared_ptr<Device>(stack_.device));
    return;
  }
  buffers_.reset();
  slabs_.reset();
  arena_.reset();
  thread_state_.reset();
}

void Session::End() {
  if (IsForked()) return;
  if (const auto path = Get(Var::kTrace); path && stack_.trace != nullptr) {
    const Status written = WriteFile(*path, TakeTrace(*stack_.trace));
    if (!written.ok()) Log(LogLevel::kWarn, "the trace %s", written.message().c_str());
  }
  static_cast<void>(Settle());
}

Status NestedCall(const char* function) {
  return Error(Code::kDeviceError,
               "%s was called from the context's own progress callback, or from a signal handler "
               "within it, while the call that it reports is running: use another context there, "
               "or call after that one has returned",
               function);
}

// The thread that has the turn comes again only from a progress callback, or from a signal handler
// that ran there, and would wait for its own call.
Result<Session::Turn> Session::TakeTurn(const char* function) {
  if (IsCalledByThisThread()) return NestedCall(function);
  Turn turn(turn_);
  OOC_TRY(EnterProcess());
  return turn;
}

Status Session::EnterProcess() {
  if (!IsForked()) return {};
  auto state = std::make_unique<ThreadState>(*stack_.device, options_.device.threads);
  OOC_TRY(state->loop.Init().With("in a forked child"));
  static_cast<void>(thread_state_.release());  // its threads ended with the fork
  thread_state_ = std::move(state);
  return {};
}

TileLoop& Session::loop() { return thread_state_->loop; }

Result<Stream> Session::Follow(void* stream) {
  OOC_ASSIGN(const Stream caller, thread_state_->CallerOf(*stack_.device, stream));
  if (caller != nullptr) OOC_TRY(loop().Follow(caller));
  return caller;
}

int64_t Session::BudgetFor(std::span<const OperandViews> tensors) const {
  if (!auto_budget_ || !stack_.device->capabilities().shares_host_memory) return budget_;
  const bool files = std::any_of(tensors.begin(), tensors.end(), [](const OperandViews& node) {
    return std::any_of(node.begin(), node.end(),
                       [](const TensorView& tensor) { return tensor.in_file(); });
  });
  return files ? std::min(budget_, kFileBudget) : budget_;
}

int64_t Session::AutoPinBytes() const {
  const bool wanted = Get(Var::kAutoPin).value_or("1") != "0";
  return wanted && !stack_.device->capabilities().reads_host ? options_.host_cap : 0;
}

Status Session::FreeArena() {
  OOC_TRY(Settle());
  arena_->Release();
  return {};
}

Status Session::Release() {
  OOC_TRY(FreeArena());
  arena_->ForgetPeak();
  slabs_->Release();
  buffers_->Release(slabs_.get());
  return {};
}

}  // namespace oocdnn
