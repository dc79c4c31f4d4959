#include "heap/acts.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace oocdnn::heap {
namespace {

using Acts = std::vector<Act>;

// The simulated memory: free intervals, and blocks that the runtime holds.
struct Memory {
  Arena arena;
  std::map<int64_t, int64_t> held;  // bytes, by address

  // False where the allocator takes another address, or what is given back is not held.
  bool Do(const Act& act) {
    if (act.bytes != 0) {
      if (arena.Allocate(act.bytes) != act.address) return false;
      held.emplace(act.address, act.bytes);
      return true;
    }
    const auto one = held.find(act.address);
    if (one == held.end()) return false;
    arena.Give({one->first, one->second});
    held.erase(one);
    return true;
  }

  // False where the allocator takes another address.
  bool Do(const Request& request) {
    if (request.begins) {
      return arena.Allocate(request.interval.bytes) == request.interval.address;
    }
    arena.Give(request.interval);
    return true;
  }

  void GiveAll() {
    for (const auto& [address, bytes] : held) arena.Give({address, bytes});
    held.clear();
  }
};

class Writer {
 public:
  Writer(const Arena& arena, std::span<const Interval> ranges, int64_t least, Deadline* deadline)
      : memory_{arena, {}}, ranges_(ranges), least_(least), deadline_(deadline) {}

  void Write(int64_t number, const Steered& group);
  Acts Written() { return std::move(acts_); }

 private:
  [[nodiscard]] Acts ActsOf(int64_t number, const Steered& group) const;
  [[nodiscard]] Acts All(int64_t number, const Steered& group) const;
  [[nodiscard]] Acts Fewer(Acts acts, const Steered& group, bool last_first) const;
  [[nodiscard]] bool Serve(const Acts& acts, const Steered& group) const;

  Memory memory_;
  const std::span<const Interval> ranges_;
  const int64_t least_;
  Deadline* const deadline_;
  Acts acts_;
};

void Writer::Write(int64_t number, const Steered& group) {
  if (!group.steers) memory_.GiveAll();
  for (const Interval& one : group.frees) memory_.arena.Give(one);
  if (group.steers && (!memory_.held.empty() || !group.divided.taken.empty())) {
    for (const Act& act : ActsOf(number, group)) {
      memory_.Do(act);
      acts_.push_back(act);
    }
  }
  for (const Request& one : group.requests) memory_.Do(one);
}

Acts Writer::ActsOf(int64_t number, const Steered& group) const {
  if (Serve({}, group)) return {};
  Acts all = All(number, group);
  if (deadline_->Passed()) return all;
  Acts first = Fewer(all, group, false), last = Fewer(std::move(all), group, true);
  return first.size() < last.size() ? first : last;
}

// Gives back what is held. Takes all free intervals, the largest first, so that no larger one can
// be taken instead; then of those with holes everything again in parts.
Acts Writer::All(int64_t number, const Steered& group) const {
  Acts acts;
  const auto take = [&](const Interval& one) { acts.push_back({number, one.address, one.bytes}); };
  const auto give = [&](const Interval& one) { acts.push_back({number, one.address, 0}); };
  for (const auto& [address, bytes] : memory_.held) give({address, bytes});
  const auto& [opened, taken] = group.divided;
  if (taken.empty()) return acts;
  Memory released = memory_;
  released.GiveAll();
  std::vector<Interval> whole = Within(released.arena.free(), ranges_);
  std::erase_if(whole, [&](const Interval& one) { return one.bytes <= least_; });
  std::stable_sort(whole.begin(), whole.end(), [](const Interval& a, const Interval& b) {
    return std::pair(-a.bytes, a.address) < std::pair(-b.bytes, b.address);
  });
  std::for_each(whole.begin(), whole.end(), take);
  std::vector<Interval> holes;
  for (const Interval& one : whole) {
    if (std::find(taken.begin(), taken.end(), one) != taken.end()) continue;
    give(one);
    std::vector<std::pair<Interval, bool>> parts;  // true: a hole
    for (const Interval& part : Within(taken, std::span(&one, 1))) parts.emplace_back(part, false);
    for (const Interval& part : Within(opened, std::span(&one, 1))) {
      if (part.bytes > least_) parts.emplace_back(part, true);
    }
    std::sort(parts.begin(), parts.end());
    for (const auto& [part, is_hole] : parts) {
      take(part);
      if (is_hole) holes.push_back(part);
    }
  }
  std::for_each(holes.begin(), holes.end(), give);
  return acts;
}

// Leaves out, one after the other from the last or the first one on, what the group does not need:
// what is taken and its release, and the release of what is taken again, or may stay taken.
Acts Writer::Fewer(Acts acts, const Steered& group, bool last_first) const {
  std::vector<char> out(acts.size(), 0);
  const auto rest = [&] {
    Acts left;
    for (size_t i = 0; i < acts.size(); ++i) {
      if (out[i] == 0) left.push_back(acts[i]);
    }
    return left;
  };
  const size_t given = memory_.held.size();  // the leading releases
  for (size_t i = 0; i < acts.size(); ++i) {
    const size_t place = last_first ? acts.size() - 1 - i : i;
    const bool gives = acts[place].bytes == 0;
    if (out[place] != 0 || (gives && place >= given)) continue;
    const int64_t bytes = gives ? memory_.held.at(acts[place].address) : 0;
    size_t other = place + 1;
    while (other < acts.size() && (out[other] != 0 || acts[other].bytes != bytes ||
                                   acts[other].address != acts[place].address)) {
      other += 1;
    }
    for (const bool both : {true, false}) {
      if (both ? other == acts.size() : !gives && other != acts.size()) continue;
      out[place] = 1;
      if (both) out[other] = 1;
      if (Serve(rest(), group)) break;
      out[place] = 0;
      if (both) out[other] = 0;
    }
  }
  return rest();
}

// True if the simulated allocator serves every act and every request at its address.
bool Writer::Serve(const Acts& acts, const Steered& group) const {
  Memory memory = memory_;
  const auto done = [&](const auto& one) { return memory.Do(one); };
  return std::all_of(acts.begin(), acts.end(), done) &&
         std::all_of(group.requests.begin(), group.requests.end(), done);
}

}  // namespace

std::vector<Act> ActsOf(std::span<const Steered> groups, const Arena& arena,
                        std::span<const Interval> ranges, int64_t least, Deadline* deadline) {
  Writer writer(arena, ranges, least, deadline);
  for (size_t number = 0; number < groups.size(); ++number) {
    writer.Write(static_cast<int64_t>(number), groups[number]);
  }
  return writer.Written();
}

}  // namespace oocdnn::heap
