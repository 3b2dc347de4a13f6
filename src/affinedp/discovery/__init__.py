"""Find the linear equations that data obeys, and say what each would cost if the public knew it."""
