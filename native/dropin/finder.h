/* Finds the real libcudnn.so.9. It is never opened by its name, because in this process that name
 * is the drop-in's. */
#pragma once

#include <limits.h>
#include <stdbool.h>

/* Sets `path` to the real library's, best first: OOCDNN_CUDNN_LIBRARY; one that was renamed to
 * libcudnn_real.so.9 so that the drop-in lies in its place; a copy that the process has
 * mapped; where the objects that need it would look; the pip wheel beside this package or beside an
 * extension module of the process; the system's folders. Nothing is opened but, for the last, a
 * library of cuDNN's own, through which the loader's search is asked. */
bool ooc_find_real(char path[PATH_MAX]);

/* Sets `path` to where the drop-in itself lies. */
bool ooc_own_path(char path[PATH_MAX]);
