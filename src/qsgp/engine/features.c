/* Phi V and Phi^T R for Fourier features on a CPU, fused: project, evaluate, sum; nothing leaves the cache.

   Frequencies arrive in revolutions, so that the range reduction is t - round(t), and in tiles of 2 LANES pairs,
   d x 2 LANES each. */

#include "vectors.h"

enum { DEEP = 64, GROUP = 32, CHUNK = 1024 }; /* DEEP inputs of a tile stay in L1 while GROUP rows pass */
#ifdef __AVX512F__
enum { TALL = 8 }; /* rows whose projections at two vectors of pairs fill the registers */
#else
enum { TALL = 2 };
#endif

/* sin and cos of 2 pi t: near-minimax polynomials on [-1/2, 1/2], absolute error below 7e-7 */
static inline __attribute__((always_inline)) void sincos_turns(vec t, vec *s, vec *c) {
    vec r = t - ((t + ROUND) - ROUND), u = r * r;
    *s = r * (6.283182818519372f + u * (-41.341421395831986f + u * (81.59618380183872f + u * (-76.58009980941063f
         + u * (41.20539173785407f + u * -12.271257424918755f)))));
    *c = 0.9999999891735276f + u * (-19.739204532200233f + u * (64.9391189862585f + u * (-85.45016556946064f
         + u * (60.16783177377811f + u * (-25.968313173176593f + u * 6.529609938596396f)))));
}

/* What a product reads: n rows of x, and w in tiles. With more than DEEP inputs a tile no longer stays in the first
   cache while ROWS rows pass: then GROUP rows are projected at a time, DEEP inputs of a tile after the other, into t.
   Without w the rows of x are projections already, d of them. */
typedef struct {
    const float *x, *w;
    size_t n, d;
    float t[GROUP][BLOCK];
} source;

static size_t last(const source *from, size_t row) { return row < from->n ? row : from->n - 1; }

/* t: projections of GROUP rows from ``row`` on at the BLOCK pairs of w. Rows past the end repeat the last one. */
static void project(source *from, size_t row, const float *w) {
    size_t d = from->d;
    for (size_t k0 = 0; k0 < d; k0 += DEEP)
        for (size_t p = 0; p < BLOCK; p += 2 * LANES)
            for (size_t g = 0; g < GROUP && row + g < from->n; g += TALL) {
                const float *x[TALL], *panel = w + p * d;
                vec t[TALL][2];
                for (size_t r = 0; r < TALL; r++) x[r] = from->x + last(from, row + g + r) * d;
                for (int r = 0; r < TALL; r++)
                    for (int h = 0; h < 2; h++) t[r][h] = k0 ? *(vec *)(from->t[g + r] + p + h * LANES) : (vec){0};
                for (size_t k = k0; k < d && k < k0 + DEEP; k++) {
                    vec w0 = *(const vec *)(panel + 2 * k * LANES), w1 = *(const vec *)(panel + (2 * k + 1) * LANES);
                    for (int r = 0; r < TALL; r++) {
                        t[r][0] += x[r][k] * w0;
                        t[r][1] += x[r][k] * w1;
                    }
                }
                for (int r = 0; r < TALL; r++)
                    for (int h = 0; h < 2; h++) *(vec *)(from->t[g + r] + p + h * LANES) = t[r][h];
            }
}

/* The tiles of the block at p0, if rows meet them directly */
static const float *shallow(const float *w, size_t d, size_t p0) { return w && d <= DEEP ? w + p0 * d : NULL; }

/* Where ROWS rows stand, x or their projections at BLOCK pairs from p0 on; rows must be asked for in order. What the
   rows past the end give is thrown away. */
static inline void pointers(source *from, size_t row, size_t p0, const float *at[ROWS]) {
    size_t d = from->d, deep = from->w && d > DEEP;
    if (deep && row % GROUP == 0) project(from, row, from->w + p0 * d);
    for (size_t r = 0; r < ROWS; r++) {
        size_t i = last(from, row + r);
        at[r] = deep ? from->t[i % GROUP] : from->x + i * d + (from->w ? 0 : p0);
    }
}

