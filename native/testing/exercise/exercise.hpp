// What the parts of the exercise program share: threads, and how they say what went wrong.
//
// The program drives the library as several clients at once would, without Python. So sanitizers
// see every thread and every allocation: the thread sanitizer, and the address sanitizer's search
// for leaks. oneDNN computes on one thread here, because nobody instruments OpenMP's own.
#pragma once

#include <functional>

namespace oocdnn::exercise {

constexpr int kThreads = 8;

// Prints what went wrong, from any thread; the program ends with 1.
[[gnu::format(printf, 1, 2)]] void Fail(const char* format, ...);

// Runs work(0), work(1), ... on kThreads threads of their own and returns when all are done.
void OnThreads(const std::function<void(int)>& work);

// The parts, each a file.
void Conformance();
void Schedules();
void Contexts();
void Files();
void Faults();
void Memory();

}  // namespace oocdnn::exercise
