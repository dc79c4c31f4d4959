// Problem strings, plans, options and profiles, right and damaged.
#pragma once

#include <string>

#include "testing/clients/random.hpp"

namespace oocdnn::fuzz_capi {

using clients::Random;

// Characters taken out, put in and exchanged, numbers made large, words twice.
std::string Damaged(Random* random, std::string text);
std::string DrawProblem(Random* random, bool hostile);
std::string DrawPlan(Random* random, bool hostile);
std::string DrawBudget(Random* random, bool hostile);
std::string DrawWrap(Random* random, bool hostile);
std::string DrawProfile(Random* random);

}  // namespace oocdnn::fuzz_capi
