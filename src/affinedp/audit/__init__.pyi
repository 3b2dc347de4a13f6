from .trial import audit as audit
