"""The pendulum itself: angles over time of a swinging rod that gets a small random push after every frame.

    theta'' = 29.43 sin(theta) - 0.1 theta'          (3 g / l with g = 9.81, mass m = 1, length l = 1, inertia
                                                      m l^2 / 3, torque m g l sin(theta); theta = 0 points up here)

Semi-implicit Euler with an inner step of 1e-4 s, 100 inner steps a frame (0.01 s). Start: theta ~ U(0, 2 pi) at rest;
after each frame theta' += N(0, 0.1^2). The task is that of Becker et al., "Recurrent Kalman Networks" (ICML 2019), in
the form of Schirmer et al., "Continuous Recurrent Units" (ICML 2022), which the S5 paper (section 6.3) uses.

Legend: n sequences, F frames, S moments recorded in a frame.
"""

import math

import numpy as np

FRAME_SECONDS = 0.01
INNER_STEPS = 100  # of a frame
INNER_SECONDS = FRAME_SECONDS / INNER_STEPS
GRAVITY_TERM = 9.81 * 3.0  # m g l / (m l^2 / 3), 1/s^2
FRICTION = 0.1  # 1/s
PUSH_STD = 0.1  # rad/s, after every frame


def simulate(n: int, n_frames: int, rng: np.random.RandomState, *, moments: int = 4) -> np.ndarray:
    """Angles of ``n`` pendulums, drawn from ``rng``.

    Order of draws (our choice; the distribution is what the literature fixes): n start angles, then for every frame n
    pushes.

    Args:
        n: sequences. n_frames: frames F of each. rng: consumed.
        moments: S moments recorded per frame, evenly spaced from the frame on; must divide the 100 inner steps.

    Returns:
        (n, F, S) float64 angles in [-pi, pi), radians; 0 points down. [:, :, 0] are the frames themselves.
    """
    theta = rng.uniform(0.0, 2.0 * math.pi, n)  # (n,)
    omega = np.zeros(n)
    pushes = rng.normal(0.0, PUSH_STD, (n_frames, n))
    return roll_out(theta, omega, pushes=pushes, moments=moments)


def roll_out(theta: np.ndarray, omega: np.ndarray, *, pushes: np.ndarray, moments: int = 4) -> np.ndarray:
    """Angles from given start angles (n,), angular velocities (n,) and pushes (F, n) -> (n, F, S) as ``simulate``."""
    assert INNER_STEPS % moments == 0
    theta, omega = theta.copy(), omega.copy()
    record = np.empty((len(pushes), moments, len(theta)))  # (F, S, n)
    for frame, push in enumerate(pushes):
        for moment in range(moments):
            record[frame, moment] = theta
            for _ in range(INNER_STEPS // moments):
                omega += INNER_SECONDS * (GRAVITY_TERM * np.sin(theta) - FRICTION * omega)
                theta += INNER_SECONDS * omega
        omega += push
        theta %= 2.0 * math.pi
    return np.moveaxis(record, 2, 0) % (2.0 * math.pi) - math.pi  # (n, F, S)


def targets(angles: np.ndarray) -> np.ndarray:
    """What is to be predicted: (...,) angles -> (..., 2) float32 [sin, cos]."""
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)
