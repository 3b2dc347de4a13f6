"""What people read and look at: ``report`` says it, ``page`` lays it out, ``plot`` draws it."""
