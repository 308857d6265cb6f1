"""Special functions of the Triton kernels, each in two ways: assembly for the GPU, plain Triton for the interpreter.

The special-function unit of an NVIDIA GPU reads its angle in revolutions and wraps it itself, so ``sin.approx`` is one
product and one look-up. Rounding that product costs |t| 2^-23, no more than a float32 projection t is off anyway.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator, misc"

import triton
import triton.language as tl


@triton.jit
def sincos(t, HARDWARE: tl.constexpr):
    """sin t, cos t on the special-function unit; the interpreter, which runs no assembly, takes the polynomials."""
    if HARDWARE:
        return tl.inline_asm_elementwise(
            "{ sin.approx.ftz.f32 $0, $2; cos.approx.ftz.f32 $1, $2; }",
            "=&f,=f,f",
            [t],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    else:
        return sincos_polynomial(t)


@triton.jit
def sincos_polynomial(t):
    """sin t, cos t by fused multiply-adds alone: near-minimax polynomials in revolutions on [-1/2, 1/2].

    Adding and taking away 1.5 2^23 rounds to an integer; the rest r = t / 2 pi - n is one rounding away from exact.
    """
    n = tl.fma(t, 0.15915494309189535, 12582912.0) - 12582912.0
    r = tl.fma(t, 0.15915494309189535, -n)
    u = r * r
    s = tl.fma(u, -12.271257424918755, 41.20539173785407)
    s = tl.fma(u, s, -76.58009980941063)
    s = tl.fma(u, s, 81.59618380183872)
    s = tl.fma(u, s, -41.341421395831986)
    s = tl.fma(u, s, 6.283182818519372) * r
    c = tl.fma(u, 6.529609938596396, -25.968313173176593)
    c = tl.fma(u, c, 60.16783177377811)
    c = tl.fma(u, c, -85.45016556946064)
    c = tl.fma(u, c, 64.9391189862585)
    c = tl.fma(u, c, -19.739204532200233)
    c = tl.fma(u, c, 0.9999999891735276)
    return s, c


@triton.jit
def exp2(a, HARDWARE: tl.constexpr):
    """2^a with results below 2^-126 flushed to zero: one instruction instead of four."""
    if HARDWARE:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [a], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.exp2(a)


@triton.jit
def root(a, HARDWARE: tl.constexpr):
    if HARDWARE:
        return tl.inline_asm_elementwise(
            "sqrt.approx.ftz.f32 $0, $1;", "=f,f", [a], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.sqrt(a)


@triton.jit
def profile(q, KERNEL: tl.constexpr, HARDWARE: tl.constexpr):
    """rho(r) of the kernel from q = (sharpness * r)^2: the scaling makes every exponential a plain 2^-u."""
    if KERNEL == "rbf":
        return exp2(-q, HARDWARE)
    else:
        u = root(tl.maximum(q, 0.0), HARDWARE)
        e = exp2(-u, HARDWARE)
        if KERNEL == "matern12":
            return e
        elif KERNEL == "matern32":
            return tl.fma(u * 0.6931471805599453, e, e)
        else:
            return tl.fma(tl.fma(u, 0.16015100466, 0.6931471805599453) * u, e, e)
