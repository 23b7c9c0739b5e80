from datetime import date, timedelta


def days(first, last):
    """Returns every day from `first` to `last`, both included."""
    day, end = date.fromisoformat(first), date.fromisoformat(last)
    found = []
    while day < end:
        found.append(day.isoformat())
        day += timedelta(days=1)
    return found
