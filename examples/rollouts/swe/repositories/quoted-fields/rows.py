def split_row(line):
    """Splits a line of a CSV file into its fields."""
    return line.rstrip("\n").split(",")
