"""Elementwise steps of an S5 layer and their gradients on a tile of rows (columns.py): what stands between products.

Legend: H features; y output of the SSM, u its input, h = GELU(y), z the gate before its sigmoid; d... gradient of ...,
G gradient of the layer's output.
"""

import math

from numba import njit

from kws_s5.ops.common.columns import columnwise

MOMENTS, AFFINE, CLEAR, COPY, ADD, ACTIVATE, ACTIVATE_ADD, COMBINE = range(8)
ACTIVATE_AGAIN, GATE_GRADIENT, GELU_GRADIENT, GELU_GRADIENT_DIRECT, INPUT_GRADIENT, NORM_GRADIENT = range(8, 14)
OUTPUT, OUTPUT_ADD, NORM_SUMS = range(14, 17)
K, CUBE = 2.0 * math.sqrt(2.0 / math.pi), 0.044715  # gelu(y) = y sigmoid(K (y + CUBE y^3)), the tanh form


@columnwise("rcss")
def moments(x, origin, total, square):
    centred = x - origin
    return {2: total + centred, 3: square + centred * centred}


@columnwise("rrccc")
def affine(u, x, mean, gain, bias):
    return {0: (x - mean) * gain + bias}


@columnwise("r")
def clear(out):
    return {0: out.zero()}


@columnwise("rr")
def copy(out, source):
    return {0: source}


@columnwise("rr")
def add(out, other):
    return {0: out + other}


@columnwise("rrrc")
def output(kept, y, u, D):
    return {0: y + D * u}


@columnwise("rrrc")
def output_add(kept, y, u, D):
    return {0: kept + y + D * u}


@columnwise("rrrccr")
def activate(kept, y, u, D, mask, h):
    y = y + D * u
    return {0: y, 5: mask * y * (K * (y + CUBE * y * y * y)).sigmoid()}


@columnwise("rrrccr")
def activate_add(kept, y, u, D, mask, h):
    y = kept + y + D * u
    return {0: y, 5: mask * y * (K * (y + CUBE * y * y * y)).sigmoid()}


@columnwise("rrrrcc")
def combine(out, skip, value, z, bias, mask):
    return {0: skip + value * mask * (z + bias).sigmoid()}


@columnwise("rcr")
def activate_again(y, mask, h):
    return {2: mask * y * (K * (y + CUBE * y * y * y)).sigmoid()}


@columnwise("rrrccrrs")
def gate_gradient(G, value, z, bias, mask, dz, dvalue, dbias):
    s = (z + bias).sigmoid()
    product = G * mask * s
    dz = product * value * (1.0 - s)
    return {5: dz, 6: product, 7: dbias + dz}


@columnwise("rrrcrr")
def gelu_gradient(dy, kept, y, mask, dh, dvalue):
    s = (K * (y + CUBE * y * y * y)).sigmoid()
    slope = s + y * s * (1.0 - s) * (K * (1.0 + 3.0 * CUBE * y * y))
    dy = (dh + dvalue) * mask * slope
    return {0: dy, 1: dy}


@columnwise("rrrcrr")
def gelu_gradient_direct(dy, kept, y, mask, dh, dvalue):
    s = (K * (y + CUBE * y * y * y)).sigmoid()
    slope = s + y * s * (1.0 - s) * (K * (1.0 + 3.0 * CUBE * y * y))
    dy = dh * mask * slope + dvalue
    return {0: dy, 1: dy}


@columnwise("rrrcrrccsss")
def input_gradient(du, through_B, dy, D, u, x, mean, inverse, dD, dbias, dscale):
    du = through_B + D * dy
    return {0: du, 8: dD + dy * u, 9: dbias + du, 10: dscale + du * (x - mean) * inverse}


@columnwise("rrrcccc")
def norm_gradient(out, G, x, mean, gain, slope, offset):
    return {0: G + out * gain + (x - mean) * slope + offset}


@columnwise("rrccss")
def norm_sums(G, x, mean, inverse, dbias, dscale):
    return {4: dbias + G, 5: dscale + G * (x - mean) * inverse}


@njit(nogil=True, error_model="numpy")
def run_columns(operation, table, first, last, H):
    if operation == MOMENTS:
        moments(table, first, last, H)
    elif operation == AFFINE:
        affine(table, first, last, H)
    elif operation == CLEAR:
        clear(table, first, last, H)
    elif operation == COPY:
        copy(table, first, last, H)
    elif operation == ADD:
        add(table, first, last, H)
    elif operation == ACTIVATE:
        activate(table, first, last, H)
    elif operation == ACTIVATE_ADD:
        activate_add(table, first, last, H)
    elif operation == COMBINE:
        combine(table, first, last, H)
    elif operation == ACTIVATE_AGAIN:
        activate_again(table, first, last, H)
    elif operation == GATE_GRADIENT:
        gate_gradient(table, first, last, H)
    elif operation == GELU_GRADIENT:
        gelu_gradient(table, first, last, H)
    elif operation == GELU_GRADIENT_DIRECT:
        gelu_gradient_direct(table, first, last, H)
    elif operation == INPUT_GRADIENT:
        input_gradient(table, first, last, H)
    elif operation == NORM_GRADIENT:
        norm_gradient(table, first, last, H)
    elif operation == OUTPUT:
        output(table, first, last, H)
    elif operation == OUTPUT_ADD:
        output_add(table, first, last, H)
    elif operation == NORM_SUMS:
        norm_sums(table, first, last, H)
