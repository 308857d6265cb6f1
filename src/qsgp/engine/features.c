/* Phi V and Phi^T R for Fourier features, and K(X, Z) V, on a CPU, fused: project or measure, evaluate, sum; nothing
   leaves the cache.

   Vectors of sixteen floats are GCC's: the compiler turns them into whatever the processor has. Frequencies arrive in
   revolutions, so that the range reduction is t - round(t), and in tiles of 2 LANES pairs, d x 2 LANES each.       */

#include <stddef.h>

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
enum { LANES = 16, ROWS = 4, BLOCK = 256 }; /* pairs of a block: their features of ROWS rows fill a quarter of L1 */

static const float ROUND = 12582912.0f; /* 1.5 2^23: adding and taking it away rounds to an integer */

/* sin and cos of 2 pi t: near-minimax polynomials on [-1/2, 1/2], absolute error below 7e-7 */
static inline __attribute__((always_inline)) void sincos_turns(vec t, vec *s, vec *c) {
    vec r = t - ((t + ROUND) - ROUND), u = r * r;
    *s = r * (6.283182818519372f + u * (-41.341421395831986f + u * (81.59618380183872f + u * (-76.58009980941063f
         + u * (41.20539173785407f + u * -12.271257424918755f)))));
    *c = 0.9999999891735276f + u * (-19.739204532200233f + u * (64.9391189862585f + u * (-85.45016556946064f
         + u * (60.16783177377811f + u * (-25.968313173176593f + u * 6.529609938596396f)))));
}

