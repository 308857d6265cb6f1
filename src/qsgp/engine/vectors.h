/* Vectors of sixteen floats are GCC's: the compiler turns them into whatever the processor has. */

#include <stddef.h>

typedef float vec __attribute__((vector_size(64), aligned(4), may_alias));
typedef int ivec __attribute__((vector_size(64), aligned(4), may_alias));

enum { LANES = 16, ROWS = 4, BLOCK = 256 }; /* pairs of a block: their features of ROWS rows fill a quarter of L1 */

static const float ROUND = 12582912.0f; /* 1.5 2^23: adding and taking it away rounds to an integer */
