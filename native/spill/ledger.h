/* Ledger: what a program holds of each device, and whether a request may lie there. Arithmetic
 * under one lock; it knows no addresses.
 *
 * The policy. A program's share of a device is its limit less oocdnn's own budget, and less what
 * nobody asked for: CUDA's context, kernels, the handles of libraries. A *small* request is one
 * below 32 MiB, or below a 64th of the limit less the budget, where that is less. Small ones lie on
 * the device while the share has room: they are parameters, statistics and workspaces, which are
 * used often for what they weigh. A 32nd of the same, 512 MiB at most, is kept for them, less what
 * they hold. Large ones lie on the device while there is room besides, first come, first served:
 * each byte of an activation crosses about as often as any other's, so which of them lie there
 * matters less than that the room is used.
 *
 * What nobody asked for grows (kernels are loaded, handles made), so devices are looked at again
 * when less than an eighth of the limit is left. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { kDevices = 64 }; /* a request for a device beyond them is not counted, and never refused */

/* Whether the request is a small one. */
bool ooc_ledger_is_small(size_t bytes);

/* Counts the request, and says so, where it may lie on the device. To be asked before the memory is
 * allocated. */
bool ooc_ledger_book(int device, size_t bytes);
/* The request is no longer on the device. To be told after the memory is free. */
void ooc_ledger_return(int device, size_t bytes);

/* Whether the device is to be looked at before such a request, because it never was, or because
 * what others may hold by now could pass the share. */
bool ooc_ledger_wants_look(int device, size_t bytes);

typedef struct OocLook {
  uint64_t changes; /* how often the ledger had counted */
  bool first;       /* nothing was seen of the device yet */
  size_t used;      /* bytes of the device, by whomever */
  size_t own;       /* of them oocdnn's */
  size_t process;   /* of them this process's; SIZE_MAX if that is not known */
} OocLook;

/* Begins a look; `changes` and `first` are filled. */
OocLook ooc_ledger_look(int device);
/* Ends it. If the ledger counted meanwhile it tells nothing. What is used and neither oocdnn's nor
 * in the ledger is the others', less what other processes have. That is known at the first look, or
 * what passes an eighth of the limit then is taken for it; what comes later is taken for this
 * process's. */
void ooc_ledger_see(int device, const OocLook* look);

/* What the program may hold of a device, and in `room` what it still may; SIZE_MAX where nothing is
 * counted. */
size_t ooc_ledger_share(int device, size_t* room);

/* The most that any device holds now, that any has held, and that others hold of any. */
void ooc_ledger_figures(int64_t* bytes, int64_t* peak, int64_t* others);
