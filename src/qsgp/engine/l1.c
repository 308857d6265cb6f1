/* Sums of |x - z| over inputs in double precision, and of W |x - z| over pairs. z stands input by input, each filled up
   to a multiple of 2 WIDE points, so that no load of it ends outside. */

#include "vectors.h"

typedef double dvec __attribute__((vector_size(64), aligned(8), may_alias));
typedef long long lvec __attribute__((vector_size(64), aligned(8), may_alias));

enum { WIDE = 8, GROUP = 64 }; /* rows of a group: their slopes are one partial sum, whatever thread makes it */

static inline __attribute__((always_inline)) dvec size_of(dvec u) { return (dvec)((lvec)u & 0x7fffffffffffffffLL); }

static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* out[n][m] */
void l1_distances(const double *x, const double *z, double *out, size_t n, size_t d, size_t m, size_t padded) {
    for (size_t p0 = 0; p0 < m; p0 += BLOCK)
        for (size_t row = 0; row < n; row += ROWS) {
            const double *at[ROWS];
            for (size_t r = 0; r < ROWS; r++) at[r] = x + least(row + r, n - 1) * d;
            for (size_t p = p0; p < least(p0 + BLOCK, m); p += 2 * WIDE) {
                dvec sum[ROWS][2] = {0};
                for (size_t c = 0; c < d; c++) {
                    dvec z0 = *(const dvec *)(z + c * padded + p), z1 = *(const dvec *)(z + c * padded + p + WIDE);
                    for (int r = 0; r < ROWS; r++) {
                        sum[r][0] += size_of(at[r][c] - z0);
                        sum[r][1] += size_of(at[r][c] - z1);
                    }
                }
                for (size_t r = 0; r < ROWS && row + r < n; r++) {
                    double *to = out + (row + r) * m + p;
                    for (size_t i = 0; i < least(2 * WIDE, m - p); i++) to[i] = sum[r][i / WIDE][i % WIDE];
                }
            }
        }
}

/* Weights of one row at a block of points: zeros past the end, and for a row that is not there */
static void weights(const double *W, double *to, size_t points) {
    for (size_t i = 0; i < BLOCK; i++) to[i] = W && i < points ? W[i] : 0;
}

/* out[group][d] += sums over the rows of a group and all points */
void l1_weighted(const double *W, const double *x, const double *z, double *out, size_t n, size_t d, size_t m,
                 size_t padded) {
    double w[ROWS][BLOCK];
    for (size_t row = 0; row < n; row += ROWS)
        for (size_t p0 = 0; p0 < m; p0 += BLOCK) {
            size_t points = least(BLOCK, m - p0);
            for (size_t r = 0; r < ROWS; r++) weights(row + r < n ? W + (row + r) * m + p0 : NULL, w[r], points);
            for (size_t c = 0; c < d; c++) {
                dvec sum[ROWS] = {0};
                for (size_t p = 0; p < points; p += WIDE) {
                    dvec at = *(const dvec *)(z + c * padded + p0 + p);
                    for (int r = 0; r < ROWS; r++)
                        sum[r] += *(const dvec *)(w[r] + p) * size_of(x[least(row + r, n - 1) * d + c] - at);
                }
                dvec all = sum[0] + sum[1] + sum[2] + sum[3];
                double total = 0;
                for (int i = 0; i < WIDE; i++) total += all[i];
                out[row / GROUP * d + c] += total;
            }
        }
}
