// What the constants of a profile are on this machine. Every figure is that of work which the
// library really does: tiles of a convolution, fetched, computed and drained through the device.
#pragma once

#include <functional>
#include <string>

#include "backends/backends.hpp"
#include "device/device.hpp"
#include "model/profile/profile.hpp"

namespace oocdnn {

// What copies cost, and pieces of work beyond their bytes and operations. Takes at most `limit`
// bytes of device memory, of which 256 MiB suffice. Where it succeeds, the profile is Measured().
Status MeasureCopies(Device& device, int64_t limit, Profile* profile);

// How fast passes over tiles are, of engines of which the profile does not have it.
Status MeasurePasses(Device& device, int64_t limit, Profile* profile);

// How fast staging is, in pieces as calls have them: of pageable memory, where the device does not
// reach that, and of files, of which some are made in that folder meanwhile. As far as the profile
// does not have it.
Status MeasureStaging(Device& device, int64_t limit, const std::string& folder, Profile* profile);

// What pinning pageable memory costs where the device does not reach that, as far as the profile
// does not have it. Nothing where the device does not pin it.
void MeasurePinning(Device& device, Profile* profile);

// Measures the wires while one peer device is busy (see CountPeers), then two, and so on, for the
// numbers that the profile lacks. `measured()` is called after each number and may end it. Where a
// peer cannot be opened or fails, a warning is logged, and that number and all above stay
// unchanged. `options`: of the device.
Status MeasureBeside(Device& device, const DeviceOptions& options, int64_t limit,
                     const std::function<Status()>& measured, Profile* profile);

// Which tiles are measured where their size matters: few in a first call, which somebody waits for.
enum class TileGrid { kFew, kAll };

// Whether the problem has so many channels that few other problems tell how fast it is.
bool IsWide(const Problem& problem);

// Whether the profile lacks what a first call of the problem measures.
bool LacksArithmetic(const Device& device, const Problem& problem, const Profile& profile);

// The arithmetic of every engine for the problem's type and direction, and for many channels where
// it is wide, as far as the profile does not have it, and what preparing took on the way. What an
// engine refuses stays as it is, and what takes more than `limit` bytes of device memory. Any other
// failure is told when what can be was measured; tiles of before it stay, and there is no rate
// `flops` of an engine that failed, so that the next time measures the rest. With all tiles, those
// that were guessed beside others (AddTile) are guessed anew, by what is measured now.
Status MeasureArithmetic(Device& device, const Problem& problem, TileGrid grid, int64_t limit,
                         Profile* profile);

// What no time is spent on: nobody waits for the reference engine if another serves.
inline bool IsLastResort(const EngineInfo& engine) { return engine.name == "reference"; }

}  // namespace oocdnn
