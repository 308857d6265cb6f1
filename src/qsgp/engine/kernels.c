/* K(X, Z) V on a CPU, fused: measure, evaluate, sum. Inputs are scaled so that every exponential is a power of two:
   beforehand, or here by ``scale`` once their differences are taken, which are exact for near duplicates. */

#include "vectors.h"

enum { LAPLACIAN = 2 }; /* of absolute differences; always with a scale */

/* The smaller of both; what is not a number stays so */
static inline __attribute__((always_inline)) vec at_most(vec u, float most) {
    ivec far = u > most;
    return (vec)((~far & (ivec)u) | (far & (ivec)((vec){0} + most)));
}

/* 2^-u for 0 <= u <= 126: the polynomial of 2^r on [-1/2, 1/2] errs by 1e-7 */
static inline __attribute__((always_inline)) vec power(vec u) {
    vec n = (ROUND - u) - ROUND, r = -u - n;
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

/* kind: 2 nu of a Matern kernel, 0 for the squared exponential, LAPLACIAN. Beyond 2^-126 values stay there, which is
   nothing. */
static inline __attribute__((always_inline)) vec profile(vec q, size_t kind) {
    if (kind == 0 || kind == LAPLACIAN) return power(at_most(q, 126.0f));
    vec u = at_most(root(q), 126.0f), e = power(u), s = 0.6931471806f * u;
    if (kind == 1) return e;
    return kind == 3 ? e + s * e : e + s * e + s * s * 0.3333333433f * e;
}

/* Rows past the end repeat the last one; what they give is thrown away. */
static inline void pointers(const float *x, size_t d, size_t row, size_t n, const float *at[ROWS]) {
    for (size_t r = 0; r < ROWS; r++) at[r] = x + (row + r < n ? row + r : n - 1) * d;
}

static inline __attribute__((always_inline)) vec size_of(vec u) { return (vec)((ivec)u & 0x7fffffff); }

/* q of the Laplacian kernel: the product with the scale fuses with the sum, so it costs nothing to scale this late */
static inline __attribute__((always_inline)) void sizes(const float *const at[ROWS], const float *z, const float *scale,
                                                        size_t d, vec q[ROWS][2]) {
    for (size_t c = 0; c < d; c++) {
        vec z0 = *(const vec *)(z + 2 * c * LANES), z1 = *(const vec *)(z + (2 * c + 1) * LANES);
        for (int r = 0; r < ROWS; r++) {
            q[r][0] += scale[c] * size_of(at[r][c] - z0);
            q[r][1] += scale[c] * size_of(at[r][c] - z1);
        }
    }
}

static inline __attribute__((always_inline)) void squares(const float *const at[ROWS], const float *z,
                                                          const float *scale, size_t d, vec q[ROWS][2]) {
    for (size_t c = 0; c < d; c++) {
        vec z0 = *(const vec *)(z + 2 * c * LANES), z1 = *(const vec *)(z + (2 * c + 1) * LANES);
        for (int r = 0; r < ROWS; r++) {
            vec a = at[r][c] - z0, b = at[r][c] - z1;
            if (scale) a *= scale[c], b *= scale[c];
            q[r][0] += a * a;
            q[r][1] += b * b;
        }
    }
}

/* Kernel values of ROWS rows at two vectors of points */
static inline __attribute__((always_inline)) void near(const float *const at[ROWS], const float *z, const float *scale,
                                                       size_t d, size_t kind, vec k[ROWS][2]) {
    vec q[ROWS][2] = {0};
    if (kind == LAPLACIAN) sizes(at, z, scale, d, q);
    else squares(at, z, scale, d, q);
    for (int r = 0; r < ROWS; r++)
        for (int h = 0; h < 2; h++) k[r][h] = profile(q[r][h], kind);
}

/* out[n] += K v, points a multiple of BLOCK (padded with zero weights) */
void k_v_one(const float *x, const float *z, const float *scale, const float *v, float *out, size_t n, size_t d,
             size_t points, size_t kind) {
    const float *at[ROWS];
    vec k[ROWS][2];
    for (size_t p0 = 0; p0 < points; p0 += BLOCK)
        for (size_t row = 0; row < n; row += ROWS) {
            pointers(x, d, row, n, at);
            vec sum[ROWS] = {0};
            for (size_t p = p0; p < p0 + BLOCK; p += 2 * LANES) {
                near(at, z + p * d, scale, d, kind, k);
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
void k_v_many(const float *x, const float *z, const float *scale, const float *v, float *out, size_t n, size_t d,
              size_t points, size_t kind, size_t columns) {
    const float *at[ROWS];
    vec k[ROWS][2];
    float f[ROWS][BLOCK];
    for (size_t p0 = 0; p0 < points; p0 += BLOCK)
        for (size_t row = 0; row < n; row += ROWS) {
            pointers(x, d, row, n, at);
            for (size_t p = 0; p < BLOCK; p += 2 * LANES) {
                near(at, z + (p0 + p) * d, scale, d, kind, k);
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
