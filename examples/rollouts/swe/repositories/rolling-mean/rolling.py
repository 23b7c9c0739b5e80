def rolling_mean(values, size):
    """Returns the mean of each window of `size` neighbours."""
    return [sum(values[i : i + size]) / size for i in range(len(values) - size)]
