/* pthread_create that refuses when told to, for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

static atomic_long until_refusal, created;

/* Thread number `refused`, from now on, is refused (0: none is). */
void few_threads(long refused) {
  until_refusal = refused;
  created = 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  typedef int Create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (++created == until_refusal) return EAGAIN;
  Create* const create = (Create*)dlsym(RTLD_NEXT, "pthread_create");
  return create(thread, attributes, body, argument);
}
