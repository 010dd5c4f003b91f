"""What every room may use: warnings, text, checks of input."""
