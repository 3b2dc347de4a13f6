from .trial import AuditResult as AuditResult
from .trial import audit as audit
from .trial import low_bits_attack as low_bits_attack
