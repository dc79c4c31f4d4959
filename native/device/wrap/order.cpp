// Vector clocks of streams, events and the host. A stream that is not known (it was created behind
// the wrapper's back) has no clock: nothing is said of it.
#include "device/wrap/order.hpp"

#include <algorithm>

namespace oocdnn {

void Order::Join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

bool Order::Covers(const Clock& clock, const Point& point) {
  const auto i = static_cast<size_t>(point.stream);
  return i < clock.size() && clock[i] >= point.tick;
}

int Order::AddStream(Stream stream) {
  const int number = next_number_++;
  streams_[stream] = {number, {}};
  return number;
}

void Order::Record(Event event, Stream stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  Join(found->second.clock, host_);
  events_[event] = found->second.clock;
}

void Order::Wait(Stream stream, Event event) {
  const auto found = streams_.find(stream);
  const auto recorded = events_.find(event);
  if (found == streams_.end() || recorded == events_.end()) return;
  Join(found->second.clock, recorded->second);
}

Order::Clock Order::Of(Event event) const {
  const auto recorded = events_.find(event);
  return recorded == events_.end() ? Clock{} : recorded->second;
}

Order::Clock Order::Of(Stream stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? Clock{} : found->second.clock;
}

Order::Point Order::Enqueue(Stream stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return {};
  StreamState& state = found->second;
  Join(state.clock, host_);
  const auto i = static_cast<size_t>(state.number);
  if (state.clock.size() <= i) state.clock.resize(i + 1);
  return {state.number, ++state.clock[i]};
}

bool Order::Before(const Point& earlier, Stream stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() || Covers(found->second.clock, earlier);
}

bool Order::Done(const Point& point) const { return Covers(host_, point); }

}  // namespace oocdnn
