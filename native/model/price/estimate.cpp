// Lengths of pipelines from totals alone, for the search; the pipeline itself is in pipeline.cpp.
#include <algorithm>

#include "model/price/cost.hpp"

namespace oocdnn {
namespace {

// Fetches that nothing hides.
struct Serial {
  double first = 0.0;   // of the first step: nothing is computed before it
  double fetch = 0.0;   // of later steps, while the compute before has ended and the next waits
  double excess = 0.0;  // of those, what is longer than a drain that holds it up at the same time
};

// A slot without a spare is filled after the compute before; and so are those of the operands that
// are fetched behind it for the same step, as the fetch engine works in order.
Serial SerialOf(const Roles& roles, const Totals& totals, const Depths& depths, double drain) {
  Serial serial;
  int64_t waiting = 0;  // transfers of the operand so far that waits most often
  for (const Operand operand : roles.read()) {
    const Flow& flow = totals.flow[Index(operand)];
    if (flow.transfers == 0) continue;
    const double one = flow.seconds / static_cast<double>(flow.transfers);
    serial.first += one;
    if (depths[Index(operand)] <= 1) waiting = std::max(waiting, flow.transfers);
    const int64_t waits = std::max<int64_t>(std::min(waiting, flow.transfers) - 1, 0);
    serial.fetch += one * static_cast<double>(waits);
    serial.excess += std::max(one - drain, 0.0) * static_cast<double>(waits);
  }
  return serial;
}

// What serial copies in one direction take longer because of the others in the other direction.
struct Held {
  double fetch = 0.0, drain = 0.0;
};

// While something is computed nothing serial is copied, and what is copied then holds nothing up.
// Fetches inside the device count among the serial ones, though nothing holds them up.
Held HeldUp(const Rates& rates, const Totals& totals, double computing, double serial_fetch,
            double serial_drain) {
  double fetches = 0.0, drains = 0.0;
  for (const Operand operand : rates.roles().used()) {
    if (rates.Inside(operand)) continue;
    (rates.roles().Writes(operand) ? drains : fetches) += totals.flow[Index(operand)].seconds;
  }
  const double longer = 1.0 / rates.SpeedTogether() - 1.0;
  const auto held = [&](double serial, double others) {
    return longer * std::clamp(others - computing, 0.0, serial);
  };
  return {held(serial_fetch, drains),
          rates.Inside(rates.roles().output()) ? 0.0 : held(serial_drain, fetches)};
}

}  // namespace

double WireBound(const Rates& rates, const Totals& totals) {
  if (rates.shared_engines()) return 0.0;
  double between = 0.0;             // bytes that cross while both directions are in use
  double alone = 0.0;               // seconds before and after that
  int64_t fetches = 0, drains = 0;  // between
  for (const Operand operand : rates.roles().used()) {
    const Flow& flow = totals.flow[Index(operand)];
    if (flow.transfers == 0 || rates.Inside(operand)) continue;
    alone += flow.end_seconds;
    between += static_cast<double>(flow.bytes) - flow.end_bytes;
    (rates.roles().Writes(operand) ? drains : fetches) += flow.transfers - 1;
  }
  const auto copies = static_cast<double>(std::max(fetches, drains));
  return alone + rates.WireSeconds(between) + copies * rates.CopySeconds();
}

double Estimate(const Rates& rates, const Totals& totals, const Cost& cost, double least,
                const Depths& depths, bool held_up) {
  if (rates.shared_engines() || totals.steps == 0) return cost.seconds;
  const int out = Index(rates.roles().output());
  const double drains = static_cast<double>(std::max<int64_t>(totals.flow[out].transfers, 1));
  const double last_drain = cost.drain_seconds / drains;
  const double serial_out = depths[out] <= 1 ? cost.drain_seconds - last_drain : 0.0;
  const Serial serial =
      SerialOf(rates.roles(), totals, depths, depths[out] <= 1 ? last_drain : 0.0);
  Held held;
  if (held_up) {
    held = HeldUp(rates, totals, cost.compute_seconds, serial.fetch, serial_out);
  }
  const double one_run = cost.compute_seconds / static_cast<double>(totals.steps);
  const double hops = 2 * rates.HopSeconds();  // from a fetch to a run, and from there to a drain
  return std::max({least, cost.fetch_seconds + one_run + last_drain + hops,
                   serial.first + cost.compute_seconds + last_drain + hops +
                       std::max(serial.fetch + held.fetch, serial_out + held.drain + serial.excess),
                   serial.first + one_run + cost.drain_seconds + hops});
}

double RankOf(const Cost& cost, double seconds) {
  constexpr double kHidden = 0.03;
  const double busy = cost.fetch_seconds + cost.compute_seconds + cost.drain_seconds;
  return seconds + kHidden * std::max(busy - seconds, 0.0);
}

}  // namespace oocdnn
