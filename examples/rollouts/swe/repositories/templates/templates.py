def fill(template, **values):
    """Puts values in the place of {names}. A name without a value stays."""
    for name, value in values.items():
        template = template.replace("{" + name + "}", str(value))
    return template
