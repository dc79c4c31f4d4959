#include "shim/real.hpp"

namespace oocdnn::shim {
namespace {

Real& Table() {
  static Real table;
  return table;
}

}  // namespace

const Real& TheReal() { return Table(); }

void FillReal(OocFunction (*real)(const char* name)) {
#define OOC_FILL(name) Table().name = reinterpret_cast<decltype(&::name)>(real(#name));
  OOC_REAL_FUNCTIONS(OOC_FILL)
#undef OOC_FILL
}

}  // namespace oocdnn::shim
