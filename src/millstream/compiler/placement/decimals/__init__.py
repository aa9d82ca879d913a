"""How many digits a numeric expression has: by declaration, by display, or without bound."""