/* Features of ROWS rows at two vectors of pairs */
static inline __attribute__((always_inline)) void tile(const float *const x[ROWS], const float *w, size_t d,
                                                       vec s[ROWS][2], vec c[ROWS][2]) {
    vec t[ROWS][2] = {0};
    for (size_t k = 0; k < d; k++) {
        vec w0 = *(const vec *)(w + 2 * k * LANES), w1 = *(const vec *)(w + (2 * k + 1) * LANES);
        for (int r = 0; r < ROWS; r++) {
            t[r][0] += x[r][k] * w0;
            t[r][1] += x[r][k] * w1;
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 2; h++) sincos_turns(t[r][h], &s[r][h], &c[r][h]);
}

/* Rows past the end repeat the last one; what they give is thrown away. */
static inline void pointers(const float *x, size_t d, size_t row, size_t n, const float *at[ROWS]) {
    for (size_t r = 0; r < ROWS; r++) at[r] = x + (row + r < n ? row + r : n - 1) * d;
}

/* out[n] += Phi v; cosine and sine weights in planes, pairs a multiple of BLOCK (padded with zero weights) */
void phi_v_one(const float *x, const float *w, const float *v, float *out, size_t n, size_t d, size_t pairs) {
    const float *at[ROWS];
    vec s[ROWS][2], c[ROWS][2];
    for (size_t p0 = 0; p0 < pairs; p0 += BLOCK)
        for (size_t row = 0; row < n; row += ROWS) {
            vec sum[ROWS] = {0};
            pointers(x, d, row, n, at);
            for (size_t p = p0; p < p0 + BLOCK; p += 2 * LANES) {
                tile(at, w + p * d, d, s, c);
                for (int h = 0; h < 2; h++) {
                    vec a = *(const vec *)(v + p + h * LANES), b = *(const vec *)(v + pairs + p + h * LANES);
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

/* out[2][pairs] += Phi^T r, cosines and sines in planes */
void phit_r_one(const float *x, const float *w, const float *weight, float *out, size_t n, size_t d, size_t first,
                size_t last, size_t pairs) {
    const float *at[ROWS];
    vec s[ROWS][2], c[ROWS][2];
    for (size_t p0 = first; p0 < last; p0 += BLOCK) {
        vec sum[BLOCK / LANES][2] = {0};
        for (size_t row = 0; row < n; row += ROWS) {
            float q[ROWS];
            pointers(x, d, row, n, at);
            for (size_t r = 0; r < ROWS; r++) q[r] = row + r < n ? weight[row + r] : 0;
            for (size_t p = 0; p < BLOCK; p += 2 * LANES) {
                tile(at, w + (p0 + p) * d, d, s, c);
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

/* The features of ROWS rows at BLOCK pairs, cosines then sines */
static void block(const float *const at[ROWS], const float *w, size_t d, float f[ROWS][2 * BLOCK]) {
    vec s[ROWS][2], c[ROWS][2];
    for (size_t p = 0; p < BLOCK; p += 2 * LANES) {
        tile(at, w + p * d, d, s, c);
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
    const float *at[ROWS];
    float f[ROWS][2 * BLOCK];
    for (size_t p0 = 0; p0 < pairs; p0 += BLOCK)
        for (size_t row = 0; row < n; row += ROWS) {
            pointers(x, d, row, n, at);
            block(at, w + p0 * d, d, f);
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

/* out[2][pairs][columns] += Phi^T R with R[n][columns] */
void phit_r_many(const float *x, const float *w, const float *weight, float *out, size_t n, size_t d, size_t first,
                 size_t last, size_t pairs, size_t columns) {
    const float *at[ROWS];
    float f[ROWS][2 * BLOCK];
    for (size_t p0 = first; p0 < last; p0 += BLOCK)
        for (size_t row = 0; row < n; row += ROWS) {
            pointers(x, d, row, n, at);
            block(at, w + p0 * d, d, f);
            for (size_t j = 0; j < columns; j += LANES) {
                vec q[ROWS] = {0};
                float *a = out + p0 * columns + j, *b = out + (pairs + p0) * columns + j;
                for (size_t r = 0; r < ROWS && row + r < n; r++) q[r] = *(const vec *)(weight + (row + r) * columns + j);
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
}

/* ---- K(X, Z) V: inputs arrive centred and scaled so that every exponential is a power of two ---- */

typedef int ivec __attribute__((vector_size(64), aligned(4), may_alias));

/* 2^-u for u >= 0: the polynomial of 2^r on [-1/2, 1/2] errs by 1e-7; below 2^-126 it stays there, which is nothing */
static inline __attribute__((always_inline)) vec power(vec u) {
    ivec far = u > 126.0f;
    vec t = (vec)((~far & (ivec)(-u)) | (far & (ivec)(vec){-126, -126, -126, -126, -126, -126, -126, -126, -126, -126,
                                                             -126, -126, -126, -126, -126, -126}));
    vec n = (t + ROUND) - ROUND, r = t - n;
    vec p = 1.0f + r * (0.6931471806f + r * (0.2402265070f + r * (0.0555041087f + r * (0.0096181291f
            + r * (0.0013333558f + r * 0.0001540353f)))));
    ivec bits = (__builtin_convertvector(n, ivec) + 127) << 23;
    return p * (vec)bits;
}

static inline __attribute__((always_inline)) vec root(vec q) {
    vec s;
    for (int i = 0; i < LANES; i++) s[i] = __builtin_sqrtf(q[i]);
    return s;
}

/* kind: 2 nu of a Matern kernel, 0 for the squared exponential */
static inline __attribute__((always_inline)) vec profile(vec q, size_t kind) {
    if (kind == 0) return power(q);
    vec u = root(q), e = power(u), s = 0.6931471806f * u;
    if (kind == 1) return e;
    return kind == 3 ? e + s * e : e + s * e + s * s * 0.3333333433f * e;
}

/* Kernel values of ROWS rows at two vectors of points; differences do not cancel */
static inline __attribute__((always_inline)) void near(const float *const x[ROWS], const float *z, size_t d, size_t kind,
                                                       vec k[ROWS][2]) {
    vec q[ROWS][2] = {0};
    for (size_t c = 0; c < d; c++) {
        vec z0 = *(const vec *)(z + 2 * c * LANES), z1 = *(const vec *)(z + (2 * c + 1) * LANES);
        for (int r = 0; r < ROWS; r++) {
            vec a = x[r][c] - z0, b = x[r][c] - z1;
            q[r][0] += a * a;
            q[r][1] += b * b;
        }
    }
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 2; h++) k[r][h] = profile(q[r][h], kind);
}

/* out[n] += K v, points a multiple of BLOCK (padded with zero weights) */
void k_v_one(const float *x, const float *z, const float *v, float *out, size_t n, size_t d, size_t points, size_t kind) {
    const float *at[ROWS];
    vec k[ROWS][2];
    for (size_t p0 = 0; p0 < points; p0 += BLOCK)
        for (size_t row = 0; row < n; row += ROWS) {
            vec sum[ROWS] = {0};
            pointers(x, d, row, n, at);
            for (size_t p = p0; p < p0 + BLOCK; p += 2 * LANES) {
                near(at, z + p * d, d, kind, k);
                for (int h = 0; h < 2; h++) {
                    vec a = *(const vec *)(v + p + h * LANES);
                    for (int r = 0; r < ROWS; r++) sum[r] += k[r][h] * a;
                }
            }
            for (size_t r = 0; r < ROWS && row + r < n; r++) {
                float total = 0;
                for (int i = 0; i < LANES; i++) total += sum[r][i];
                out[row + r] += total;
            }
        }
}

/* out[n][columns] += K V with V[points][columns], columns a multiple of LANES */
void k_v_many(const float *x, const float *z, const float *v, float *out, size_t n, size_t d, size_t points, size_t kind,
              size_t columns) {
    const float *at[ROWS];
    vec k[ROWS][2];
    float f[ROWS][BLOCK];
    for (size_t p0 = 0; p0 < points; p0 += BLOCK)
        for (size_t row = 0; row < n; row += ROWS) {
            pointers(x, d, row, n, at);
            for (size_t p = 0; p < BLOCK; p += 2 * LANES) {
                near(at, z + (p0 + p) * d, d, kind, k);
                for (int r = 0; r < ROWS; r++)
                    for (int h = 0; h < 2; h++) *(vec *)(f[r] + p + h * LANES) = k[r][h];
            }
            for (size_t j = 0; j < columns; j += LANES) {
                vec sum[ROWS] = {0};
                for (size_t p = 0; p < BLOCK; p++) {
                    vec a = *(const vec *)(v + (p0 + p) * columns + j);
                    for (int r = 0; r < ROWS; r++) sum[r] += f[r][p] * a;
                }
                for (size_t r = 0; r < ROWS && row + r < n; r++) *(vec *)(out + (row + r) * columns + j) += sum[r];
            }
        }
}
