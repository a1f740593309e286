"""The pendulum: pictures of a swinging rod at irregular moments."""
