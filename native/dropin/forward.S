/* A forwarder for each export of cuDNN: a jump through its slot of the table, which touches neither
 * registers nor stack, so that any number and kind of arguments pass. Until the table is filled, a
 * slot leads to code that has it filled and then goes on as if nothing had been. x86-64.
 *
 * The slots are in the order of abi/cudnn_exports.h. */
#include "abi/cudnn_exports.h"

  .macro forward name
    .text
    .p2align 4
    .globl \name
    .type \name, @function
\name:
    endbr64
    jmp *(ooc_slots + 8 * slot)(%rip)
first_\name:
    endbr64
    pushq $slot
    jmp fill_and_go
    .size \name, . - \name

    .section .data.rel, "aw", @progbits
    .quad first_\name
    .set slot, slot + 1
  .endm

  .section .data.rel, "aw", @progbits
  .p2align 3
  .globl ooc_slots
  .hidden ooc_slots
  .type ooc_slots, @object
ooc_slots:
  .set slot, 0
#define FORWARD(name, since) forward name;
  OOC_CUDNN_EXPORTS(FORWARD)
  .size ooc_slots, . - ooc_slots

/* On the stack: the slot's number, the caller's return address. Every register that may hold an
 * argument is kept. */
  .text
  .p2align 4
  .type fill_and_go, @function
fill_and_go:
  pushq %rax
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  subq $136, %rsp
  movups %xmm0, 0(%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movq 192(%rsp), %rdi
  call ooc_filled
  movq %rax, %r11
  movups 0(%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $136, %rsp
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  popq %rax
  addq $8, %rsp
  jmp *%r11
  .size fill_and_go, . - fill_and_go

  .section .note.GNU-stack, "", @progbits
