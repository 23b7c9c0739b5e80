def slugify(title):
    """Returns a title as a part of an address: small letters, digits, hyphens."""
    return title.strip().lower().replace(" ", "-")
