// The rates of a profile by name: what its text lists, what evidence is for, what a plan leans on.
#pragma once

#include <string>

#include "model/profile/profile.hpp"

namespace oocdnn {

// A rate that every profile has.
struct PlainRate {
  const char* name;
  double Profile::* field;
  bool may_be_zero;
};

constexpr PlainRate kPlainRates[] = {
    {"fetch_bytes_per_second", &Profile::fetch_bytes_per_second, false},
    {"drain_bytes_per_second", &Profile::drain_bytes_per_second, false},
    {"both_bytes_per_second", &Profile::both_bytes_per_second, false},
    {"move_bytes_per_second", &Profile::move_bytes_per_second, false},
    {"fetch_row_bytes", &Profile::fetch_row_bytes, true},
    {"far_fetch_row_bytes", &Profile::far_fetch_row_bytes, true},
    {"drain_row_bytes", &Profile::drain_row_bytes, true},
    {"far_drain_row_bytes", &Profile::far_drain_row_bytes, true},
    {"copy_seconds", &Profile::copy_seconds, true},
    {"run_seconds", &Profile::run_seconds, true},
    {"step_seconds", &Profile::step_seconds, true},
    {"hop_seconds", &Profile::hop_seconds, true},
    {"flops_fallback", &Profile::flops_fallback, false},
};

// The first words of the others' names.
constexpr const char *kFlopsWord = "flops ", *kTileWord = "tile ", *kWireWord = "wire ",
                     *kOnceWord = "once ";

// "flops onednn/f32/fwd", "tile 64 100352 onednn/f32/fwd", "wire direct/nhwc/fetch",
// "once direct/f32/fwd/prepare"; keys as in Profile.
std::string FlopsName(const std::string& key);
std::string TileName(const std::string& key, const TileSize& size);
std::string WireName(const std::string& key);
std::string OnceName(const std::string& key);
std::string NameOf(double Profile::* plain);

// Calls visit(name, rate) for every rate, in the order of the text. `Some`: Profile, const or not.
template <class Some, class Visit>
void VisitRates(Some& profile, const Visit& visit) {
  for (const PlainRate& plain : kPlainRates) visit(std::string(plain.name), profile.*plain.field);
  for (auto& [key, rate] : profile.flops) visit(FlopsName(key), rate);
  for (auto& [key, rates] : profile.tiles) {
    for (auto& [size, rate] : rates) visit(TileName(key, size), rate);
  }
  for (auto& [key, rate] : profile.wires) visit(WireName(key), rate);
  for (auto& [key, rate] : profile.once) visit(OnceName(key), rate);
}

}  // namespace oocdnn
