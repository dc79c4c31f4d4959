// What the core and the oneDNN plug-in agree on when the plug-in is opened.
//
// The plug-in is a library of its own, so that the core needs no oneDNN to load. Both are built
// from one source tree; the version tells a stale plug-in from a current one.
#pragma once

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// Raised whenever CpuEngine, or any type that crosses it, changes its layout or meaning.
constexpr int kOneDnnAbiVersion = 2;

// File name of the plug-in, searched beside our own library.
constexpr const char* kOneDnnPluginFile = "liboocdnn_onednn.so";
// Name of its one entry point.
constexpr const char* kOneDnnPluginEntry = "oocdnn_onednn_engine";

// The entry point's type. Returns an engine of the caller (deleted through its virtual destructor)
// or null, with a reason in `*why` that stays valid for the life of the process.
using OneDnnPluginEntry = CpuEngine* (*)(int abi_version, const char** why);

}  // namespace oocdnn::cpu

extern "C" oocdnn::cpu::CpuEngine* oocdnn_onednn_engine(int abi_version, const char** why);
