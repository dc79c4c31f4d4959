#include "testing/fuzz_capi/texts.hpp"

#include <array>
#include <iterator>

namespace oocdnn::fuzz_capi {
namespace {

template <size_t kCount>
std::string Pick(Random* random, const char* const (&texts)[kCount]) {
  return texts[random->Below(kCount)];
}

std::string Number(Random* random) { return std::to_string(random->Between(1, 4)); }

}  // namespace

std::string Damaged(Random* random, std::string text) {
  constexpr const char* kPieces[] = {"x",
                                     "-1",
                                     "0",
                                     "9223372036854775807",
                                     "1152921504606846976",
                                     "1e999",
                                     "nan",
                                     "%s%n",
                                     "\xff",
                                     "\t",
                                     " ",
                                     "+",
                                     ":",
                                     "@",
                                     "/",
                                     "{",
                                     ",",
                                     "0x10",
                                     "1e3",
                                     "99999999999999999999",
                                     "2147483648",
                                     ".5",
                                     "-",
                                     "''",
                                     "x1x1",
                                     "order",
                                     "pad",
                                     "pin",
                                     "slots 0",
                                     "\n",
                                     "\"",
                                     "h"};
  for (size_t times = 1 + random->Below(3); times > 0; --times) {
    const size_t at = random->Below(text.size() + 1);
    switch (random->Below(6)) {
      case 0: text.erase(at, 1 + random->Below(4)); break;
      case 1: text.insert(at, Pick(random, kPieces)); break;
      case 2: text.replace(at, 1 + random->Below(2), Pick(random, kPieces)); break;
      case 3: text.resize(at); break;
      case 4:
        text.insert(at, text.substr(random->Below(text.size() + 1), random->Below(12)));
        break;
      default:
        if (random->Chance(5)) text.insert(at, 1 + random->Below(100000), 'x');
        if (at < text.size()) text[at] = static_cast<char>(1 + random->Below(255));
    }
  }
  return text;
}

std::string DrawProblem(Random* random, bool hostile) {
  constexpr const char* kMore[] = {
      "pad1",      "str2",     "dil2",     "f64",      "f16",      "bf16",       "nhwc",
      "alpha2",    "beta1",    "flip",     "+scale",   "+bias",    "+residual2", "+relu",
      "+clip6",    "+elu1",    "+sigmoid", "+tanh",    "+swish1",  "+maxpool2",  "+avgpool2",
      "poolstr2",  "poolpad1", "poolceil", "+saved",   "+clipped", "+sloped",    "+dw",
      "+db",       "+prenorm", "+prerelu", "+sums",    "x@pin",    "w@dev",      "y@file",
      "f32/tf32",  "xs:nhwc",  "ws:nhwc",  "pad0:1x2", "x@dev",    "y@dev",      "pad1x0",
      "+softplus1"};
  constexpr const char* kDirections[] = {"fwd", "bwd_data", "bwd_filter", "bwd_bias"};
  const auto rank = static_cast<int>(random->Between(1, 3));
  const std::string direction = random->Chance(50) ? "fwd" : Pick(random, kDirections);
  std::string text = "conv" + std::to_string(rank) + "d:" + direction;
  const std::string c = Number(random);
  std::string x = "x" + Number(random) + "x" + c, w = "w" + Number(random) + "x" + c;
  std::string y = "y" + Number(random) + "x" + c;
  for (int s = 0; s < rank; ++s) {
    x += "x" + std::to_string(random->Between(3, 9));
    w += "x" + Number(random);
    y += "x" + Number(random);
  }
  text += direction == "bwd_bias" ? " " + y : " " + x + " " + w;
  for (size_t more = random->Below(4); more > 0; --more) text += " " + Pick(random, kMore);
  return hostile ? Damaged(random, text) : text;
}

std::string DrawPlan(Random* random, bool hostile) {
  constexpr const char* kEngines[] = {"direct", "reference", "onednn", "", "cudnn-nchw"};
  constexpr const char* kOrders[] = {"", "order n", "order nk", "order kn", "order -", "order nh"};
  constexpr const char* kEnds[] = {
      "",        "slots 2",          "slots 3", "slots 2,1,3",    "pin x",
      "pin x,w", "slots 2 taper n1", "slots 1", "taper n1 pin x", "slots 2,2,2 pin y"};
  std::string text = Pick(random, kEngines);
  for (const char axis : {'n', 'g', 'k', 'c', 'd', 'h', 'w'}) {
    if (random->Chance(40)) text += std::string(" ") + axis + Number(random);
  }
  text += " " + Pick(random, kOrders) + " " + Pick(random, kEnds);
  return hostile ? Damaged(random, text) : text;
}

std::string DrawBudget(Random* random, bool hostile) {
  constexpr const char* kBudgets[] = {"64KiB", "1MiB", "16KiB", "50%", "auto", "4096", "1.5KiB"};
  const std::string text = Pick(random, kBudgets);
  return hostile ? Damaged(random, text) : text;
}

std::string DrawWrap(Random* random, bool hostile) {
  constexpr const char* kKinds[] = {"allocate", "allocate_host", "create", "copy",
                                    "run",      "event",         "prepare"};
  constexpr const char* kWraps[] = {"",        "", "check", "trace", "check,trace", "limit:65536",
                                    "resident"};
  std::string text = Pick(random, kWraps);
  if (random->Chance(25)) {
    text = (random->Chance(50) ? "check,fault:" : "fault:") + Pick(random, kKinds) + ":" +
           std::to_string(random->Between(1, 40)) + (random->Chance(20) ? ":sticky" : "");
  }
  return hostile ? Damaged(random, text) : text;
}

std::string DrawProfile(Random* random) {
  std::string text =
      "oocdnn-profile 9\nmachine = a machine\ndriver = none\nengines = onednn, direct, reference\n"
      "date = 2026-11-23T00:00:00Z\nshared_engines = true\ncalibration = none\n"
      "fetch_bytes_per_second = 4e+09 measured\ndrain_bytes_per_second = 4e+09 measured\n"
      "both_bytes_per_second = 3e+09 measured\nmove_bytes_per_second = 5e+09 measured\n"
      "fetch_row_bytes = 200 measured\nfar_fetch_row_bytes = 2000 measured\n"
      "drain_row_bytes = 400 measured\nfar_drain_row_bytes = 4000 measured\n"
      "copy_seconds = 5e-05 measured\nrun_seconds = 5e-05 measured\n"
      "step_seconds = 5e-05 measured\nhop_seconds = 0 measured\n"
      "flops_fallback = 5e+09 unmeasured\nflops direct/f32/fwd = 2.5e+10 measured\n"
      "flops direct/f32/bwd_data = 2.5e+10 measured\nflops direct/f64/fwd = 2e+09 measured\n";
  return random->Chance(60) ? Damaged(random, text) : text;
}

}  // namespace oocdnn::fuzz_capi
