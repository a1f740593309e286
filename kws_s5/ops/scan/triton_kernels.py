"""GPU kernels of the scan and of its gradient (Triton).

Steps are cut into chunks of T. One thread owns one mode of one chunk of one clip, holds its T values of Bu in
registers, and runs the recurrence as a plain loop: no complex numbers, no associative scan, no powers that overflow.

    summarize   last state of every chunk that starts from zero, both directions from one read of Bu
    rescan      states of every step, each chunk started from the state that enters it
    adjoint     the same for the gradients, and the sum over the chunk that Lambda_bar's gradient is made of

States entering the chunks solve the same recurrence over chunks (triton_launch.py calls summarize and rescan again).

    up    x_k = a_k     x_{k-1} + v_k   with time
    down  x_k = a_{k+1} x_{k+1} + v_k   against time

The loops are unrolled when compiled, so all loads of a chunk are under way at once; the modes of a warp lie side by
side in memory, whatever P is. Shapes: N batch, L steps, C chunks, P stored states, T steps in a chunk, D directions;
planar pairs [re | im] on the last axis; with both directions [up | down].
"""

import triton
import triton.language as tl

SIZES = ["lanes", "L", "C", "P", "a_row", "a_down", "v_row", "v_up", "v_down", "D", "squarings", "sign"]
# Nothing is gained from numbers known when compiling: one kernel serves every shape and every round.


@triton.jit
def _lane(lanes, C, P, BLOCK: tl.constexpr):
    """Clip, chunk and mode of every thread, and whether the thread has one."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return (i // (C * P)).to(tl.int64), (i // P) % C, i % P, i < lanes


@triton.jit
def _advance(a_re, a_im, x_re, x_im, v_re, v_im):
    """a x + v."""
    return a_re * x_re - a_im * x_im + v_re, a_re * x_im + a_im * x_re + v_im


@triton.jit
def _rows(ptr, row, P, k, L, live, pad, T: tl.constexpr):
    """T pairs from step k on, as two tuples; (pad, 0) before the first and behind the last step."""
    re = ()
    im = ()
    for t in tl.static_range(T):
        inside = live & (k + t >= 0) & (k + t < L)
        re = re + (tl.load(ptr + t * row, mask=inside, other=pad),)
        im = im + (tl.load(ptr + t * row + P, mask=inside, other=0.0),)
    return re, im


@triton.jit
def _factors(
    a_ptr, a_row, n, k, L, P, p, live, squarings, sign, PER_STEP: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """T factors from step k on, or T times the clip's only one; squared, and conjugated where sign is -1."""
    if PER_STEP:
        re, im = _rows(a_ptr + (n * L + k) * a_row + p, a_row, P, k, L, live, 1.0, T)
    else:
        one_re = tl.load(a_ptr + n * a_row + p, mask=live, other=0.0)
        one_im = tl.load(a_ptr + n * a_row + p + P, mask=live, other=0.0)
        wide_re = one_re.to(tl.float64)  # a to the number of steps in a chunk, exact to float32's last digit
        wide_im = one_im.to(tl.float64)
        while squarings > 0:
            wide_re, wide_im = wide_re * wide_re - wide_im * wide_im, 2 * wide_re * wide_im
            squarings -= 1
        one_re = wide_re.to(one_re.dtype)
        one_im = wide_im.to(one_im.dtype)
        re = ()
        im = ()
        for _ in tl.static_range(T):
            re = re + (one_re,)
            im = im + (one_im,)
    signed = ()
    for t in tl.static_range(T):
        signed = signed + (im[t] * sign,)
    return re, signed


@triton.jit
def _carry(states_ptr, row, n, c, C, P, p, live):
    """State at the border of chunk c (N, C, row); zero outside."""
    at = states_ptr + (n * C + c) * row + p
    inside = live & (c >= 0) & (c < C)
    return tl.load(at, mask=inside, other=0.0), tl.load(at + P, mask=inside, other=0.0)


@triton.jit
def _put(ptr, P, re, im, live):
    tl.store(ptr, re, mask=live)
    tl.store(ptr + P, im, mask=live)


