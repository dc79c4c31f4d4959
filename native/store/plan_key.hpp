// What plans are found again by: everything that the planner and the engines look at.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.hpp"
#include "model/plan.hpp"

namespace oocdnn {

// Equal texts mean equal plans for equal budgets, in one context. What two problems differ in that
// is of no consequence is left out: the strides of operands that are not used, and along dimensions
// of one element.
std::string KeyOf(const Problem& problem, const Tiers& tiers, const InPlace& in_place,
                  int64_t workspace);

// Equal texts mean tiles that are alike, wherever the operands lie, and engines numbered alike; in
// one context.
std::string TilesKeyOf(const PlanRequest& request);

// The same on one machine, in any context of any process: the rates that the plan rests on, and
// what it is asked to be, go in as well.
uint64_t KeyOf(const PlanRequest& request, const Profile& profile);

// The device and the libraries that a plan was found with, in words.
std::string PlannerOf(const Device& device);

}  // namespace oocdnn
