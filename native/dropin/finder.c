#include "dropin/finder.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SONAME "libcudnn.so.9"
#define RENAMED "libcudnn_real.so.9" /* where the drop-in lies in its place */
#define WHEEL "nvidia/cudnn/lib"

bool ooc_own_path(char path[PATH_MAX]) {
  Dl_info info;
  if (dladdr((void*)ooc_own_path, &info) == 0 || info.dli_fname == NULL) return false;
  return realpath(info.dli_fname, path) != NULL;
}

/* Whether the file is there and not the drop-in itself, by whatever name; then `path` is its. */
static bool accept(const char* file, char path[PATH_MAX]) {
  struct stat there;
  struct stat own;
  char self[PATH_MAX];
  if (stat(file, &there) != 0 || !S_ISREG(there.st_mode)) return false;
  if (ooc_own_path(self) && stat(self, &own) == 0 && own.st_dev == there.st_dev &&
      own.st_ino == there.st_ino) {
    return false;
  }
  return realpath(file, path) != NULL;
}

static bool accept_in(const char* folder, size_t length, const char* below, char path[PATH_MAX]) {
  static const char* const files[] = {SONAME, RENAMED};
  for (size_t i = 0; i < 2; ++i) {
    char file[PATH_MAX];
    const int size = snprintf(file, sizeof file, "%.*s/%s%s%s", (int)length, folder, below,
                              *below ? "/" : "", files[i]);
    if (size > 0 && (size_t)size < sizeof file && accept(file, path)) return true;
  }
  return false;
}

static const char* name_of(const char* path) {
  const char* const slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

static int mapped_copy(struct dl_phdr_info* info, size_t size, void* path) {
  (void)size;
  return strcmp(name_of(info->dlpi_name), SONAME) == 0 && accept(info->dlpi_name, path);
}

/* The search path of one object, its folders divided by colons, $ORIGIN being the object's own. */
static bool search(const char* list, const char* object, char path[PATH_MAX]) {
  static const char* const origins[] = {"$ORIGIN", "${ORIGIN}"};
  for (const char* item = list; *item != '\0';) {
    const size_t length = strcspn(item, ":");
    char folder[PATH_MAX];
    const char* rest = item;
    size_t own = 0;
    for (size_t i = 0; i < 2; ++i) {
      const size_t word = strlen(origins[i]);
      if (length < word || strncmp(item, origins[i], word) != 0) continue;
      rest = item + word;
      own = (size_t)(name_of(object) - object);
    }
    const int size = snprintf(folder, sizeof folder, "%.*s%.*s", (int)own, object,
                              (int)(length - (size_t)(rest - item)), rest);
    if (size > 0 && (size_t)size < sizeof folder && accept_in(folder, (size_t)size, "", path)) {
      return true;
    }
    item += length + (item[length] == ':');
  }
  return false;
}

/* Where an object that needs the library would have found it. */
static int needing_object(struct dl_phdr_info* info, size_t size, void* path) {
  (void)size;
  const ElfW(Dyn)* dynamic = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) {
      dynamic = (const ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
  }
  if (dynamic == NULL) return 0;
  ElfW(Addr) strings = 0;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) strings = entry->d_un.d_ptr;
  }
  if (strings == 0) return 0;
  if (strings < info->dlpi_addr) strings += info->dlpi_addr; /* not relocated by this loader */
  const char* const text = (const char*)strings;
  bool needs = false;
  const char* folders = NULL;
  for (const ElfW(Dyn)* entry = dynamic; entry->d_tag != DT_NULL; ++entry) {
    const char* const value = text + entry->d_un.d_val;
    if (entry->d_tag == DT_NEEDED) needs = needs || strcmp(value, SONAME) == 0;
    if (entry->d_tag == DT_RPATH || entry->d_tag == DT_RUNPATH) folders = value;
  }
  char object[PATH_MAX];
  const char* const name = *info->dlpi_name != '\0' ? info->dlpi_name : "/proc/self/exe";
  return needs && folders != NULL && realpath(name, object) != NULL &&
         search(folders, object, path);
}

/* The wheel in the site-packages folder that an extension module of the process comes from. */
static int wheel_beside(struct dl_phdr_info* info, size_t size, void* path) {
  static const char* const sites[] = {"/site-packages/", "/dist-packages/"};
  (void)size;
  for (size_t i = 0; i < 2; ++i) {
    const char* const at = strstr(info->dlpi_name, sites[i]);
    if (at == NULL) continue;
    const size_t length = (size_t)(at - info->dlpi_name) + strlen(sites[i]) - 1;
    if (accept_in(info->dlpi_name, length, WHEEL, path)) return 1;
  }
  return 0;
}

/* Beside the file by which the drop-in was opened, not the one that a link leads to. */
static bool beside_own(char path[PATH_MAX]) {
  Dl_info info;
  if (dladdr((void*)ooc_own_path, &info) == 0 || info.dli_fname == NULL) return false;
  const size_t length = (size_t)(name_of(info.dli_fname) - info.dli_fname);
  return length > 1 && accept_in(info.dli_fname, length - 1, "", path);
}

/* The drop-in of an installed package lies in site-packages/oocdnn/dropin. */
static bool wheel_beside_own(char path[PATH_MAX]) {
  char own[PATH_MAX];
  if (!ooc_own_path(own)) return false;
  size_t length = 0;
  for (int up = 0; up < 3; ++up) {
    char* const slash = strrchr(own, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    length = (size_t)(slash - own);
  }
  return accept_in(own, length, WHEEL, path);
}

/* The loader's own search, asked for a library that always lies beside the one that is wanted. */
static bool beside_part(char path[PATH_MAX]) {
  void* const part = dlopen("libcudnn_graph.so.9", RTLD_LAZY | RTLD_LOCAL);
  char origin[PATH_MAX];
  if (part == NULL || dlinfo(part, RTLD_DI_ORIGIN, origin) != 0) return false;
  return accept_in(origin, strlen(origin), "", path);
}

static bool system_folder(char path[PATH_MAX]) {
  static const char* const folders[] = {
      "/usr/lib/x86_64-linux-gnu",
      "/usr/lib64",
      "/usr/local/cuda/lib64",
      "/usr/lib",
      "/usr/local/lib",
  };
  for (size_t i = 0; i < sizeof folders / sizeof *folders; ++i) {
    if (accept_in(folders[i], strlen(folders[i]), "", path)) return true;
  }
  return false;
}

bool ooc_find_real(char path[PATH_MAX]) {
  const char* const chosen = getenv("OOCDNN_CUDNN_LIBRARY");
  if (chosen != NULL && *chosen != '\0') return accept(chosen, path);
  const char* const folders = getenv("LD_LIBRARY_PATH");
  return beside_own(path) || dl_iterate_phdr(mapped_copy, path) != 0 ||
         dl_iterate_phdr(needing_object, path) != 0 ||
         (folders != NULL && search(folders, "", path)) || wheel_beside_own(path) ||
         dl_iterate_phdr(wheel_beside, path) != 0 || beside_part(path) || system_folder(path);
}
