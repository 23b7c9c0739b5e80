def transpose(rows):
    return [[row[i] for row in rows] for i in range(len(rows))]