/* Features of ROWS rows at two vectors of pairs, number p on of a block: projected here by w, or before */
static inline __attribute__((always_inline)) void tile(const float *const at[ROWS], const float *w, size_t d, size_t p,
                                                       vec s[ROWS][2], vec c[ROWS][2]) {
    vec t[ROWS][2] = {0};
    if (w)
        for (size_t k = 0; k < d; k++) {
            const float *both = w + p * d + 2 * k * LANES;
            vec w0 = *(const vec *)both, w1 = *(const vec *)(both + LANES);
            for (int r = 0; r < ROWS; r++) {
                t[r][0] += at[r][k] * w0;
                t[r][1] += at[r][k] * w1;
            }
        }
    else
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < 2; h++) t[r][h] = *(const vec *)(at[r] + p + h * LANES);
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 2; h++) sincos_turns(t[r][h], &s[r][h], &c[r][h]);
}

/* out[n] += Phi v; cosine and sine weights in planes, pairs a multiple of BLOCK (padded with zero weights) */
void phi_v_one(const float *x, const float *w, const float *v, float *out, size_t n, size_t d, size_t pairs) {
    source from = {.x = x, .w = w, .n = n, .d = d};
    const float *at[ROWS];
    vec s[ROWS][2], c[ROWS][2];
    for (size_t p0 = 0; p0 < pairs; p0 += BLOCK) {
        const float *tiles = shallow(w, d, p0);
        for (size_t row = 0; row < n; row += ROWS) {
            vec sum[ROWS] = {0};
            pointers(&from, row, p0, at);
            for (size_t p = 0; p < BLOCK; p += 2 * LANES) {
                tile(at, tiles, d, p, s, c);
                for (int h = 0; h < 2; h++) {
                    const float *weight = v + p0 + p + h * LANES;
                    vec a = *(const vec *)weight, b = *(const vec *)(weight + pairs);
                    for (int r = 0; r < ROWS; r++) sum[r] += c[r][h] * a + s[r][h] * b;
                }
            }
            for (size_t r = 0; r < ROWS && row + r < n; r++) {
                float total = 0;
                for (int i = 0; i < LANES; i++) total += sum[r][i];
                out[row + r] += total;
            }
        }
    }
}

/* out[2][pairs] += Phi^T r, cosines and sines in planes; CHUNK rows at a time, so that rounding does not add up */
void phit_r_one(const float *x, const float *w, const float *weight, float *out, size_t n, size_t d, size_t first,
                size_t last, size_t pairs) {
    source from = {.x = x, .w = w, .n = n, .d = d};
    const float *at[ROWS];
    vec s[ROWS][2], c[ROWS][2];
    for (size_t p0 = first; p0 < last; p0 += BLOCK) {
        const float *tiles = shallow(w, d, p0);
        for (size_t begin = 0; begin < n; begin += CHUNK) {
            vec sum[BLOCK / LANES][2] = {0};
            for (size_t row = begin; row < n && row < begin + CHUNK; row += ROWS) {
                float q[ROWS];
                pointers(&from, row, p0, at);
                for (size_t r = 0; r < ROWS; r++) q[r] = row + r < n ? weight[row + r] : 0;
                for (size_t p = 0; p < BLOCK; p += 2 * LANES) {
                    tile(at, tiles, d, p, s, c);
                    for (int h = 0; h < 2; h++)
                        for (int r = 0; r < ROWS; r++) {
                            sum[p / LANES + h][0] += q[r] * c[r][h];
                            sum[p / LANES + h][1] += q[r] * s[r][h];
                        }
                }
            }
            for (size_t p = 0; p < BLOCK; p += LANES) {
                *(vec *)(out + p0 + p) += sum[p / LANES][0];
                *(vec *)(out + pairs + p0 + p) += sum[p / LANES][1];
            }
        }
    }
}

