/* The step of a kws_s5 model: see kws_step.h. The same operations, in the same order, as kws_s5/export/numpy_step.py.
 *
 * Legend: M modes, n poles, H features, P states, K outputs, W frames of the window.
 */
#include "kws_step.h"

#include <math.h>
#include <string.h>

enum { M = KWS_MODES, N_POLES = KWS_POLES, H = KWS_FEATURES, P = KWS_STATES, K = KWS_OUTPUTS, W = KWS_WINDOW };

static const float OFFSET = 1e-12f;    /* on every sample: states never fall into the denormal range */
static const double TOLERANCE = 1e-6;  /* samples: an edge this close to a sample's is meant to be there */

#if KWS_INT8
/* A matrix of bytes with a scale for each row. */
static float row_product(const kws_matrix *m, int row, const float *x) {
    const int8_t *w = m->weights + (size_t)row * m->columns;
    float sum = 0.0f;
    for (int j = 0; j < m->columns; j++) sum += (float)w[j] * x[j];
    return m->scales[row] * sum;
}
#else
static float row_product(const kws_matrix *m, int row, const float *x) {
    const float *w = m->weights + (size_t)row * m->columns;
    float sum = 0.0f;
    for (int j = 0; j < m->columns; j++) sum += w[j] * x[j];
    return sum;
}
#endif

static void product(const kws_matrix *m, const float *bias, const float *x, float *out) {
    for (int i = 0; i < m->rows; i++) out[i] = row_product(m, i, x) + (bias ? bias[i] : 0.0f);
}

/* Batch norm is one gain and one shift for each feature; layer norm looks at the frame first. */
static void normalise(const kws_norm *norm, int n, const float *x, float *out) {
    float mean = 0.0f, scale = 1.0f;
    if (norm->centred) {
        float square = 0.0f;
        for (int i = 0; i < n; i++) mean += x[i];
        mean /= (float)n;
        for (int i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
        scale = 1.0f / sqrtf(square / (float)n + 1e-6f);
    }
    for (int i = 0; i < n; i++) {
        float y = (x[i] - mean) * scale;
        out[i] = (norm->gain ? norm->gain[i] * y : y) + norm->shift[i];
    }
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

static float gelu(float x) { return x * sigmoid(1.5957691216057308f * (x + 0.044715f * x * x * x)); }

static void next_edge(kws_state *s) {
    double edge = (double)(s->frames + 1) * KWS_SAMPLES_PER_FRAME, whole = floor(edge + 0.5);
    s->edge = fabs(edge - whole) < TOLERANCE ? whole : edge;
    s->left = (uint32_t)((uint64_t)ceil(s->edge) - s->position);
}

void kws_reset(kws_state *s) {
    memset(s, 0, sizeof *s);
    next_edge(s);
}

int kws_hear(kws_state *s, float sample) {
    const float u = sample + OFFSET;
    float beyond;
    s->position++;
    const int complete = --s->left == 0;
    beyond = complete ? (float)((double)s->position - s->edge) : 0.0f; /* what belongs to the next frame */
    for (int m = 0; m < M; m++) {
        float re = kws_tap_re[0][m] * u + kws_tap_re[1][m] * s->recent[0] + kws_tap_re[2][m] * s->recent[1];
        float im = kws_tap_im[0][m] * u + kws_tap_im[1][m] * s->recent[0] + kws_tap_im[2][m] * s->recent[1];
        const float a_re = kws_pole_re[m], a_im = kws_pole_im[m];
        for (int p = 0; p < N_POLES; p++) { /* each pole drives the next one */
            const float x_re = s->mode_re[p][m], x_im = s->mode_im[p][m];
            re += a_re * x_re - a_im * x_im;
            im += a_re * x_im + a_im * x_re;
            s->mode_re[p][m] = re;
            s->mode_im[p][m] = im;
        }
        const float power = re * re + im * im;
        if (complete) {
            s->frame[m] = (s->power[m] + (1.0f - beyond) * power) * (float)(1.0 / KWS_SAMPLES_PER_FRAME);
            s->power[m] = beyond * power;
        } else {
            s->power[m] += power;
        }
    }
    s->recent[1] = s->recent[0];
    s->recent[0] = u;
    if (complete) {
        s->frames++;
        next_edge(s);
    }
    return complete;
}

/* One S5 layer: features x (H) become the next ones; re and im are its state (P). */
static void run_layer(const kws_layer *layer, float *x, float *re, float *im) {
    float u[H], y[H], h[H], z[H], both[2 * P];
    if (KWS_PRENORM) normalise(&layer->norm, H, x, u);
    else memcpy(u, x, sizeof u);
    for (int p = 0; p < P; p++) {
        const float old_re = re[p], old_im = im[p];
        re[p] = layer->Lambda_re[p] * old_re - layer->Lambda_im[p] * old_im + row_product(&layer->B, p, u);
        im[p] = layer->Lambda_re[p] * old_im + layer->Lambda_im[p] * old_re + row_product(&layer->B, P + p, u);
        both[p] = re[p];
        both[P + p] = im[p];
    }
    for (int i = 0; i < H; i++) y[i] = row_product(&layer->C, i, both) + layer->D[i] * u[i];
    if (layer->ssm_norm.shift) normalise(&layer->ssm_norm, H, y, y);
    for (int i = 0; i < H; i++) h[i] = gelu(y[i]);
    if (KWS_ACTIVATION == KWS_GELU) {
        for (int i = 0; i < H; i++) x[i] += h[i];
    } else {
        product(&layer->out2, layer->out2_bias, h, z);
        if (KWS_ACTIVATION == KWS_FULL_GLU) product(&layer->out1, layer->out1_bias, h, u);
        for (int i = 0; i < H; i++) {
            const float value = KWS_ACTIVATION == KWS_FULL_GLU ? u[i] : KWS_ACTIVATION == KWS_HALF_GLU2 ? y[i] : h[i];
            x[i] += value * sigmoid(z[i]);
        }
    }
    if (!KWS_PRENORM) normalise(&layer->norm, H, x, x);
}

void kws_decide(kws_state *s, float logits[KWS_OUTPUTS]) {
    float x[H], in[M];
    for (int m = 0; m < M; m++) in[m] = logf(s->frame[m] + KWS_FLOOR);
    normalise(&kws_front_norm, M, in, in);
    for (int m = 0; m < M; m++)
        if (!kws_present[m]) in[m] = kws_absent[m];
    product(&kws_encoder, kws_encoder_bias, in, x);
    for (int i = 0; i < KWS_LAYERS; i++) run_layer(&kws_layers[i], x, s->layer_re[i], s->layer_im[i]);
    float *vote = s->votes[(s->frames - 1) % W];
    product(&kws_decoder, 0, x, vote);
    const int seen = s->frames < W ? (int)s->frames : W;
    for (int k = 0; k < K; k++) {
        float sum = 0.0f;
        for (int w = 0; w < seen; w++) sum += s->votes[w][k];
        logits[k] = sum / (float)seen + kws_decoder_bias[k];
    }
}

void kws_softmax(const float logits[KWS_OUTPUTS], float scores[KWS_OUTPUTS]) {
    float most = logits[0], sum = 0.0f;
    for (int k = 1; k < K; k++) most = logits[k] > most ? logits[k] : most;
    for (int k = 0; k < K; k++) sum += scores[k] = expf(logits[k] - most);
    for (int k = 0; k < K; k++) scores[k] /= sum;
}
