"""Tables and figures: pure data first, drawing last."""
