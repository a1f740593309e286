/* A kws_s5 model that listens, in C99: no allocation, no files, one sample rate, constant memory and time.
 *
 *     static kws_state state;
 *     kws_reset(&state);
 *     for each sample x in [-1, 1):
 *         if (kws_hear(&state, x)) {              a frame of 1 / KWS_FRAME_RATE seconds is complete
 *             kws_decide(&state, logits);         KWS_OUTPUTS numbers, in the order of kws_labels
 *             kws_softmax(logits, scores);        probabilities
 *         }
 *
 * kws_model.h holds the weights of one model; both are written by kws-export --to c. What a word in the scores is
 * (smoothing, thresholds, refractory time) is described in docs/listening.md.
 */
#ifndef KWS_STEP_H
#define KWS_STEP_H

#include <stdint.h>

#include "kws_model.h"

typedef struct {
    uint64_t frames;                                  /* complete ones */
    double edge;                                      /* where the next one ends, in samples from the start */
    uint64_t position;                                /* samples heard */
    uint32_t left;                                    /* samples until that frame is complete */
    float recent[2];                                  /* the last two samples, the newest first */
    float mode_re[KWS_POLES][KWS_MODES], mode_im[KWS_POLES][KWS_MODES];
    float power[KWS_MODES];                           /* summed since the last edge */
    float frame[KWS_MODES];                           /* mean power of the last complete frame */
    float layer_re[KWS_LAYERS + 1][KWS_STATES], layer_im[KWS_LAYERS + 1][KWS_STATES];
    float votes[KWS_WINDOW][KWS_OUTPUTS];             /* of the last frames, a ring */
} kws_state;

void kws_reset(kws_state *s);                                   /* silence; also before the first sample */
int kws_hear(kws_state *s, float sample);                       /* 1 when a frame is complete */
void kws_decide(kws_state *s, float logits[KWS_OUTPUTS]);       /* once after each complete frame */
void kws_softmax(const float logits[KWS_OUTPUTS], float scores[KWS_OUTPUTS]);

#endif
