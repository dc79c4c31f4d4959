// Order: which enqueued work happens before which, by vector clocks.
//
// Follows the calls that a client makes. Work on a stream comes after what was enqueued there
// before, after what the stream waits for, and after what the host had synchronised with when it
// enqueued the work. One clock stands for all host threads. No thread rule of its own: the wrapper
// that owns it locks.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "device/device.hpp"

namespace oocdnn {

class Order {
 public:
  // One piece of work: the tick-th on the stream with this number. Numbers are never used again.
  struct Point {
    int stream = 0;
    int64_t tick = 0;
  };

  using Clock = std::vector<int64_t>;  // ticks by stream number; missing entries are 0

  // Returns the number of the stream; numbers count from 0.
  int AddStream(Stream stream);
  void RemoveStream(Stream stream) { streams_.erase(stream); }
  void RemoveEvent(Event event) { events_.erase(event); }

  void Record(Event event, Stream stream);
  void Wait(Stream stream, Event event);

  // What the host will know when it has waited for all that `event` or `stream` stands for now;
  // taken before the wait, and given to Synchronized after it.
  [[nodiscard]] Clock Of(Event event) const;
  [[nodiscard]] Clock Of(Stream stream) const;
  void Synchronized(const Clock& clock) { Join(host_, clock); }

  // The point of a new piece of work on `stream`.
  Point Enqueue(Stream stream);
  // Whether `earlier` happens before whatever is enqueued on `stream` from now on (or is its
  // latest piece of work).
  [[nodiscard]] bool Before(const Point& earlier, Stream stream) const;
  // Whether the host knows that the work has run.
  [[nodiscard]] bool Done(const Point& point) const;

 private:
  struct StreamState {
    int number = 0;
    Clock clock;
  };

  static void Join(Clock& clock, const Clock& other);
  static bool Covers(const Clock& clock, const Point& point);

  int next_number_ = 0;
  Clock host_;
  std::unordered_map<Stream, StreamState> streams_;
  std::unordered_map<Event, Clock> events_;
};

}  // namespace oocdnn
