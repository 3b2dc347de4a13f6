"""A plant under cloud control, and what noise on its outputs costs, exactly."""
