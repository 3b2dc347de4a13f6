"""The protocol of section VI: what it promises, how it behaves, and exact errors."""
