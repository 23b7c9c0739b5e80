def split_bill(cents, people):
    """Splits an amount into shares that differ by at most one cent."""
    return [cents // people] * people
