"""Stationary noise for private inputs: spectra, causal filters, exact certificates, the stream."""
