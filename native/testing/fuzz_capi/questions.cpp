// The calls that ask a context, by strings and about its state, and those of host memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "testing/fuzz_capi/session.hpp"
#include "testing/fuzz_capi/texts.hpp"

namespace oocdnn::fuzz_capi {

void CallStrings(Session* session) {
  Random& random = session->random;
  oocdnn_context* const context = session->Context();
  const bool hostile = random.Chance(50);
  const std::string problem = DrawProblem(&random, hostile);
  const std::string plan = DrawPlan(&random, random.Chance(30));
  const char* text = nullptr;
  const char** const place = random.Chance(1) ? nullptr : &text;
  const char* const asked = random.Chance(1) ? nullptr : problem.c_str();
  oocdnn_status status = OOCDNN_OK;
  switch (random.Below(12)) {
    case 0:
    case 1:
    case 2:
      Now("oocdnn_plan", problem.c_str());
      status = oocdnn_plan(context, asked, place);
      break;
    case 3:
    case 4:
    case 5:
      Now("oocdnn_price", (problem + " | " + plan).c_str());
      status = oocdnn_price(context, asked, plan.c_str(), place);
      break;
    case 6:
    case 7:
    case 8:
      Now("oocdnn_use_plan", (problem + " | " + plan).c_str());
      status = oocdnn_use_plan(context, asked, plan.c_str());
      break;
    case 9: {
      Now("oocdnn_candidates", problem.c_str());
      const int best = random.Chance(5) ? random.Int(3) : static_cast<int>(random.Below(4));
      status = oocdnn_candidates(context, asked, best, static_cast<int>(random.Between(-1, 3)),
                                 random.Integer(), place);
      break;
    }
    case 10: {
      std::vector<double> seconds(random.Below(4), 1e-4);
      if (hostile && !seconds.empty()) seconds[0] = random.Chance(50) ? 0.0 : -1e308 * 10;
      Now("oocdnn_refine", problem.c_str());
      status = oocdnn_refine(context, asked, seconds.data(),
                             random.Chance(3) ? -1 : static_cast<int64_t>(seconds.size()), place);
      break;
    }
    default: {
      if (!random.Chance(5)) return CallDivision(&random);
      const oocdnn_micro_batch* choices = nullptr;
      int64_t count = 0, batch = 0;
      const std::string right = DrawProblem(&random, false);
      Now("oocdnn_measure_parts", right.c_str());
      status =
          oocdnn_measure_parts(context, right.c_str(), random.Int(2), &choices, &count, &batch);
      for (int64_t i = 0; status == OOCDNN_OK && i < count; ++i) {
        Expect(choices[i].samples > 0 && choices[i].seconds >= 0.0, "no part");
      }
    }
  }
  if (Answered(status) == OOCDNN_OK && text != nullptr) {
    Expect(std::strlen(text) > 0, "an empty text");
  }
}

void CallMemory(Session* session) {
  Random& random = session->random;
  oocdnn_context* const context = session->Context();
  oocdnn_host_memory* memory = nullptr;
  auto& all = session->memories;
  const int64_t bytes = random.Chance(20) ? random.Integer() : random.Between(0, 8192);
  switch (random.Below(4)) {
    case 0:
      Now("oocdnn_allocate_host");
      if (Answered(oocdnn_allocate_host(context, bytes, random.Chance(2) ? nullptr : &memory)) ==
          OOCDNN_OK) {
        // A device may hand out memory of any size that it does not touch.
        if (bytes > 0 && bytes <= 8192) {
          std::memset(oocdnn_host_data(memory), 1, static_cast<size_t>(bytes));
        }
        all.push_back(memory);
      }
      break;
    case 1: {
      std::vector<unsigned char>& own = session->pinned.emplace_back(random.Below(4096));
      const auto length = random.Chance(5) ? -1 : static_cast<int64_t>(own.size());
      Now("oocdnn_pin");
      if (Answered(oocdnn_pin(context, random.Chance(2) ? nullptr : own.data(), length, &memory)) ==
          OOCDNN_OK) {
        all.push_back(memory);
      }
      break;
    }
    case 2:
      Now("oocdnn_unpin");
      oocdnn_unpin(all.empty() ? nullptr : all[random.Below(all.size())]);
      Answered(OOCDNN_OK);
      break;
    default:
      if (all.empty()) return oocdnn_free_host(nullptr);
      Now("oocdnn_free_host");
      std::swap(all.back(), all[random.Below(all.size())]);
      oocdnn_free_host(all.back());
      all.pop_back();
      Answered(OOCDNN_OK);
  }
}

void CallState(Session* session) {
  Random& random = session->random;
  oocdnn_context* const context = session->Context();
  const char* text = nullptr;
  const char** const place = random.Chance(1) ? nullptr : &text;
  switch (random.Below(12)) {
    case 0:
    case 1: {
      oocdnn_stats stats{};
      Now("oocdnn_get_stats");
      if (Answered(oocdnn_get_stats(context, random.Chance(1) ? nullptr : &stats)) == OOCDNN_OK) {
        Expect(stats.tiles >= 0 && stats.peak_device_bytes >= 0, "negative stats");
        Expect(std::memchr(stats.engine, 0, sizeof stats.engine) != nullptr, "an engine's name");
      }
      return;
    }
    case 2:
      Now("oocdnn_release");
      Answered(oocdnn_release(context));
      return;
    case 3:
      Now("oocdnn_take_trace");
      Answered(oocdnn_take_trace(context, place));
      break;
    case 4:
      Now("oocdnn_check_reports");
      Answered(oocdnn_check_reports(context, place));
      break;
    case 5:
      Now("oocdnn_device_name");
      Answered(oocdnn_device_name(context, place));
      break;
    case 6: {
      int64_t bytes = 0;
      Now("oocdnn_auto_pin_bytes");
      Answered(oocdnn_auto_pin_bytes(context, random.Chance(1) ? nullptr : &bytes));
      return;
    }
    case 7:
      Now("oocdnn_forget_plans");
      Answered(oocdnn_forget_plans(place));
      return;
    case 8:
      if (!random.Chance(5)) return;
      Now("oocdnn_info");
      Answered(oocdnn_info(context, place));
      break;
    case 9: {
      const std::array<int64_t, 5> shape{random.Integer(), random.Integer(), random.Integer(),
                                         random.Integer(), random.Integer()};
      Now("oocdnn_dense_tensor");
      const oocdnn_tensor tensor = oocdnn_dense_tensor(
          random.Int(), random.Int(6), random.Chance(5) ? nullptr : shape.data(), nullptr);
      Expect(tensor.fd == -1, "a tensor in a file");
      Answered(OOCDNN_OK);
      return;
    }
    case 10: {
      Now("oocdnn_default_convolution");
      const oocdnn_convolution call = oocdnn_default_convolution(random.Int(), random.Int());
      Expect(call.groups == 1 && oocdnn_version()[0] != '\0', "other defaults");
      Answered(OOCDNN_OK);
      return;
    }
    default: {
      if (!random.Chance(1)) return;
      const oocdnn_progress stop = [](void*, int64_t, int64_t) { return 1; };
      Now("oocdnn_calibrate");
      Answered(oocdnn_calibrate(context, stop, nullptr, place));
      return;
    }
  }
  if (text != nullptr) Expect(std::strlen(text) < (1U << 24U), "a text without an end");
}

}  // namespace oocdnn::fuzz_capi
