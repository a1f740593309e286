/* Runs the exported step on a Cortex-M4F under QEMU: half a second of a sound that any program can make again, the logits
 * of its last frame in hexadecimal, and how many instructions ten milliseconds take. */
#include <stdint.h>
#include <string.h>

#include "kws_step.h"

void reset(void);
__attribute__((section(".vectors"), used)) static const void *const vectors[2] = {(void *)0x20400000, (void *)reset};

#define TIMER ((volatile uint32_t *)0x40000000) /* control, value, reload: 25 MHz */

static void call(int operation, const void *argument) { /* semihosting */
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void print_hex(uint32_t value) {
    char text[10] = "00000000\n";
    for (int i = 7; i >= 0; i--, value >>= 4) text[i] = "0123456789abcdef"[value & 15];
    call(4, text);
}

static __attribute__((noinline)) void listen(void) {
    static kws_state state;
    static float logits[KWS_OUTPUTS];
    uint32_t seed = 1, bits;
    TIMER[0] = 0, TIMER[1] = TIMER[2] = 0xFFFFFFFF, TIMER[0] = 1;
    kws_reset(&state);
    for (int i = 0; i < (int)(KWS_RATE / 2); i++) {
        seed = seed * 1664525u + 1013904223u;
        if (kws_hear(&state, (float)(int32_t)seed * (0.25f / 2147483648.0f))) kws_decide(&state, logits);
    }
    const uint32_t ticks = 0xFFFFFFFF - TIMER[1];
    for (int k = 0; k < KWS_OUTPUTS; k++) {
        memcpy(&bits, &logits[k], 4);
        print_hex(bits);
    }
    print_hex(ticks * 40 / 50); /* one instruction is one of QEMU's nanoseconds; 50 frames */
}

void reset(void) {
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20; /* the floating-point unit on, before any function saves its registers */
    __asm__ volatile("dsb; isb");
    listen();
    call(0x18, (void *)0x20026);
    for (;;) {}
}
