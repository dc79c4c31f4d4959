// Devices by name, for tests.
//
//   null                         everything at once on the calling thread
//   cpu, cpu:ENGINE              all engines, or only this one
//   cpu:ENGINE,jitter=7,memory=1048576,link=2.5,threads=2      ENGINE may be empty
//   cuda, cuda:ENGINE            the first GPU
//   limit(D), limit:BYTES(D)     1 GiB, or so many bytes
//   fault(D), fault:KIND:N(D), fault:KIND:N+(D)
//        counts only; the N-th call of the kind fails; it and every later one does. KIND is one of
//        allocate allocate_host create copy run event prepare
//   check(D)  trace(D)
//   lie:NAME(D)                  breaks one promise (see lying_device.hpp)
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"
#include "device/wrap/wrap.hpp"

namespace oocdnn::testing {

// A device and the wrappers inside it that can be asked something; null where there is none, the
// outermost where there are several.
struct SpecDevice {
  std::unique_ptr<Device> device;
  Device* check = nullptr;
  Device* trace = nullptr;
  Device* fault = nullptr;
};

Result<SpecDevice> MakeDevice(const std::string& spec);

}  // namespace oocdnn::testing