@triton.jit(do_not_specialize=SIZES)
def summarize(
    a_ptr, v_ptr, ends_ptr, products_ptr, lanes, L, C, P, D, v_row, v_up, v_down, a_row, a_down,
    squarings, sign, UP: tl.constexpr, DOWN: tl.constexpr, SHARED: tl.constexpr, PER_STEP: tl.constexpr,
    T: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """ends (N, C, 2 D P): last state of each chunk run from zero; products of its factors where they vary.

    A product that carries a state down from chunk c + 1 to c is stored with c + 1, as Lambda_bar is. SHARED: both
    directions scan the same columns of v. ``a_down``, ``v_up``, ``v_down``: columns where a direction's pairs start.
    """
    n, c, p, live = _lane(lanes, C, P, BLOCK)
    k = c * T
    v = v_ptr + (n * L + k) * v_row + p
    out = (n * C + c) * (2 * D * P) + p
    if UP:
        a_re, a_im = _factors(a_ptr, a_row, n, k, L, P, p, live, squarings, sign, PER_STEP, T)
        v_re, v_im = _rows(v + v_up, v_row, P, k, L, live, 0.0, T)
        x_re, x_im = v_re[0], v_im[0]
        for t in tl.static_range(1, T):
            x_re, x_im = _advance(a_re[t], a_im[t], x_re, x_im, v_re[t], v_im[t])
        _put(ends_ptr + out, P, x_re, x_im, live)
        if PER_STEP:
            b_re, b_im = a_re[0], a_im[0]
            for t in tl.static_range(1, T):
                b_re, b_im = _advance(a_re[t], a_im[t], b_re, b_im, 0.0, 0.0)
            _put(products_ptr + out, P, b_re, b_im, live)
    if DOWN:
        a_re, a_im = _factors(a_ptr + a_down, a_row, n, k + 1, L, P, p, live, squarings, sign, PER_STEP, T)
        if not SHARED:
            v_re, v_im = _rows(v + v_down, v_row, P, k, L, live, 0.0, T)
        x_re, x_im = v_re[T - 1], v_im[T - 1]
        for t in tl.static_range(T - 2, -1, -1):
            x_re, x_im = _advance(a_re[t], a_im[t], x_re, x_im, v_re[t], v_im[t])
        out += 2 * P * (D - 1)
        _put(ends_ptr + out, P, x_re, x_im, live)
        if PER_STEP:
            b_re, b_im = a_re[0], a_im[0]
            for t in tl.static_range(1, T):
                b_re, b_im = _advance(a_re[t], a_im[t], b_re, b_im, 0.0, 0.0)
            _put(products_ptr + out + 2 * D * P, P, b_re, b_im, live & (c + 1 < C))


@triton.jit(do_not_specialize=SIZES)
def rescan(
    a_ptr, v_ptr, borders_ptr, initial_ptr, xs_ptr, lanes, L, C, P, D, v_row, v_up, v_down, a_row, a_down,
    squarings, sign, UP: tl.constexpr, DOWN: tl.constexpr, SHARED: tl.constexpr, PER_STEP: tl.constexpr,
    T: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """xs (N, L, 2 D P) from the states at the chunks' ends, borders (N, C, 2 D P), and initial (N, 2P) going up.

    A single chunk reads no borders; initial may be None.
    """
    n, c, p, live = _lane(lanes, C, P, BLOCK)
    k = c * T
    v = v_ptr + (n * L + k) * v_row + p
    row = 2 * D * P
    out = xs_ptr + (n * L + k) * row + p
    if UP:
        a_re, a_im = _factors(a_ptr, a_row, n, k, L, P, p, live, squarings, sign, PER_STEP, T)
        v_re, v_im = _rows(v + v_up, v_row, P, k, L, live, 0.0, T)
        x_re, x_im = _carry(borders_ptr, row, n, c - 1, C, P, p, live)
        if initial_ptr is not None:
            start_re, start_im = _carry(initial_ptr, 2 * P, n, c, 1, P, p, live)  # zero but for the first chunk
            x_re, x_im = x_re + start_re, x_im + start_im
        for t in tl.static_range(T):
            x_re, x_im = _advance(a_re[t], a_im[t], x_re, x_im, v_re[t], v_im[t])
            _put(out + t * row, P, x_re, x_im, live & (k + t < L))
    if DOWN:
        a_re, a_im = _factors(a_ptr + a_down, a_row, n, k + 1, L, P, p, live, squarings, sign, PER_STEP, T)
        if not SHARED:
            v_re, v_im = _rows(v + v_down, v_row, P, k, L, live, 0.0, T)
        out += 2 * P * (D - 1)
        x_re, x_im = _carry(borders_ptr + 2 * P * (D - 1), row, n, c + 1, C, P, p, live)
        for t in tl.static_range(T - 1, -1, -1):
            x_re, x_im = _advance(a_re[t], a_im[t], x_re, x_im, v_re[t], v_im[t])
            _put(out + t * row, P, x_re, x_im, live & (k + t < L))


@triton.jit(do_not_specialize=SIZES)
def adjoint(
    a_ptr, grad_ptr, borders_ptr, xs_ptr, grad_v_ptr, g_ptr, grad_a_ptr, lanes, L, C, P, D, v_row, v_up, v_down, a_row,
    squarings, sign, UP: tl.constexpr, DOWN: tl.constexpr, PER_STEP: tl.constexpr, NEEDS_A: tl.constexpr,
    T: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients from grad and xs (N, L, v_row): a scan going up is brought back going down, and the other way round.

        down  g_k = grad_k + conj(a_{k+1}) g_{k+1},  grad a_k += g_k conj(x_{k-1})      of the scan going up
        up    g_k = grad_k + conj(a_k) g_{k-1},      grad a_k += g_{k-1} conj(x_k)      of the scan going down

    grad_v (N, L, 2P) is the sum of both g; g (N, 2P) the down one at step 0; grad_a (N, L, 2P) where the factors vary,
    else one sum per chunk (N, C, 2P), without what the initial state adds.
    """
    n, c, p, live = _lane(lanes, C, P, BLOCK)
    k = c * T
    here = (n * L + k) * v_row + p
    zero = tl.zeros([BLOCK], grad_ptr.dtype.element_ty)
    sum_re, sum_im = zero, zero
    gs_re = ()
    gs_im = ()
    da_re = ()
    da_im = ()
    if UP:
        a_re, a_im = _factors(a_ptr, a_row, n, k, L, P, p, live, squarings, sign, PER_STEP, T)
        v_re, v_im = _rows(grad_ptr + here + v_up, v_row, P, k, L, live, 0.0, T)
        if NEEDS_A:
            x_re, x_im = _rows(xs_ptr + here + v_up, v_row, P, k, L, live, 0.0, T)
        g_re, g_im = _carry(borders_ptr, 2 * D * P, n, c - 1, C, P, p, live)
        for t in tl.static_range(T):
            if NEEDS_A:
                s_re, s_im = _advance(x_re[t], -x_im[t], g_re, g_im, 0.0, 0.0)
                if PER_STEP:
                    da_re = da_re + (s_re,)
                    da_im = da_im + (s_im,)
                else:
                    sum_re, sum_im = sum_re + s_re, sum_im + s_im
            g_re, g_im = _advance(a_re[t], a_im[t], g_re, g_im, v_re[t], v_im[t])
            gs_re = gs_re + (g_re,)
            gs_im = gs_im + (g_im,)
    else:
        for _ in tl.static_range(T):
            gs_re = gs_re + (zero,)
            gs_im = gs_im + (zero,)
            da_re = da_re + (zero,)
            da_im = da_im + (zero,)
    if DOWN:
        a_re, a_im = _factors(a_ptr, a_row, n, k + 1, L, P, p, live, squarings, sign, PER_STEP, T)
        v_re, v_im = _rows(grad_ptr + here + v_down, v_row, P, k, L, live, 0.0, T)
        if NEEDS_A:
            x_re, x_im = _rows(xs_ptr + here + v_down - v_row, v_row, P, k - 1, L, live, 0.0, T)
        g_re, g_im = _carry(borders_ptr + 2 * P * (D - 1), 2 * D * P, n, c + 1, C, P, p, live)
    out = (n * L + k) * 2 * P + p
    for t in tl.static_range(T - 1, -1, -1):
        inside = live & (k + t < L)
        s_re, s_im = zero, zero
        total_re, total_im = gs_re[t], gs_im[t]
        if DOWN:
            g_re, g_im = _advance(a_re[t], a_im[t], g_re, g_im, v_re[t], v_im[t])
            total_re, total_im = total_re + g_re, total_im + g_im
            if NEEDS_A:
                s_re, s_im = _advance(x_re[t], -x_im[t], g_re, g_im, 0.0, 0.0)
        _put(grad_v_ptr + out + t * 2 * P, P, total_re, total_im, inside)
        if NEEDS_A and PER_STEP:
            _put(grad_a_ptr + out + t * 2 * P, P, s_re + da_re[t], s_im + da_im[t], inside)
        else:
            sum_re, sum_im = sum_re + s_re, sum_im + s_im
    if DOWN:
        _put(g_ptr + n * 2 * P + p, P, g_re, g_im, live & (c == 0))
    if NEEDS_A and not PER_STEP:
        _put(grad_a_ptr + (n * C + c) * 2 * P + p, P, sum_re, sum_im, live)
