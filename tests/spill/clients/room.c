/* Prints the bytes that the host has left, as /proc and /sys below the argument say. */
#include <stdio.h>

#include "spill/host_room.h"

int main(int count, char** values) {
  if (count != 2) return 1;
  printf("%zu\n", ooc_host_room_under(values[1]));
  return 0;
}
