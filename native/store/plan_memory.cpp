#include "store/plan_memory.hpp"

#include <atomic>
#include <cstdlib>
#include <forward_list>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/guarded.hpp"
#include "base/log.hpp"
#include "store/sqlite.hpp"

namespace oocdnn {
namespace {

// Whether an entry for the budget `found` says what a search with `budget` would.
bool Serves(const RememberedPlan& plan, int64_t found, int64_t budget) {
  if (budget > found) return false;
  if (plan.plan.empty()) return plan.bytes > budget;
  return plan.bytes <= budget && found - budget <= budget / 16;
}

void WarnOnce(std::atomic_flag* warned, const std::string& file, const char* what,
              const Status& why) {
  const LogLevel level = warned->test_and_set() ? LogLevel::kDebug : LogLevel::kWarn;
  Log(level, "%s: %s: %s", file.c_str(), what, why.message().c_str());
}

std::atomic_flag warned_of_reading, warned_of_writing;

// Contexts are left to the system when a process ends, so their memories are written then. The list
// is linked such that it is whole at every moment, for a child that is forked at that moment.
struct Living {
  ProcessLock lock;
  std::forward_list<PlanMemory*> memories;
};

void WriteAll();

Living& TheLiving() {
  static auto* const living = [] {
    static_cast<void>(std::atexit(WriteAll));
    return new Living;  // outlives all static destructors
  }();
  return *living;
}

void WriteAll() {
  Living& living = TheLiving();
  const std::lock_guard held(living.lock);
  for (PlanMemory* const memory : living.memories) memory->Write();
}

}  // namespace

PlanMemory::PlanMemory(std::string file, std::string machine)
    : file_(std::move(file)), machine_(std::move(machine)) {
  if (!remembers()) return;
  Result<PlanTable> read = ReadPlans(file_, machine_);
  if (read.ok()) {
    table_ = std::move(read).value();
  } else if (read.status().code() == Code::kUnsupported) {
    Log(LogLevel::kInfo, "plans are not remembered: %s; %s", read.status().message().c_str(),
        kSqliteRemedy);
    file_.clear();
    return;
  } else if (read.status().code() == Code::kInvalidProblem) {
    refused_ = std::move(read).status();
    WarnOnce(&warned_of_reading, file_, "plans are not remembered", refused_);
    file_.clear();
    return;
  } else if (IsBusy(read.status())) {
    Log(LogLevel::kInfo, "%s: the plans in it are not read: another process holds it",
        file_.c_str());
  } else {
    WarnOnce(&warned_of_reading, file_, "the plans in it are ignored", read.status());
  }
  Living& living = TheLiving();
  const std::lock_guard held(living.lock);
  living.memories.push_front(this);
}

PlanMemory::~PlanMemory() {
  if (!remembers()) return;
  {
    Living& living = TheLiving();
    const std::lock_guard held(living.lock);
    living.memories.remove(this);
  }
  Write();
}

void PlanMemory::EnterProcess() {
  if (process_ == getpid()) return;
  process_ = getpid();
  unwritten_.clear();
  dropped_.clear();
}

void PlanMemory::Drop(const PlanKey& key) {
  unwritten_.erase(key);
  dropped_.push_back(key);
}

PlanTable::const_iterator PlanMemory::Locate(uint64_t key, int64_t budget) const {
  auto at = table_.lower_bound({key, budget});
  for (; at != table_.end() && at->first.first == key; ++at) {
    if (Serves(at->second, at->first.second, budget)) return at;
  }
  return table_.end();
}

std::optional<RememberedPlan> PlanMemory::Find(uint64_t key, int64_t budget) {
  const std::lock_guard held(lock_);
  const auto found = Locate(key, budget);
  if (found == table_.end()) return std::nullopt;
  return found->second;
}

void PlanMemory::Put(uint64_t key, int64_t budget, RememberedPlan plan) {
  if (!remembers()) return;
  const std::lock_guard held(lock_);
  EnterProcess();
  // One for a smaller budget goes where this serves as well.
  for (auto at = table_.lower_bound({key, 0}); at != table_.lower_bound({key, budget});) {
    const bool goes = at->second.plan == plan.plan && Serves(plan, budget, at->first.second);
    if (goes) Drop(at->first);
    at = goes ? table_.erase(at) : std::next(at);
  }
  table_[{key, budget}] = plan;
  unwritten_[{key, budget}] = std::move(plan);
}

void PlanMemory::Refute(uint64_t key, int64_t budget, const Status& why) {
  const std::lock_guard held(lock_);
  EnterProcess();
  const auto found = Locate(key, budget);
  if (found == table_.end()) return;
  WarnOnce(&warned_of_reading, file_, "a plan in it is ignored and made anew", why);
  Drop(found->first);
  table_.erase(found);
}

// The file is written without the lock, so that a call of another thread never waits for it.
void PlanMemory::Write() {
  PlanTable found;
  std::vector<PlanKey> dropped;
  {
    const std::lock_guard held(lock_);
    EnterProcess();
    found.swap(unwritten_);
    dropped.swap(dropped_);
  }
  if (found.empty() && dropped.empty()) return;
  const Status status = Guarded([&] { return WritePlans(file_, machine_, found, dropped); });
  if (!status.ok()) {
    WarnOnce(&warned_of_writing, file_, "plans are not remembered (OOCDNN_PLANS=none: silently)",
             status);
  }
}

void PlanMemory::Forget() {
  const std::lock_guard held(lock_);
  table_.clear();
  unwritten_.clear();
  dropped_.clear();
}

Component PlanMemory::Report() {
  Result<std::string> version = SqliteVersion();
  if (!version.ok()) {
    return {"plans", false, "not remembered: " + version.status().message(), kSqliteRemedy};
  }
  if (!refused_.ok()) return {"plans", false, "not remembered: " + refused_.message(), ""};
  if (!remembers()) return {"plans", true, "not remembered, as was asked", ""};
  const std::lock_guard held(lock_);
  return {"plans", true,
          Format("%zu remembered in %s, by SQLite %s", table_.size(), file_.c_str(),
                 version.value().c_str()),
          ""};
}

Status ForgetPlans(const std::string& file) {
  Living& living = TheLiving();
  const std::lock_guard held(living.lock);
  for (PlanMemory* const memory : living.memories) {
    if (memory->file() == file) memory->Forget();
  }
  return RemovePlans(file);
}

}  // namespace oocdnn
