"""How are numbers drawn? SVG charts and HTML tables: numbers in, text out, without torch, nets or runs."""