/* The features of ROWS rows at BLOCK pairs, cosines then sines */
static void block(const float *const at[ROWS], const float *tiles, size_t d, float f[ROWS][2 * BLOCK]) {
    vec s[ROWS][2], c[ROWS][2];
    for (size_t p = 0; p < BLOCK; p += 2 * LANES) {
        tile(at, tiles, d, p, s, c);
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < 2; h++) {
                *(vec *)(f[r] + p + h * LANES) = c[r][h];
                *(vec *)(f[r] + BLOCK + p + h * LANES) = s[r][h];
            }
    }
}

/* out[n][columns] += Phi V with V[2][pairs][columns], columns a multiple of LANES */
void phi_v_many(const float *x, const float *w, const float *v, float *out, size_t n, size_t d, size_t pairs,
                size_t columns) {
    source from = {.x = x, .w = w, .n = n, .d = d};
    const float *at[ROWS];
    float f[ROWS][2 * BLOCK];
    for (size_t p0 = 0; p0 < pairs; p0 += BLOCK) {
        const float *tiles = shallow(w, d, p0);
        for (size_t row = 0; row < n; row += ROWS) {
            pointers(&from, row, p0, at);
            block(at, tiles, d, f);
            for (size_t j = 0; j < columns; j += LANES) {
                vec sum[ROWS][2] = {0};
                const float *a = v + p0 * columns + j, *b = v + (pairs + p0) * columns + j;
                for (size_t p = 0; p < BLOCK; p++) {
                    vec va = *(const vec *)(a + p * columns), vb = *(const vec *)(b + p * columns);
                    for (int r = 0; r < ROWS; r++) {
                        sum[r][0] += f[r][p] * va;
                        sum[r][1] += f[r][BLOCK + p] * vb;
                    }
                }
                for (size_t r = 0; r < ROWS && row + r < n; r++)
                    *(vec *)(out + (row + r) * columns + j) += sum[r][0] + sum[r][1];
            }
        }
    }
}

/* sum[2][BLOCK][columns] += Phi^T R of ROWS rows with features f; the planes of sum are ``plane`` apart */
static void spread(float f[ROWS][2 * BLOCK], const float *weight, size_t rows, size_t columns, size_t plane, float *sum) {
    for (size_t j = 0; j < columns; j += LANES) {
        vec q[ROWS] = {0};
        float *a = sum + j, *b = sum + plane + j;
        for (size_t r = 0; r < ROWS && r < rows; r++) q[r] = *(const vec *)(weight + r * columns + j);
        for (size_t p = 0; p < BLOCK; p++) {
            vec sa = *(vec *)(a + p * columns), sb = *(vec *)(b + p * columns);
            for (int r = 0; r < ROWS; r++) {
                sa += f[r][p] * q[r];
                sb += f[r][BLOCK + p] * q[r];
            }
            *(vec *)(a + p * columns) = sa;
            *(vec *)(b + p * columns) = sb;
        }
    }
}

/* out[2][pairs][columns] += Phi^T R with R[n][columns]; ``part``, zeros of the size of out, holds CHUNK rows' sums */
void phit_r_many(const float *x, const float *w, const float *weight, float *part, float *out, size_t n, size_t d,
                 size_t first, size_t last, size_t pairs, size_t columns) {
    source from = {.x = x, .w = w, .n = n, .d = d};
    const float *at[ROWS];
    float f[ROWS][2 * BLOCK];
    for (size_t p0 = first; p0 < last; p0 += BLOCK) {
        const float *tiles = shallow(w, d, p0);
        for (size_t begin = 0; begin < n; begin += CHUNK) {
            for (size_t row = begin; row < n && row < begin + CHUNK; row += ROWS) {
                pointers(&from, row, p0, at);
                block(at, tiles, d, f);
                spread(f, weight + row * columns, n - row, columns, pairs * columns, part + p0 * columns);
            }
            for (size_t half = 0; half < 2; half++)
                for (size_t i = (half * pairs + p0) * columns, end = i + BLOCK * columns; i < end; i += LANES) {
                    *(vec *)(out + i) += *(vec *)(part + i);
                    *(vec *)(part + i) = (vec){0};
                }
        }
    }
}
