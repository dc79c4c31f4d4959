/* What the drop-in (native/dropin, the preloaded libcudnn.so.9) and the core say to each other. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Any function; cast to its own type before the call. */
typedef void (*OocFunction)(void); /* NOLINT(modernize-redundant-void-arg): C */

/* One function that the core serves; lists end with a null name. */
typedef struct OocServed {
  const char* name;
  OocFunction function;
} OocServed;

/* Exported by the core. The functions that it serves in place of the real library's, for as long as
 * the process lives. `real` finds a function of the real library by name (null where it lacks it);
 * where `real` is null there is no GPU, and what is not in the list is not supported. Null: the
 * core cannot serve. Called once. */
const OocServed* oocdnn_cudnn_functions(OocFunction (*real)(const char* name));

/* Exported by the drop-in, and how the core tells it from a cuDNN: the path of the real library
 * that it stands for, null where none is found. */
const char* oocdnn_dropin_real(void);

#ifdef __cplusplus
}
#endif
